"""What is not used adds nothing: a zero cotangent or tangent wins over an infinite derivative."""

import functools
import importlib

import numpy as np
import pytest

from tests.closeness import as_numpy
from twingrad.interop import (
    complex_step,
    finite_difference,
    from_jacobian,
    from_numpy,
    gaussian_smoothing,
    spsa,
)

each_side = pytest.mark.parametrize("framework", ["torch", "jax"])
each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of infinities
WAYS = {
    "differences": finite_difference,
    "complex step": complex_step,
    "a step": functools.partial(finite_difference, step=1e-5),
    "a noise": functools.partial(finite_difference, noise=1e-16),
    "spsa": functools.partial(spsa, step=1e-5, directions=4),
    "smoothing": functools.partial(gaussian_smoothing, sigma=1e-4, directions=4),
}
SEEDED = ("spsa", "smoothing")
each_way = pytest.mark.parametrize("way", WAYS)


def side_of(framework):
    pytest.importorskip(framework)
    return importlib.import_module(f"tests.side_{framework}")


def bound(side, way, f, signature):
    """The op as a function of its arrays, without the seed that some have."""
    g = side.function(WAYS[way](f, signature=signature))
    if way not in SEEDED:
        return g
    return lambda *x: g(*x, side.array(np.array(5)))


def arrays(side, dtype, *values):
    return tuple(side.cast(side.array(np.array(x, float)), dtype) for x in values)


def decay(a, b):
    """a^2 + exp(-b)"""
    return a * a + np.exp(-b)


@each_side
@each_dtype
@each_way
def test_an_infinite_input_cannot_be_moved_and_leaves_the_others_alone(framework, dtype, way):
    side = side_of(framework)
    f = bound(side, way, decay, "(),()->()")
    a, b = arrays(side, dtype, [3, 3, 2, 1.5], [np.inf, 1.0, -np.inf, np.inf])
    one, none = side.LIB.ones_like(a), 0 * a
    by_a, by_b = map(as_numpy, side.REFERENCE_REVERSE(f, one, (a, b)))
    along_a = as_numpy(side.jvp(f, (a, b), (one, none))[1])
    along_b = as_numpy(side.jvp(f, (a, b), (none, one))[1])
    assert by_b[0] == by_b[3] == along_b[0] == along_b[3] == 0
    close = functools.partial(np.testing.assert_allclose, rtol=1e-3 if way == "a noise" else 1e-6)
    close(by_a[[0, 3]], along_a[[0, 3]])
    if way != "smoothing":  # a mean over a few normal directions
        close(by_a[[0, 3]], [6, 3])
    if way not in SEEDED:  # whose directions mix the inputs that can be moved
        for by_both, right in (
            (by_a, 6),
            (along_a, 6),
            (by_b, -np.exp(-1)),
            (along_b, -np.exp(-1)),
        ):
            close(by_both[1], right)
    assert np.isfinite(by_a[1]) and np.isfinite(by_b[1])
    assert not np.isfinite(by_b[2])  # where the value is infinite
    assert np.isnan(by_a[2]) or (way == "complex step" and by_a[2] == 4)


def nan_below_0(x):
    """(2)->(2): x_0, NaN where that is negative, and x_1^2"""
    first = np.where(x[:, 0].real < 0, x[:, 0] * np.nan, x[:, 0])
    return np.stack([first, x[:, 1] ** 2], -1)


@each_side
@each_dtype
@each_way
def test_an_output_that_nobody_used_adds_nothing(framework, dtype, way):
    side = side_of(framework)
    f = bound(side, way, nan_below_0, "(2)->(2)")
    x, ct = arrays(side, dtype, [[-1, 3], [1, 3]], [[0, 1], [0, 1]])
    found = as_numpy(side.REFERENCE_REVERSE(f, ct, (x,))[0])
    assert np.isfinite(found).all()
    if way not in SEEDED:
        np.testing.assert_allclose(found, [[0, 6], [0, 6]], rtol=1e-4)
    none = as_numpy(side.jvp(f, (x,), (0 * x,))[1])
    np.testing.assert_array_equal(none, np.zeros((2, 2)))


def root(x, w):
    """(2),()->(2): w sqrt(x)"""
    return np.sqrt(x) * w


def root_jac(x, w):
    return np.diag(w / 2 / np.sqrt(x)), np.sqrt(x)


def root_vjp(ct, x, w):
    return np.where(ct == 0, 0, ct * w[:, None] / 2 / np.sqrt(x)), (ct * np.sqrt(x)).sum(-1)


ROOTS = {
    "from_jacobian": lambda: from_jacobian(root, root_jac, signature="(2),()->(2)"),
    "by rows": lambda: from_numpy(root, signature="(2),()->(2)", vjp=root_vjp),
}


@each_side
@each_dtype
@pytest.mark.parametrize("form", ROOTS)
def test_an_infinite_jacobian_counts_only_where_it_is_asked_for(framework, dtype, form):
    side, op = side_of(framework), ROOTS[form]()
    if form == "by rows":
        op.def_jvp_by_rows()
    f = side.function(op)
    x, w, ct = arrays(side, dtype, [[0, 4.0], [1, 4]], [2.0, 2], [[0, 1.0], [1, 1]])
    by_x, by_w = map(as_numpy, side.REFERENCE_REVERSE(f, ct, (x, w)))
    np.testing.assert_allclose(by_x, [[0, 0.5], [1, 0.5]])
    np.testing.assert_allclose(by_w, [2, 3])
    found = as_numpy(side.jvp(f, (x, w), (ct, 0 * w))[1])
    np.testing.assert_allclose(found, [[0, 0.5], [1, 0.5]])
    assert as_numpy(side.jvp(f, (x, w), (0 * x + 1, 0 * w))[1])[0, 0] == np.inf
    all_used = as_numpy(side.REFERENCE_REVERSE(f, 0 * ct + 1, (x, w))[0])
    assert all_used[0, 0] == np.inf and np.isfinite(all_used[1]).all()


@each_side
def test_a_zero_cotangent_is_not_a_constant_one(framework):
    """The derivative of J^T ct in ct is J, infinite or not, at ct = 0 too."""
    side = side_of(framework)
    f = side.function(
        from_jacobian(
            lambda x: -np.sqrt(x).sum(),
            lambda x: -0.5 / np.sqrt(x),
            hess=lambda x: np.diag(0.25 * x**-1.5),
            signature="(n)->()",
            name="roots",
        )
    )
    x, zero = side.array(np.array([0.0, 4.0])), side.array(np.array(0.0))
    pull = lambda ct: side.grad(side.weighted(f, ct))(x)  # noqa: E731
    assert as_numpy(pull(zero)).tolist() == [0, 0]
    for jacobian in (side.jacfwd, side.jacrev):
        found = as_numpy(side.once(jacobian(pull))(zero))
        assert found[0] == -np.inf and found[1] == -0.25
    for jacobian in (side.jacfwd, side.jacrev):  # the zero wins in the second derivative, too
        second = as_numpy(side.once(jacobian(side.grad(lambda x: zero * f(x))))(x))
        np.testing.assert_array_equal(second, np.zeros((2, 2)))
