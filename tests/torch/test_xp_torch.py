"""The namespace of torch that rules get: where it differs from array-api-compat's, it is right.

The reference is NumPy, with central differences for the tangents.  Modes: eager, vmap, jvp,
linearize (called twice: what it keeps must not change), vmap of jvp, compiled.
"""

import array_api_compat.numpy as numpy_xp
import numpy as np
import pytest

from twingrad.interop import define

torch = pytest.importorskip("torch")

from torch.func import jvp, linearize, vmap  # noqa: E402

import twingrad.interop.xp.torch as xp  # noqa: E402
from tests.side_torch import no_loop_over_samples  # noqa: E402
from twingrad.interop.torch import bind  # noqa: E402

X = np.array([[1.3, 2.2, 1.7], [2.1, 3.4, 1.6], [1.5, 1.1, 2.9]])
BATCH = np.stack([X, X + 0.05, -1.1 * X])
ALONG = np.cos(np.arange(9.0)).reshape(3, 3) + 0.2


def _matrix(xp, x):
    return xp.matmul(x, xp.matrix_transpose(x)) + 2 * xp.eye(3, dtype=x.dtype)


CALLS = {
    "eye": lambda xp, x: x * (2 * xp.eye(3, dtype=x.dtype)),
    "eye, k=1": lambda xp, x: x * (2 * xp.eye(3, 3, k=1, dtype=x.dtype)),
    "eye, k=-2": lambda xp, x: x * (2 * xp.eye(3, k=-2, dtype=x.dtype)),
    "eye, k=9": lambda xp, x: x * (2 * xp.eye(3, k=9, dtype=x.dtype)),
    "eye, 3 by 5": lambda xp, x: xp.matmul(x, 2 * xp.eye(3, 5, k=2, dtype=x.dtype)),
    "sign": lambda xp, x: xp.sign(x),
    "sign of zero": lambda xp, x: x * xp.sign(x - x),
    "sign of complex": lambda xp, x: xp.real(xp.sign(x + 2j)),
    "sign of complex zero": lambda xp, x: xp.real(xp.sign(0j * x)),
    "sign of integers": lambda xp, x: xp.sign(xp.astype(x, xp.int32)),
    "moveaxis": lambda xp, x: xp.moveaxis(x, 0, -1),
    "moveaxis of two": lambda xp, x: xp.moveaxis(x[None], (0, 1), (2, 0)),
    "matrix_transpose": lambda xp, x: xp.linalg.matrix_transpose(xp.matrix_transpose(x[None])) * x,
    "unstack": lambda xp, x: xp.unstack(x, axis=-1)[1],
    "vecdot": lambda xp, x: xp.vecdot(x, xp.sin(x), axis=0),
    "vecdot of complex": lambda xp, x: xp.real(xp.linalg.vecdot(x * 1j, x + 1j)),
    "vecdot of integers": lambda xp, x: xp.vecdot(xp.astype(x, xp.int32), xp.astype(x, xp.int32)),
    "solve, vector": lambda xp, x: xp.linalg.solve(_matrix(xp, x), x[0, :]),
    "solve, matrix": lambda xp, x: xp.linalg.solve(_matrix(xp, x), x),
    "solve, many and one": lambda xp, x: xp.linalg.solve(
        xp.stack([_matrix(xp, x), 3 * _matrix(xp, x), 2 * _matrix(xp, x)]), x
    ),
    "solve, one and many": lambda xp, x: xp.linalg.solve(_matrix(xp, x), xp.stack([x, 2 * x])),
    "std": lambda xp, x: xp.std(x),
    "std, half": lambda xp, x: xp.std(x, axis=-1, correction=0.5, keepdims=True),
    "std, two axes": lambda xp, x: xp.std(x, axis=(0, 1), correction=1),
    "std, no axis": lambda xp, x: xp.std(x, axis=()),
    **{
        f"{name}, {axis}, {keep}": lambda xp, x, n=name, a=axis, k=keep: getattr(xp, n)(
            x, axis=a, keepdims=k
        )
        for name in ("argmax", "argmin", "count_nonzero")
        for axis in (None, 0, -1, *([(), (0, 1)] if name == "count_nonzero" else []))
        for keep in (False, True)
    },
    **{
        f"vector_norm, {order}, {axis}": lambda xp, x, o=order, a=axis: xp.linalg.vector_norm(
            x, ord=o, axis=a
        )
        for order in (0, 1, 2, np.inf)
        for axis in (None, 0, (0, 1), ())
    },
    "vector_norm of complex": lambda xp, x: xp.linalg.vector_norm(x * (1 + 1j), axis=()),
    "vector_norm, keepdims": lambda xp, x: xp.linalg.vector_norm(x, axis=-1, keepdims=True),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.asarray([[2, -1], [0, 0], [1, -3]])),
    "take_along_axis, one and many": lambda xp, x: xp.take_along_axis(
        x[None, :2], xp.asarray([[[1, 0, 1]], [[-1, -2, 0]]]), axis=1
    ),
    "take_along_axis, many and one": lambda xp, x: xp.take_along_axis(
        x, xp.asarray([[1, 0]]), axis=-1
    ),
    "take_along_axis of the largest": lambda xp, x: xp.take_along_axis(
        x, xp.argmax(x, axis=-1, keepdims=True), axis=-1
    ),
    "conj": lambda xp, x: xp.imag(xp.conj(x * 2j)) * xp.real(xp.conj(x + 1j)),
    "imag of a conjugate": lambda xp, x: xp.imag((x * (2 - 1j)).conj()),
    "conj of a conjugate": lambda xp, x: xp.imag(xp.conj((x * 2j).conj())),
    "conj of real numbers": lambda xp, x: xp.conj(x),
    "concat": lambda xp, x: xp.concat([x, xp.ones_like(x[:, :1]), 2 * x], axis=-1),
    "concat of all": lambda xp, x: xp.concat((x, x[0] ** 2), axis=None),
    "broadcast_to": lambda xp, x: xp.broadcast_to(x[:, None, :1], (2, 3, 1, 4)),
    "broadcast_arrays": lambda xp, x: xp.broadcast_arrays(x, x[0, :, None])[1],
    # for comparison: array-api-compat's own are right
    "round": lambda xp, x: xp.round(x * (1 + 1j)) * xp.real(x),
    "diff": lambda xp, x: xp.diff(x, prepend=x[:, :1], append=x[:, :1]),
    "sum of integers": lambda xp, x: xp.sum(xp.astype(x, xp.int32), axis=-1),
    "prod, two axes": lambda xp, x: xp.prod(x, axis=(0, 1), keepdims=True),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=-1, include_initial=True),
    "cumulative_sum of none": lambda xp, x: xp.cumulative_sum(
        x[:, :0], axis=1, include_initial=True
    ),
    "trace": lambda xp, x: xp.linalg.trace(x, offset=1),
    "take": lambda xp, x: xp.take(x, xp.asarray([2, 0, -1]), axis=-1),
    "clip": lambda xp, x: xp.clip(x, xp.zeros_like(x), 2.0),
}
# over the last axes of arrays of any batch: see the exported program
LAST = {
    "take": lambda xp, x: xp.take(x, xp.asarray([2, 0, -1]), axis=-1),
    "take_along_axis": lambda xp, x: xp.take_along_axis(
        x, xp.argmax(x, axis=-1, keepdims=True), axis=-1
    ),
    "take_along_axis, one": lambda xp, x: xp.take_along_axis(x, xp.asarray([[[1, 0]]])),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=-1, include_initial=True),
    "diff": lambda xp, x: xp.diff(x, axis=-1),
    "matmul": lambda xp, x: xp.matmul(x, xp.matrix_transpose(x)),
    "solve, vector": lambda xp, x: xp.linalg.solve(x, x[0, 0, :]),
    "solve, matrix": lambda xp, x: xp.linalg.solve(x, x[0, ...]),
    "vecdot": lambda xp, x: xp.vecdot(x, xp.sin(x)),
    "vector_norm": lambda xp, x: xp.linalg.vector_norm(x, ord=1, axis=-1),
    "moveaxis": lambda xp, x: xp.moveaxis(x, -1, 0),
    "unstack": lambda xp, x: xp.unstack(x, axis=-1)[1],
    "tile": lambda xp, x: xp.tile(x, (1, 1, 2)),
    "repeat": lambda xp, x: xp.repeat(x, 2, axis=-1),
    "roll": lambda xp, x: xp.roll(x, 1, axis=-1),
    "sort": lambda xp, x: xp.sort(x, axis=-1),
    "std": lambda xp, x: xp.std(x, axis=-1),
    "sign": lambda xp, x: xp.sign(x) + xp.zeros_like(x),
    "eye": lambda xp, x: x * xp.eye(x.shape[-1], dtype=x.dtype),
    "count_nonzero": lambda xp, x: xp.count_nonzero(x, axis=-1),
    "broadcast_to": lambda xp, x: xp.broadcast_to(x[:, :1, :], x.shape),
}
MOVING = [n for n, f in CALLS.items() if f(numpy_xp, X).dtype.kind == "f"]


