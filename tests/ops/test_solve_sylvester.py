"""What only `solve_sylvester` has: how often it takes matrices apart, complex ones, its errors.

The reference is the equation as one dense system, which each framework solves itself.
"""

import importlib
import sys
from functools import partial

import mpmath
import numpy as np
import pytest
import scipy.linalg

from tests.closeness import assert_close
from twingrad import ops
from twingrad.interop import SingularError
from twingrad.interop.numpy import bind
from twingrad.ops.solve_sylvester import FORMS

MODULE = sys.modules["twingrad.ops.solve_sylvester"]
LABEL = "solve_sylvester (m,m),(n,n),(m,n)->(m,n)"
solve = bind(ops.solve_sylvester)


@pytest.fixture(params=["torch", "jax"])
def side(request):
    pytest.importorskip(request.param)
    return importlib.import_module(f"tests.side_{request.param}")


@pytest.fixture
def taken_apart(monkeypatch):
    """The shapes of the matrices whose Schur form is computed from here on."""
    shapes, right = [], MODULE.schur

    def noted(matrix, **how):
        shapes.append(matrix.shape)
        return right(matrix, **how)

    FORMS.clear()
    monkeypatch.setattr(MODULE, "schur", noted)
    return shapes


def equation(m=3, n=2, seed=0, batch=(), kinds="fff"):
    """A and B with rotations in them: their real Schur forms are not triangular."""
    rng = np.random.default_rng(seed)
    found = []
    for kind, shape in zip(kinds, ((m, m), (n, n), (m, n)), strict=True):
        x = rng.uniform(-1, 1, (*batch, *shape))
        if kind == "c":
            x = x + 1j * rng.uniform(-1, 1, x.shape)
        found.append(x + 3 * np.eye(*shape) if len(found) < 2 else x)
    return found


def test_real_schur_forms_with_blocks_are_met():
    forms = [scipy.linalg.schur(equation(seed=seed)[0])[0] for seed in range(5)]
    assert any(np.diag(form, -1).any() for form in forms)


def test_each_matrix_is_taken_apart_once(side, taken_apart):
    """For a hundred right sides, their gradients and a second derivative."""
    A, B, _ = map(side.array, equation())
    C = side.array(np.random.default_rng(1).uniform(-1, 1, (100, 3, 2)))
    f = side.function(ops.solve_sylvester)

    def loss(A, B, C):
        return side.LIB.sum(f(A, B, C) ** 2)

    gradient = side.grad(loss, argnums=(0, 1, 2))
    dims = (None, None, 0)
    found = side.numpy(side.vmap(f, dims)(A, B, C))
    for X, right in zip(found, side.numpy(C), strict=True):
        assert_close(side.numpy(A) @ X + X @ side.numpy(B), right, rtol=1e-12)
    side.numpy(side.once(side.vmap(gradient, dims))(A, B, C)[0])
    x = A, B, C[0]
    side.numpy(side.once(lambda *x: side.jvp(gradient, x, x)[1])(*x)[0])
    assert sorted(taken_apart) == [(2, 2), (3, 3)]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("kinds", ["fff", "cff", "fcf", "ffc", "ccc"])
def test_real_and_complex_agree_with_one_dense_system_to_second_order(side, kinds, transpose):
    raw = equation(kinds=kinds)
    bound = importlib.import_module(f"twingrad.interop.{side.NAME}").bind(ops.solve_sylvester)
    left, right = side.array(np.eye(3)), side.array(np.eye(2))

    def theirs(A, B, C):
        if transpose:
            A, B = A.T, B.T
        rows = A[:, None, :, None] * right[None, :, None, :]
        columns = left[:, None, :, None] * B.T[None, :, None, :]
        matrix = (rows + columns + 0 * C[0, 0]).reshape(6, 6)
        c = (C + 0 * A[0, 0] + 0 * B[0, 0]).reshape(6, 1)
        return side.LIB.solve(matrix, c).reshape(3, 2)

    def ours(A, B, C):
        return bound(A, B, C, transpose=transpose)

    x = tuple(map(side.array, raw))
    t = tuple(side.array(v * (2 + i)) for i, v in enumerate(raw))
    weights = side.array(np.random.default_rng(2).uniform(-1, 1, (3, 2)))

    def everything(f, x, t):
        def loss(*x):
            y = f(*x)
            return side.LIB.sum(weights * (y * y + y).real)

        grad = side.grad(loss, argnums=(0, 1, 2))
        return (f(*x), side.jvp(f, x, t)[1], *grad(*x), *side.jvp(grad, x, t)[1])

    found = (side.once(partial(everything, f))(x, t) for f in (ours, theirs))
    for got, want in zip(*found, strict=True):
        assert got.dtype == want.dtype
        assert_close(side.numpy(1 * got), side.numpy(1 * want))  # 1 * resolves conjugates


