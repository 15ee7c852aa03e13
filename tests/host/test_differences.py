"""Ops from functions without an adjoint: differences, complex steps, random directions."""

import functools
import importlib

import numpy as np
import pytest
import scipy.optimize

from tests.closeness import as_numpy
from twingrad.interop import (
    ArgumentError,
    Host,
    MissingRuleError,
    RuleError,
    complex_step,
    finite_difference,
    gaussian_smoothing,
    spsa,
)
from twingrad.interop.numpy import bind

each_side = pytest.mark.parametrize("framework", ["torch", "jax"])
WAYS = {"differences": finite_difference, "complex step": complex_step}
each_way = pytest.mark.parametrize("way", WAYS)
RTOL = {"differences": 1e-7, "complex step": 1e-13}


def side_of(framework):
    pytest.importorskip(framework)
    return importlib.import_module(f"tests.side_{framework}")


class Counted:
    def __init__(self, function):
        self.function, self.sizes = function, []
        functools.update_wrapper(self, function)

    def __call__(self, *args):
        self.sizes.append(max(map(len, args)))
        return self.function(*args)


def rosen(x):
    """sum of (1 - x_i)^2 + 100 (x_{i+1} - x_i^2)^2"""
    return ((1 - x[:, :-1]) ** 2 + 100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2).sum(-1)


def waves(a, k, b):
    """(2),(),(3)->(3): sin(a_0 b_j) k and a_1 b_j^2; k is an integer."""
    return np.sin(a[:, :1] * b) * k[:, None] + a[:, 1:] * b**2


def waves_jacobians(a, k, b):
    by_a = np.stack([b * np.cos(a[0] * b) * k, b**2], -1)
    return by_a, np.diag(a[0] * np.cos(a[0] * b) * k + 2 * a[1] * b)


X = np.random.default_rng(0).uniform(-1, 1, (5, 64))


@each_side
@each_way
def test_a_batch_of_gradients_is_one_call(framework, way):
    side, f = side_of(framework), Counted(rosen)
    g = side.function(WAYS[way](f, signature="(n)->()"))
    want = np.stack([scipy.optimize.rosen_der(x) for x in X])
    f.sizes.clear()
    got = as_numpy(side.vmap(side.grad(g))(side.array(X)))
    points = 5 * 64 * (2 if way == "differences" else 1)
    assert sorted(f.sizes) in ([points], [5, points])
    np.testing.assert_allclose(got, want, rtol=RTOL[way], atol=1e3 * RTOL[way])
    f.sizes.clear()
    t = np.ones_like(X)
    tangent = as_numpy(side.jvp(g, (side.array(X),), (side.array(t),))[1])
    assert max(f.sizes) == 5 * (2 if way == "differences" else 1)
    np.testing.assert_allclose(tangent, want.sum(-1), rtol=RTOL[way], atol=1e4 * RTOL[way])


@each_side
@each_way
def test_several_inputs_one_of_them_an_integer_and_a_vector_of_outputs(framework, way):
    side = side_of(framework)
    g = side.function(WAYS[way](waves, signature="(2),(),(3)->(3)"))
    raw = np.array([0.7, -0.3]), np.array(2), np.array([0.5, 1.0, -1.5])
    x = tuple(map(side.array, raw))
    for jacobian in (side.jacrev, side.jacfwd):
        found = side.once(lambda a, b, j=jacobian: j(lambda a, b: g(a, x[1], b), (0, 1))(a, b))(
            x[0], x[2]
        )
        for got, want in zip(found, waves_jacobians(*raw), strict=True):
            np.testing.assert_allclose(as_numpy(got), want, rtol=10 * RTOL[way], atol=1e-9)


@each_side
@each_way
def test_zero_tangents_float32_and_one_sample_functions(framework, way):
    side = side_of(framework)
    one = lambda x: (x**3).sum()  # noqa: E731
    g = side.function(WAYS[way](one, signature="(n)->()", host=Host(vectorize=True), name="cubes"))
    x = side.array(np.array([[1.0, 2.0]], np.float32))
    zero = side.jvp(g, (x,), (0 * x,))[1]
    assert as_numpy(zero).tolist() == [0] and side.dtype_of(zero) == "float32"
    np.testing.assert_allclose(as_numpy(side.vmap(side.grad(g))(x)), [[3, 12]], rtol=1e-6)


