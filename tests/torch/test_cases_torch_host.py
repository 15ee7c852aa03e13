"""Host ops in torch, and compiled calls whose sizes and numbers change from call to call."""

import functools

import numpy as np
import pytest
import scipy.special
import torch
from torch.func import grad, hessian, jvp, vmap

from tests import sample_ops
from twingrad.interop import MissingRuleError, RuleError, define
from twingrad.interop.torch import bind

close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
tensor = functools.partial(torch.tensor, dtype=torch.float64)
BACKENDS = pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])


def compiled(f, backend, **options):
    if backend is None:
        return f
    torch._dynamo.reset()
    return torch.compile(f, backend=backend, fullgraph=True, **options)


@pytest.mark.compile
@BACKENDS
def test_a_host_op_is_called_once_per_batch_however_it_is_mapped(backend):
    energy, recorder = sample_ops.host_energy()
    f = bind(energy)
    x, s = torch.randn(2, 5, 3).double(), torch.arange(5.0).double()
    ways = {
        "vmap(vmap)": (vmap(vmap(f), (0, None)), (x, s)),
        "other axes": (vmap(vmap(f, (-1, 0)), (0, None)), (x.mT.contiguous(), s)),
        "broadcast": (f, (x, s)),
        "vmap of broadcast": (vmap(f, (0, None)), (x, s)),
    }
    for name, (g, args) in ways.items():
        h = compiled(g, backend)
        recorder.clear()
        close(h(*args), (x * x).sum(-1) * s)
        shapes = [[a.shape for a in call] for call in recorder.calls]
        assert shapes == [[(10, 3), (10,)]], name


@pytest.mark.compile
@BACKENDS
def test_a_batched_gradient_calls_the_adjoint_once(backend):
    energy, recorder = sample_ops.host_energy()
    f = bind(energy)
    x, s = torch.randn(4, 3).double(), torch.arange(4.0).double()
    for g in (vmap(grad(f)), lambda x, s: grad(lambda x: vmap(f)(x, s).sum())(x)):
        h = compiled(g, backend)
        recorder.clear()
        close(h(x, s), 2 * x * s[:, None])
        assert recorder.counts[1] == 1 and recorder.counts[0] <= 1
        arrays = recorder.adjoint_calls[0]
        assert all(a.flags.c_contiguous and not a.flags.writeable for a in arrays)
        assert [a.shape for a in arrays] == [(4,), (4,), (4, 3), (4,)]


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_second_derivatives_of_a_host_op_compile(backend):
    f = bind(sample_ops.host_sin())
    x = tensor([0.3, 1.0])
    second = compiled(vmap(grad(grad(f))), backend)
    close(second(x), -x.sin())
    close(vmap(hessian(f))(x), -x.sin())


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda x: x.sum(-1, keepdims=True) * np.ones(2), RuleError, r"faulty.*shape \(1, 2\)"),
        (lambda x: (x, x), RuleError, r"faulty.*2 values"),
        (lambda x: 1 / len(x[0, :0]), ZeroDivisionError, r"division by zero"),
        (lambda x: np.clip(x, 0, 1, out=x)[:, 0], ValueError, r"read-only"),
        (lambda x: np.array(["a"]), RuleError, r"faulty.*dtype"),
    ],
)
def test_a_faulty_host_function_raises_and_the_process_goes_on(function, error, text):
    @define("(n)->()", host=True)
    def faulty(xp, x):
        return function(x) if x[0, 0] < 5 else x[:, 0]

    f = bind(faulty)
    for g in (f, lambda x: vmap(f)(x[None])[0], torch.compile(f, backend="eager")):
        with pytest.raises(error, match=text):
            g(torch.ones(3).double())
        close(g(torch.full((3,), 7.0).double()), tensor(7.0))


def test_an_exception_of_a_host_function_names_the_op():
    @define("(n)->()", host=True)
    def faulty(xp, x):
        raise ZeroDivisionError("user's own words")

    with pytest.raises(ZeroDivisionError) as caught:
        bind(faulty)(torch.ones(3))
    notes = " ".join(getattr(caught.value, "__notes__", []))
    assert "user's own words" in str(caught.value)
    assert "faulty (n)->()" in str(caught.value) + notes


def test_a_host_op_may_name_a_host_op_as_its_vjp():
    @define("(),()->()", host=True)
    def slope(xp, ct, x):
        return 100 * ct * np.cos(x)

    op = sample_ops.host_sin(second=False)
    op.def_vjp(slope)
    f = bind(op)
    close(grad(f)(tensor(0.3)), 100 * tensor(0.3).cos())
    close(vmap(grad(f))(tensor([0.3, 1.0])), 100 * tensor([0.3, 1.0]).cos())


