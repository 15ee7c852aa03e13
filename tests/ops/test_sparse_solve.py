"""What only `sparse_solve` has: how often it factorises, hard matrices, its own errors.

References are dense: NumPy's inverse in the closed form, and each framework's own solver.
"""

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from tests.closeness import assert_close
from twingrad import ops
from twingrad.interop import ArgumentError, OutOfRangeError, SingularError
from twingrad.interop.numpy import bind
from twingrad.ops.sparse_solve import FACTORS

MODULE = sys.modules["twingrad.ops.sparse_solve"]
LABEL = "sparse_solve (z),(z),(z),(n)->(n)"
solve = bind(ops.sparse_solve)


@pytest.fixture(params=["torch", "jax"])
def side(request):
    pytest.importorskip(request.param)
    return importlib.import_module(f"tests.side_{request.param}")


@pytest.fixture
def factorised(monkeypatch):
    """The shapes of the matrices that SuperLU factorises from here on."""
    shapes, right = [], MODULE.splu

    def noted(matrix):
        shapes.append(matrix.shape)
        return right(matrix)

    FACTORS.clear()
    monkeypatch.setattr(MODULE, "splu", noted)
    return shapes


def system(n=12, seed=0, batch=(), kinds="ff"):
    """An unsymmetric system whose diagonal dominates and is stored in two parts."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([np.arange(n), np.arange(n), rng.integers(0, n, 3 * n)])
    cols = np.concatenate([np.arange(n), np.arange(n), rng.integers(0, n, 3 * n)])
    values = rng.uniform(-1, 1, (*batch, 5 * n)).astype(complex)
    values[..., : 2 * n] += 5
    b = rng.uniform(-1, 1, (*batch, n)).astype(complex)
    for x, kind in zip((values, b), kinds, strict=True):
        if kind == "c":
            x += 1j * rng.uniform(-1, 1, x.shape)
    values, b = (x if k == "c" else x.real for x, k in zip((values, b), kinds, strict=True))
    return values, rows, cols, b


def dense(values, rows, cols, b, transpose=False):
    A = np.zeros((b.shape[-1],) * 2, values.dtype)
    np.add.at(A, (rows, cols), values)
    return A.T if transpose else A


def gradients(values, rows, cols, b, ct):
    """The closed form, from a dense inverse."""
    inverse = np.linalg.inv(dense(values, rows, cols, b))
    x, b_bar = inverse @ b, inverse.T @ ct
    return -b_bar[rows] * x[cols], b_bar


def bound(side, raw, **static):
    """The op as a function of values and b, its indices held fixed."""
    rows, cols = map(side.array, raw[1:3])
    f = importlib.import_module(f"twingrad.interop.{side.NAME}").bind(ops.sparse_solve)
    return lambda values, b: f(values, rows, cols, b, **static)


def test_one_factorisation_serves_every_right_side_gradient_and_order(side, factorised):
    raw = system()
    f, values = bound(side, raw), side.array(raw[0])
    b = side.array(np.random.default_rng(1).uniform(-1, 1, (100, 12)))

    def loss(values, b):
        return side.LIB.sum(f(values, b) ** 2)

    def product(values, b):
        grad = side.grad(loss, argnums=(0, 1))
        return side.jvp(grad, (values, b), (values, b))[1]

    found = side.numpy(side.vmap(f, (None, 0))(values, b))
    for x, right in zip(found, side.numpy(b), strict=True):
        assert_close(dense(*raw) @ x, right, rtol=1e-12)
    side.numpy(f(values, b))
    for transformed in (side.grad(loss), side.vmap(side.grad(loss, argnums=(0, 1)), (None, 0))):
        side.numpy(side.once(transformed)(values, b)[0])
    side.numpy(side.once(product)(values, b[0])[0])
    assert factorised == [(12, 12)]


def test_each_matrix_of_a_batch_is_factorised_once(side, factorised):
    values, rows, cols, b = system(batch=(5,))
    many = np.random.default_rng(1).uniform(-1, 1, (4, 1, 12))
    f = bound(side, (values, rows, cols, b))
    found = side.numpy(f(side.array(values), side.array(many)))
    for i, j in np.ndindex(4, 5):
        assert_close(dense(values[j], rows, cols, b) @ found[i, j], many[i, 0], rtol=1e-12)
    assert len(factorised) == 5


def test_threads_factorise_a_matrix_once(side, factorised):
    raw = system(60)
    f, values, b = bound(side, raw), side.array(raw[0]), side.array(raw[3])
    want = np.linalg.solve(dense(*raw), raw[3])
    with ThreadPoolExecutor(8) as pool:
        for x in pool.map(lambda _: side.numpy(f(values, b)), range(32)):
            assert_close(x, want)
    assert len(factorised) == 1


def test_a_batch_with_more_matrices_than_are_kept_is_right(side):
    values, rows, cols, b = system(4, batch=(FACTORS.size + 72,))
    f = bound(side, (values, rows, cols, b))
    total = side.grad(lambda v, b: side.LIB.sum(f(v, b)), argnums=(0, 1))
    found = [side.numpy(g) for g in total(side.array(values), side.array(b))]
    assert len(FACTORS) <= FACTORS.size
    for i in range(0, len(b), 40):
        want = gradients(values[i], rows, cols, b[i], np.ones(4))
        for g, w in zip(found, want, strict=True):
            assert_close(g[i], w)


def test_structures_are_batched_like_values(side):
    """Another sparsity pattern in each sample; integers of any width."""
    batch = [system(5, seed) for seed in range(3)]
    values, rows, cols, b = (np.stack(x) for x in zip(*batch, strict=True))
    f = importlib.import_module(f"twingrad.interop.{side.NAME}").bind(ops.sparse_solve)

    def loss(values, rows, cols, b):
        return side.LIB.sum(f(values, rows, cols, b))

    for dims in ((0, 0, 0, 0), (0, 0, 0, None), (None, 0, 0, 0)):
        raw = (values, rows.astype("int32"), cols.astype("uint8"), b)
        x = [side.array(v[0] if d is None else v) for v, d in zip(raw, dims, strict=True)]
        found = side.vmap(side.grad(loss, argnums=(0, 3)), dims)(*x)
        for i, (v, r, c, _) in enumerate(batch):
            v, right = v if dims[0] == 0 else values[0], b[i] if dims[3] == 0 else b[0]
            want = gradients(v, r, c, right, np.ones(5))
            for g, w in zip(found, want, strict=True):
                assert_close(side.numpy(g)[i], w)


def test_an_entry_in_two_parts_has_the_gradient_of_the_sum(side):
    raw = system()
    f = bound(side, raw)
    grad = side.grad(lambda v, b: side.LIB.sum(f(v, b)), argnums=(0, 1))
    found = [side.numpy(g) for g in grad(side.array(raw[0]), side.array(raw[3]))]
    np.testing.assert_array_equal(found[0][:12], found[0][12:24])
    for g, w in zip(found, gradients(*raw, np.ones(12)), strict=True):
        assert_close(g, w)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kinds", ["ff", "cf", "fc", "cc"])
def test_real_and_complex_agree_with_the_dense_solver_to_second_order(side, kinds, transpose):
    raw = system(5, kinds=kinds)
    ours, rows, cols = bound(side, raw, transpose=transpose), *raw[1:3]
    selected = np.zeros((5, 5, len(rows)))
    np.add.at(selected, (rows, cols, np.arange(len(rows))), 1.0)
    selected = side.array(selected.transpose(1, 0, 2) if transpose else selected)

    def theirs(values, b):
        entries = side.LIB.sum(selected * values, -1) + 0 * b  # both of one dtype
        return side.LIB.solve(entries, (b + 0 * values[:5])[:, None])[:, 0]

    weights = side.array(np.random.default_rng(2).uniform(-1, 1, 5))
    x, t = (side.array(raw[0]), side.array(raw[3])), (side.array(raw[0]), side.array(raw[3] * 2))

    def everything(f, x, t):
        def loss(*x):
            y = f(*x)
            return side.LIB.sum(weights * (y * y + y).real)

        grad = side.grad(loss, argnums=(0, 1))
        return (f(*x), side.jvp(f, x, t)[1], *grad(*x), *side.jvp(grad, x, t)[1])

    found = (side.once(partial(everything, f))(x, t) for f in (ours, theirs))
    for got, want in zip(*found, strict=True):
        assert got.dtype == want.dtype
        assert_close(side.numpy(1 * got), side.numpy(1 * want))  # 1 * resolves conjugates


def test_a_condition_of_1e12_loses_12_digits_and_no_more(side):
    n = 20
    rows, cols = np.r_[0:n, 0 : n - 1], np.r_[0:n, 1:n]
    values = np.r_[np.logspace(0, -12, n), np.full(n - 1, 1e-13)]
    b, ct = np.random.default_rng(0).uniform(0.5, 1.5, (2, n))
    raw = values, rows, cols, b
    A = dense(*raw)
    assert np.linalg.cond(A) > 1e11
    f = bound(side, raw)
    x = side.numpy(f(side.array(values), side.array(b)))
    grad = side.grad(side.weighted(f, side.array(ct)), argnums=(0, 1))
    values_bar, b_bar = (side.numpy(g) for g in grad(side.array(values), side.array(b)))
    for matrix, y, right in ((A, x, b), (A.T, b_bar, ct)):
        size = np.abs(matrix) @ np.abs(y) + np.abs(right)
        assert np.all(np.abs(matrix @ y - right) <= 1e-15 * n * size)
    np.testing.assert_allclose(values_bar, -b_bar[rows] * x[cols], rtol=1e-15)


def test_float32_is_solved_in_float64(side):
    raw = [x.astype("float32") if x.dtype.kind == "f" else x for x in system()]
    raw[0][:24] *= np.repeat(np.logspace(0, 5, 12), 2).astype("float32")
    got = bound(side, raw)(side.array(raw[0]), side.array(raw[3]))
    want = solve(raw[0].astype(float), *raw[1:3], raw[3].astype(float))
    np.testing.assert_array_equal(side.numpy(got), want.astype("float32"))


def test_what_is_not_finite_gives_nan_in_its_sample_alone():
    values, rows, cols, b = system(batch=(3,))
    want = solve(values, rows, cols, b)
    values[1, 0], b[2, :] = np.inf, np.nan
    found = solve(values, rows, cols, b)
    assert np.isnan(found[1:]).all()
    np.testing.assert_array_equal(found[0], want[0])


def test_sizes_of_0_are_ordinary():
    none = np.zeros(0, int)
    assert solve(np.zeros(0), none, none, np.zeros(0)).shape == (0,)
    assert solve(*system(batch=(0,))).shape == (0, 12)


def _bad():
    values, rows, cols, b = system(3, batch=(2,))
    zero, whole = values.copy(), f"{LABEL}: the matrix of sample 1 is singular"
    zero[1] = 0.0
    beyond, below = rows.copy(), cols.copy()
    beyond[4], below[2] = 3, -1
    return {
        "all zero": (SingularError, (zero, rows, cols, b), whole),
        "an empty column": (
            SingularError,
            (values, rows, np.minimum(cols, 1), b),
            f"{LABEL}: the matrix of sample 0 is singular",
        ),
        "too large": (
            OutOfRangeError,
            (values, beyond, cols, b),
            f"{LABEL}: rows[4] is 3 in sample 0; expected 0 to 2",
        ),
        "negative": (
            OutOfRangeError,
            (values, rows, below, b),
            f"{LABEL}: cols[2] is -1 in sample 0; expected 0 to 2",
        ),
        "no integers": (
            ArgumentError,
            (values, rows, cols + 0.0, b),
            f"{LABEL}: cols has dtype float64; expected integers",
        ),
    }


@pytest.mark.parametrize("name", _bad())
@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_bad_systems_are_explained(framework, name):
    """In JAX the message is inside the error of the callback."""
    pytest.importorskip(framework)
    error, args, message = _bad()[name]
    f = importlib.import_module(f"twingrad.interop.{framework}").bind(ops.sparse_solve)
    if framework != "numpy":
        args = map(importlib.import_module(f"tests.side_{framework}").array, args)
    with pytest.raises(Exception if framework == "jax" else error) as caught:
        np.asarray(f(*args))
    assert message in str(caught.value)


def test_the_errors_are_those_that_a_caller_would_expect():
    assert issubclass(SingularError, np.linalg.LinAlgError)
    assert issubclass(OutOfRangeError, IndexError)