@each_side
@each_way
def test_a_second_derivative_raises(framework, way):
    side = side_of(framework)
    g = side.function(WAYS[way](rosen, signature="(n)->()"))
    for outer in (side.jacrev, side.jacfwd):
        for inner in (side.grad, side.jacfwd):
            with pytest.raises(MissingRuleError, match="rosen"):
                side.once(outer(inner(g)))(side.array(X[0, :3]))


@pytest.mark.compile
@each_way
def test_it_compiles_in_one_graph(way):
    torch = pytest.importorskip("torch")
    side = side_of("torch")
    g = side.function(WAYS[way](rosen, signature="(n)->()"))
    compiled = side.compiler("eager")(torch.func.vmap(torch.func.grad(g)))
    want = np.stack([scipy.optimize.rosen_der(x) for x in X])
    np.testing.assert_allclose(compiled(side.array(X)).numpy(), want, rtol=1e-6, atol=1e-4)


def error_with(step=None, noise=None, sigma=1e-4):
    """The error of a difference for values with noise of standard deviation sigma, rms."""
    rng = np.random.default_rng(1)
    noisy = lambda x: np.exp(x) + sigma * rng.standard_normal(len(x))  # noqa: E731
    f = bind(finite_difference(noisy, signature="()->()", step=step, noise=noise))
    x = np.full(4000, 0.1)
    return np.sqrt(np.mean((f.vjp(np.ones(4000), x)[0] - np.exp(0.1)) ** 2))


def test_the_step_for_a_noise_is_close_to_the_best_one():
    best = error_with(noise=1e-4)
    h = (3e-4) ** (1 / 3)
    assert best == pytest.approx(np.hypot(h**2 / 6 * np.exp(0.1), 1e-4 / h / np.sqrt(2)), rel=0.1)
    assert error_with(step=10 * h) > 10 * best and error_with(step=h / 10) > 5 * best


def estimates(op, x, count):
    """Gradient estimates for so many seeds, (count, n)."""
    f = bind(op)
    ones = np.ones(count)
    return f.vjp(ones, np.broadcast_to(x, (count, len(x))), np.arange(count))[0]


POINT = np.random.default_rng(3).uniform(-1, 1, 6)


@pytest.mark.parametrize("kind", ["spsa", "gaussian_smoothing"])
def test_estimates_are_unbiased(kind):
    if kind == "spsa":
        op, right = spsa(rosen, signature="(n)->()", step=1e-4), scipy.optimize.rosen_der(POINT)
    else:
        sigma = 0.1
        op = gaussian_smoothing(rosen, signature="(n)->()", sigma=sigma, directions=1)
        right = scipy.optimize.rosen_der(POINT) + sigma**2 * _smoothing(POINT)
    found = estimates(op, POINT, 40_000)
    error = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - right) < 4.5 * error)
    assert not np.allclose(found.mean(axis=0), right, rtol=1e-6)


def _smoothing(x):
    """Half the Laplacian of the gradient: what smoothing adds, per sigma^2; exact for a quartic.

    d_i^3 of 100 (y - x_i^2)^2 is 2400 x_i, and the mixed third derivative in y is -400.
    """
    added = np.zeros_like(x)
    added[:-1] += 1200 * x[:-1]
    added[1:] -= 200
    return added


def test_the_spread_of_antithetic_directions():
    """|g| sqrt((n + 1) / D) for a linear function; one-sided differences spread more."""
    x, sigma, count = X[0], 0.1, 1024
    op = gaussian_smoothing(rosen, signature="(n)->()", sigma=sigma, directions=count)
    found = estimates(op, x, 12)
    size = np.linalg.norm(found.mean(axis=0))
    spread = np.linalg.norm(found.std(axis=0, ddof=1)) / size
    e = np.random.default_rng(0).standard_normal((12, count, 64))
    values = rosen((x + sigma * e).reshape(-1, 64)).reshape(12, count) - rosen(x[None])
    one_sided = np.einsum("sd,sdn->sn", values, e) / (sigma * count)
    assert spread == pytest.approx(np.sqrt(65 / count), rel=0.1)
    assert np.linalg.norm(one_sided.std(axis=0, ddof=1)) / size > 1.2 * spread