def test_float32_stays_float32_through_a_host_function_that_computes_in_float64():
    @define("()->()", host=True)
    def wide(xp, x):
        return x.astype(np.float64) * 2

    wide.def_vjp(lambda xp, ct, out, x: ct.astype(np.float64) * 2)
    wide.def_jvp(lambda xp, t, out, x: t[0].astype(np.float64) * 2)
    f = bind(wide)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        x = torch.ones((), dtype=dtype)
        assert {f(x).dtype, grad(f)(x).dtype, jvp(f, (x,), (x,))[1].dtype} == {dtype}


@pytest.mark.compile
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("kind", "backend"),
    [("array", "aot_eager"), ("host", "eager")]
    + [
        pytest.param(*p, marks=pytest.mark.slow)
        for p in (("array", "eager"), ("host", "aot_eager"))
    ],
)
def test_changing_batch_sizes_never_give_a_wrong_result(kind, backend, dynamic):
    f = bind(sample_ops.affine())
    if kind == "host":
        energy = bind(sample_ops.host_energy()[0])
        f = lambda x, s, b: energy(x, s) * x[..., 0] + b  # noqa: E731
    reference = (
        (lambda x, s, b: x * s[..., None] + b)
        if kind == "array"
        else (lambda x, s, b: (x * x).sum(-1) * s * x[..., 0] + b)
    )
    b = tensor(0.5)

    def run(f, x, s):
        return grad(lambda x, s: f(x, s, b).sum(), (0, 1))(x, s)

    g = compiled(lambda x, s: run(f, x, s), backend, dynamic=dynamic)
    for n, m in ((2, 3), (5, 3), (4, 4), (1, 3), (7, 1)):
        x, s = torch.randn(n, m).double(), torch.randn(n).double()
        close(g(x, s), run(reference, x, s))


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_as_array_arguments_may_change_between_compiled_calls(backend):
    f = bind(sample_ops.multiply())
    g = compiled(lambda x, p: grad(lambda x: f(x, p))(x), backend)
    x = tensor(3.0)
    assert [float(g(x, p)) for p in (1.0, 2.0, 3.5, 2.0)] == [1, 2, 3.5, 2]
    assert [float(g(x, p)) for p in (1, 2, 3, 2)] == [1, 2, 3, 2]


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0, 2.0, 2.5), (1, 2, 3, 2)])
@pytest.mark.parametrize("mode", ["call", "grad"])
def test_static_parameters_may_change_between_compiled_calls(mode, values, backend):
    f = bind(sample_ops.power())
    x = tensor(3.0)
    if mode == "call":
        g, right = (lambda x, p: f(x, p=p)), [3.0**p for p in values]
    else:
        g = lambda x, p: grad(lambda x: f(x, p=p))(x)  # noqa: E731
        right = [p * 3.0 ** (p - 1) for p in values]
    h = compiled(g, backend)
    assert [float(h(x, p)) for p in values] == pytest.approx(right)


def gammaln(rule=True):
    @define("()->()", host=True)
    def gammaln(xp, x):
        return scipy.special.gammaln(x)

    if rule:
        gammaln.def_vjp(lambda xp, ct, out, x: 100 * ct * scipy.special.digamma(x))
    return gammaln


def test_r76_a_host_function_without_a_rule_raises_next_to_another_path():
    """rdyro/torch2jax#1"""
    u = torch.tensor(2.5, requires_grad=True)
    with pytest.raises(MissingRuleError, match=r"gammaln \(\)->\(\).*def_vjp"):
        (bind(gammaln(rule=False))(u) + u**2).backward()
    with pytest.raises(MissingRuleError, match="gammaln"):
        jvp(bind(gammaln(rule=False)), (u.detach(),), (u.detach(),))


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_r78_a_scipy_op_compiles_in_one_graph_with_its_rule(backend):
    """pytorch/pytorch#160757"""
    f = bind(gammaln())
    t = torch.tensor([2.5, 1.0], requires_grad=True)
    torch.compile(lambda q: (f(q * 1.0) * 2).sum(), backend=backend, fullgraph=True)(t).backward()
    right = 200 * scipy.special.digamma([2.5, 1.0])
    np.testing.assert_allclose(t.grad.numpy(), right, rtol=1e-6)