def _same(found, expected, tolerance=1e-12):
    found = found.resolve_conj().numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def _slope(f, x):
    step = 1e-6 * ALONG
    return (f(numpy_xp, x + step) - f(numpy_xp, x - step)) / 2e-6


@pytest.mark.parametrize("name", CALLS)
def test_values_are_numpys_eager_and_under_vmap(name):
    f = CALLS[name]
    _same(f(xp, torch.from_numpy(X)), np.asarray(f(numpy_xp, X)))
    with no_loop_over_samples():
        found = vmap(lambda x: f(xp, x))(torch.from_numpy(BATCH))
    _same(found, np.stack([f(numpy_xp, x) for x in BATCH]))


@pytest.mark.parametrize("name", [name for name in MOVING if not name.startswith("prod")])
def test_values_are_numpys_on_torchs_first_vmap(name):
    """A rule runs there on cotangents, for is_grads_batched=True and vectorize=True."""
    f = CALLS[name]
    found = torch._vmap_internals._vmap(lambda x: f(xp, x))(torch.from_numpy(BATCH))
    _same(found, np.stack([f(numpy_xp, x) for x in BATCH]))


@pytest.mark.parametrize("name", MOVING)
def test_tangents_are_those_of_numpys_values(name):
    f, x, along = CALLS[name], torch.from_numpy(X), torch.from_numpy(ALONG)
    g = lambda x: f(xp, x)  # noqa: E731
    slope = _slope(f, X)
    _same(jvp(g, (x,), (along,))[1], slope, 1e-7)
    moved = linearize(g, x)[1]
    _same(moved(along), slope, 1e-7)
    _same(moved(along), slope, 1e-7)
    found = vmap(lambda x: jvp(g, (x,), (along,))[1])(torch.from_numpy(BATCH))
    _same(found, np.stack([_slope(f, x) for x in BATCH]), 1e-7)


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["aot_eager"])
def test_values_are_numpys_when_compiled(backend):
    torch._dynamo.reset()
    found = torch.compile(
        lambda x: [f(xp, x) for f in CALLS.values()], backend=backend, fullgraph=True
    )(torch.from_numpy(X))
    for y, f in zip(found, CALLS.values(), strict=True):
        _same(y, np.asarray(f(numpy_xp, X)))