def test_it_is_scipys_solution():
    A, B, C = equation(40, 30)
    assert_close(solve(A, B, C), scipy.linalg.solve_sylvester(A, B, C))


def test_lyapunovs_equation_is_one_call(side):
    """A X + X A^T = C, and its gradient in A through both places."""
    A, _, _ = equation()
    C = np.eye(3)
    f = side.function(ops.solve_sylvester)
    A, C = side.array(A), side.array(C)
    grad = side.grad(lambda A: side.LIB.sum(f(A, A.T, C)))
    got, h, E = side.numpy(grad(A)), 1e-6, np.zeros((3, 3))
    E[0, 1] = h
    plus, minus = (
        scipy.linalg.solve_continuous_lyapunov(side.numpy(A) + s * E, np.eye(3)).sum()
        for s in (1, -1)
    )
    assert abs(got[0, 1] - (plus - minus) / (2 * h)) < 1e-8


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("shift", [0.0, 1e-17], ids=["equal", "equal up to rounding"])
def test_a_common_eigenvalue_raises_and_names_the_sample(framework, shift):
    """In JAX the message is inside the error of the callback."""
    pytest.importorskip(framework)
    A, B, C = equation(batch=(2,))
    A[1], B[1] = np.diag([1.0, 2.0, 3.0]), np.array([[-2.0 - shift, 1.0], [0.0, 5.0]])
    f = importlib.import_module(f"twingrad.interop.{framework}").bind(ops.solve_sylvester)
    args = [A, B, C]
    if framework != "numpy":
        args = map(importlib.import_module(f"tests.side_{framework}").array, args)
    with pytest.raises(Exception if framework == "jax" else SingularError) as caught:
        np.asarray(f(*args))
    message = f"{LABEL}: A and -B of sample 1 have an eigenvalue in common, up to rounding"
    assert message in str(caught.value)


GRADED = {
    "small": (np.array([[1e-300]]), np.array([[1e-300]])),
    "huge": (np.array([[3e300]]), np.array([[5e300]])),
    "graded": (np.diag(10.0 ** np.arange(-8, 9, 4)), np.diag(10.0 ** np.arange(-8, 9, 8))),
    "graded with one side": (np.diag(10.0 ** np.arange(-8, 9, 4)), np.array([[1e-9]])),
    "coupled": (np.array([[1e-9, 1e-3], [0.0, 1e9]]), np.array([[1e-9, 0.0], [1e-4, 1e8]])),
    "many and small": (1e-300 * np.eye(40), 1e-300 * np.eye(30)),
}


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("name", GRADED)
def test_eigenvalues_of_all_sizes_are_no_singularity(name, transpose):
    """In exact arithmetic, entry by entry."""
    A, B = GRADED[name]
    C = np.random.default_rng(1).uniform(-1, 1, (len(A), len(B)))
    found = solve(A, B, C, transpose=transpose)
    if name == "many and small":
        np.testing.assert_allclose(found, C / 2e-300, rtol=1e-14)
        return
    left, right = (A.T, B.T) if transpose else (A, B)
    with mpmath.workdps(60):
        K = mpmath.matrix(np.kron(left, np.eye(len(B))).tolist())
        K += mpmath.matrix(np.kron(np.eye(len(A)), right.T).tolist())
        want = mpmath.lu_solve(K, mpmath.matrix(C.ravel().tolist()))
        want = np.array([float(x) for x in want]).reshape(C.shape)
    np.testing.assert_allclose(found, want, rtol=1e-12)


def test_an_eigenvalue_that_is_0_up_to_rounding_is_still_singular():
    """A dense matrix: its small eigenvalue is noise."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    A = q @ np.diag([1e6, 1e3, 1.0, 1e-12]) @ q.T
    with pytest.raises(SingularError):
        solve(A, np.array([[0.0]]), np.ones((4, 1)))


def test_what_is_not_finite_gives_nan_in_its_sample_alone():
    A, B, C = equation(batch=(4,))
    want = solve(A, B, C)
    A[1, 0, 0], B[2, 0, 0], C[3, 0, 0] = np.nan, np.inf, np.nan
    found = solve(A, B, C)
    assert np.isnan(found[1:]).all()
    np.testing.assert_array_equal(found[0], want[0])


def test_sizes_of_0_are_ordinary():
    assert solve(*equation(0, 2)).shape == (0, 2)
    assert solve(*equation(3, 0)).shape == (3, 0)
    assert solve(*equation(batch=(0,))).shape == (0, 3, 2)