@each_side
def test_one_seed_is_one_function_and_both_modes_agree(framework):
    side = side_of(framework)
    g = side.function(spsa(rosen, signature="(n)->()", step=1e-3, directions=3))
    x, seed = side.array(POINT), side.array(np.array(7))
    first, again = (as_numpy(side.grad(g)(x, seed)) for _ in range(2))
    other = as_numpy(side.grad(g)(x, side.array(np.array(8))))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    tangent = side.jvp(lambda x: g(x, seed), (x,), (x,))[1]
    np.testing.assert_allclose(as_numpy(tangent), first @ POINT, rtol=1e-10)
    many = side.vmap(side.grad(g))(side.array(np.stack([POINT] * 2)), side.array(np.array([7, 7])))
    assert not np.allclose(as_numpy(many)[0], as_numpy(many)[1])  # samples draw apart


def test_a_noisy_function_is_minimised_with_a_fresh_seed_each_step():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)

    def noisy(x):
        exact = (1 - x[:, 0]) ** 2 + 5 * (x[:, 1] - x[:, 0] ** 2) ** 2
        return exact + 0.01 * rng.standard_normal(len(x))

    side = side_of("torch")
    f = side.function(gaussian_smoothing(noisy, signature="(2)->()", sigma=0.1, directions=32))
    x = torch.tensor([0.1, 0.1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([x], lr=0.05)
    for step in range(300):
        optimiser.zero_grad()
        f(x, torch.tensor(step)).backward()
        optimiser.step()
    assert np.linalg.norm(x.detach().numpy() - 1) < 0.3


def turning(x):
    """(2)->(2): x_1 exp(i x_0) and x_0, complex"""
    return np.stack([x[:, 1] * np.exp(1j * x[:, 0]), x[:, 0] + 0j], -1)


@each_side
@pytest.mark.parametrize("way", ["differences", "spsa", "smoothing"])
def test_a_complex_result_of_real_inputs_keeps_its_imaginary_part(framework, way):
    side, seed = side_of(framework), ()
    given = {"signature": "(2)->(2)", "dtypes": "complex"}
    if way == "differences":
        g = side.function(finite_difference(turning, **given))
    else:
        make = functools.partial(spsa, step=1e-5)
        if way == "smoothing":
            make = functools.partial(gaussian_smoothing, sigma=1e-4)
        g, seed = (
            side.function(make(turning, directions=20_000, **given)),
            (side.array(np.array(1)),),
        )
    x, ct = side.array(np.array([0.5, 2.0])), side.array(np.array([1 + 2j, 3 - 1j]))
    spin = np.exp(0.5j)
    jacobian = np.array([[2j * spin, spin], [1, 0]])
    close = functools.partial(
        np.testing.assert_allclose, atol=1e-8 if way == "differences" else 0.2
    )
    plain = as_numpy(ct) if framework == "jax" else as_numpy(ct).conj()
    right = (jacobian.T @ plain).real
    close(as_numpy(side.vjp(lambda x: g(x, *seed), x)[1](ct)[0]), right)
    tangent = side.jvp(lambda x: g(x, *seed), (x,), (side.LIB.ones_like(x),))[1]
    close(as_numpy(tangent), jacobian.sum(1))


def test_what_does_not_fit_is_explained():
    for kwargs in ({"step": -1.0}, {"noise": 0.0}, {"noise": 1.0, "third": -1}):
        with pytest.raises(ArgumentError, match=r"rosen \(n\)->\(\): the .*positive number"):
            finite_difference(rosen, signature="(n)->()", **kwargs)
    with pytest.raises(ArgumentError, match="not both"):
        finite_difference(rosen, signature="(n)->()", step=1.0, noise=1.0)
    with pytest.raises(ArgumentError, match="number of directions is 0"):
        spsa(rosen, signature="(n)->()", step=1.0, directions=0)
    real = bind(complex_step(lambda x: np.abs(x).sum(-1), signature="(n)->()", name="size"))
    with pytest.raises(RuleError, match=r"size \(n\)->\(\).*must be analytic"):
        real.vjp(1.0, np.ones(3))
    with pytest.raises(RuleError, match="real inputs"):
        bind(finite_difference(rosen, signature="(n)->()")).vjp(1.0, np.ones(3) * 1j)