@pytest.mark.compile
def test_no_function_fixes_a_size_in_an_exported_program():
    """The first axis has any size."""

    class Program(torch.nn.Module):
        def forward(self, x):
            return [f(xp, x) for f in LAST.values()]

    size = torch.export.Dim("batch", min=2)
    program = torch.export.export(
        Program(), (torch.from_numpy(BATCH),), dynamic_shapes=({0: size},), strict=False
    )
    x = np.concatenate([BATCH, BATCH + 0.1])
    for y, f in zip(program.module()(torch.from_numpy(x)), LAST.values(), strict=True):
        _same(y, np.asarray(f(numpy_xp, x)))


def test_sign_of_nan_is_nan():
    x = torch.tensor([float("nan"), -0.0, -2.0, float("inf")])
    for f in (xp.sign, vmap(xp.sign), torch.compile(xp.sign, backend="eager")):
        found = f(x)
        assert found[0].isnan() and found[1:].tolist() == [0, -1, 1]


@pytest.mark.parametrize("rules", ["vjp", "jvp"])
def test_a_rule_with_a_constant_matrix_is_right_in_every_mode(rules):
    """torch.func.linearize gave 0: what follows from `eye` was computed before it was filled."""

    @define("(n)->(n)")
    def twice(xp, x):
        return 2 * x

    def rule(xp, ct):
        return xp.sum(2 * xp.eye(ct.shape[-1], dtype=ct.dtype) * ct[..., None, :], axis=-1)

    if rules == "vjp":
        twice.def_vjp(lambda xp, ct, out, x: rule(xp, ct))
    else:
        twice.def_jvp(lambda xp, t, out, x: rule(xp, t[0]))
    f, x = bind(twice), torch.from_numpy(X)
    right = 2 * torch.ones_like(x)
    moved = linearize(f, x)[1]
    for found in (
        moved(right / 2),
        moved(right / 2),
        jvp(f, (x,), (right / 2,))[1],
        vmap(lambda x: jvp(f, (x,), (right[0] / 2,))[1])(x),
        torch.func.jacfwd(f)(x).sum((2, 3)),
        torch.func.grad(lambda x: f(x).sum())(x),
    ):
        torch.testing.assert_close(found, right)


# each made of no array; times what the op was given
MADE = {
    "arange": lambda xp, dtype: xp.arange(3, dtype=dtype),
    "asarray": lambda xp, dtype: xp.asarray([0.0, 1.0, 2.0], dtype=dtype),
    "empty": lambda xp, dtype: 0 * xp.empty(3, dtype=dtype),
    "eye": lambda xp, dtype: xp.eye(3, dtype=dtype)[1],
    "full": lambda xp, dtype: xp.full((3,), 2.0, dtype=dtype),
    "linspace": lambda xp, dtype: xp.linspace(0.0, 1.0, 3, dtype=dtype),
    "ones": lambda xp, dtype: xp.ones(3, dtype=dtype),
    "zeros": lambda xp, dtype: xp.zeros(3, dtype=dtype),
    "fftfreq": lambda xp, dtype: xp.fft.fftfreq(3, dtype=dtype),
    "rfftfreq": lambda xp, dtype: xp.fft.rfftfreq(4, dtype=dtype),
}


def times_made(make):
    @define("(n)->(n)")
    def product(xp, x):
        return x * make(xp, x.dtype)

    product.def_vjp(lambda xp, ct, out, x: product(xp, ct * make(xp, x.dtype) ** 0))
    product.def_jvp(lambda xp, t, out, x: product(xp, t[0] * make(xp, x.dtype) ** 0))
    return bind(product)


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_no_array_is_made_where_the_inputs_are(name):
    """Function, rules, and ops that are called in rules; the meta device is not the usual one."""
    f, x = times_made(MADE[name]), torch.from_numpy(X)
    want = f(x)
    assert torch.equal(torch.func.grad(lambda x: f(x).sum())(x), f(torch.ones_like(x)))
    for found in (
        f(x.to("meta")),
        vmap(f)(x.to("meta")),
        torch.func.grad(lambda x: f(x).sum())(x.to("meta")),
        jvp(f, (x.to("meta"),), (x.to("meta"),))[1],
    ):
        assert found.device.type == "meta"
        assert found.shape == want.shape and found.dtype == want.dtype


def test_a_device_that_is_named_is_taken():
    seen = []

    @define("(n)->(n)")
    def named(xp, x):
        seen.append(xp.ones(2, device="cpu").device.type)
        return 2 * x

    bind(named)(torch.ones(3, device="meta"))
    assert seen == ["cpu"]
