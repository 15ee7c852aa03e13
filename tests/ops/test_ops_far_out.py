"""The laws cut off to windows far out in their tails, in all modes of the frameworks.

One component is a single law: its mixture has the derivatives of `truncated_normal_log_mass`,
and 1/p in its weight, at any distance.  Between several components rho_j = D_j / Z is known to
a few roundings times the size of log(D_j / D_top), if they matter at all; `test_accuracy` has
such windows among its hard inputs.
"""

import numpy as np
import pytest

from tests.properties import nestings
from tests.suite import each_setting, side_of
from twingrad import ops
from twingrad.interop.numpy import bind

DISTANCES = {"float64": (20.0, 35.0, 100.0, 1e4, 1e8), "float32": (20.0, 100.0, 1e3, 1e4)}
MIXTURES = (
    ops.truncated_mixture_log_normalizer,
    ops.truncated_mixture_log_weights,
    ops.truncated_mixture_weights,
)
P = 0.3
each_mixture = each_setting([op.name for op in MIXTURES])
each_dtype = pytest.mark.parametrize("dtype", list(DISTANCES))


def windows(dtype):
    """(t, lower, upper), both tails."""
    right = [(t, t, t + 1) for t in DISTANCES[dtype]]
    return np.array(right + [(t, -t - 1, -t) for t, _, _ in right]).T.astype(dtype)


def single(side, op):
    """The op of one component, as a function of (mean, scale, p, lower, upper) in a vector."""
    f = side.function(op)
    mixture = op in MIXTURES

    def flat(x):
        if not mixture:
            return f(x[0], x[1], x[3], x[4]) + 0 * x[2]
        y = f(x[0:1], x[1:2], x[2:3], x[3], x[4])
        return y if y.ndim == 0 else y[0]

    return flat


def points(dtype):
    t, lower, upper = windows(dtype)
    one = np.ones_like(t)
    return t, np.stack([0 * one, one, np.asarray(P, dtype) * one, lower, upper], 1)


def through(side, function, x):
    """A function of one point, at all of them: eager in torch, compiled quickly in JAX."""
    return side.numpy(side.once(side.vmap(function))(side.array(x)))


def right_in_p(op, value, p):
    """(d/dp, d2/dp2) of the op of one component; the value is that of log Z or p / Z."""
    if op.name.endswith("normalizer"):
        return 1 / p, -1 / p**2
    return 0 * value, 0 * value


def sizes_in_p(op, value, p):
    size = (
        np.exp(np.minimum(np.log(p) - value, 700)) if op.name.endswith("mixture_weights") else 1.0
    )
    return size / p, size / p**2


@each_mixture
def test_the_derivative_in_the_weight_of_one_component_is_exact(side_name, row, dtype):
    side, op = side_of(side_name), row.op
    t, x = points(dtype)
    f, eps, p = single(side, op), np.finfo(dtype).eps, float(np.asarray(P, dtype))
    log_z = through(side, single(side, MIXTURES[0]), x).astype(float)
    fine = t < 12 if op.name == "truncated_mixture_weights" and dtype == "float32" else t < 36
    fine = fine if op.name == "truncated_mixture_weights" else t < np.inf
    first, second = right_in_p(op, log_z, p)
    sizes = sizes_in_p(op, log_z, p)
    firsts = {"reverse": side.jacrev(f), "forward": side.jacfwd(f)}
    for name, mode in firsts.items():
        error = np.abs(through(side, mode, x)[:, 2] - first) / sizes[0]
        assert np.all(error[fine] <= 3 * eps), (name, error)
    for name, nesting in nestings(side).items():
        error = np.abs(through(side, nesting(f), x)[:, 2, 2] - second) / sizes[1]
        assert np.all(error[fine] <= 8 * eps), (name, error)


@each_setting([MIXTURES[0].name])
def test_one_component_has_the_derivatives_of_its_law(side_name, row, dtype):
    """To second order, in mean, scale, lower and upper; in p and one of these they are 0."""
    side = side_of(side_name)
    t, x = points(dtype)
    eps = np.finfo(dtype).eps
    mixture, law = (single(side, op) for op in (MIXTURES[0], ops.truncated_normal_log_mass))
    rest = [0, 1, 3, 4]
    for mode in (side.jacrev, side.jacfwd):
        got, want = (through(side, mode(f), x)[:, rest] for f in (mixture, law))
        np.testing.assert_allclose(got, want, rtol=4 * eps)
    for name, nesting in nestings(side).items():
        got, want = (through(side, nesting(f), x) for f in (mixture, law))
        size = np.max(np.abs(want), axis=(1, 2), keepdims=True)
        assert np.all(np.abs(got - want)[:, rest][:, :, rest] <= 50 * eps * size), name
        slope = np.abs(through(side, side.jacrev(law), x)[:, rest])
        assert np.all(np.abs(got[:, 2, rest]) <= 10 * eps * slope / P), name


@each_dtype
def test_one_component_in_numpy(dtype):
    _, x = points(dtype)
    eps, p = np.finfo(dtype).eps, np.asarray(P, dtype)
    means, scales, weights, lower, upper = x[:, :1], x[:, 1:2], x[:, 2:3], x[:, 3], x[:, 4]
    f = bind(MIXTURES[0])
    ct = np.ones_like(lower)
    found = f.vjp(ct, means, scales, weights, lower, upper)
    law = bind(ops.truncated_normal_log_mass)
    want = law.vjp(ct, x[:, 0], x[:, 1], lower, upper)
    np.testing.assert_allclose(found[2][:, 0], 1 / p, rtol=2 * eps)
    for got, right in zip((found[0][:, 0], found[1][:, 0], *found[3:]), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=2 * eps)


@pytest.mark.parametrize("side_name", ["torch", "jax"])
def test_one_component_compiled(side_name):
    side, (_, x) = side_of(side_name), points("float64")
    f = side.vmap(side.grad(single(side, MIXTURES[0])))
    found = side.numpy(side.compiler("aot_eager")(f)(side.array(x)))
    np.testing.assert_allclose(found[:, 2], 1 / P, rtol=1e-15)


@each_setting(["log_ndtr_diff", "truncated_normal_log_mass"])
def test_second_derivatives_where_the_far_end_is_infinite(side_name, row, dtype):
    """d/da log P(a < X) is -a, and its derivative -1, from 1e10 to max/8."""
    side, op, limits = side_of(side_name), row.op, np.finfo(dtype)
    f = side.function(op)
    laws = (0.0, 1.0) if op is ops.truncated_normal_log_mass else ()

    def tail(x):
        constants = [side.cast(side.array(np.float64(v)), dtype) for v in laws]
        return f(*constants, x, side.cast(side.array(np.float64(np.inf)), dtype))

    a = np.array([1e10, 1e20, 1e22, 1e30, limits.max / 256, limits.max / 8], dtype)
    for mode in (side.jacrev, side.jacfwd):
        np.testing.assert_allclose(through(side, mode(tail), a), -a, rtol=4 * limits.eps)
    for name, nesting in nestings(side).items():
        got = through(side, nesting(tail), a)
        np.testing.assert_allclose(got, -np.ones_like(a), rtol=1e-5, err_msg=name)


@each_setting(["truncated_normal_log_mass"])
def test_equal_cut_offs_have_their_limits_at_any_distance(side_name, row, dtype):
    """F = -inf, d/dmean = (c - mean)/scale^2, d/dscale = (((c - mean)/scale)^2 - 1)/scale."""
    side = side_of(side_name)
    top = float(np.finfo(dtype).max)
    c = np.array([0.5, -3.0, 40.0, 1e3, -1e10, 1e15, np.sqrt(top) / 4], dtype)
    if dtype == "float64":
        c = np.append(c, [-1e150])
    f = side.function(ops.truncated_normal_log_mass)
    x = np.stack([0 * c, 2 + 0 * c, c, c], 1)
    flat = through(side, lambda x: f(x[0], x[1], x[2], x[3]), x)
    assert np.all(flat == -np.inf)
    for mode in (side.jacrev, side.jacfwd):
        found = through(side, mode(lambda x: f(x[0], x[1], x[2], x[3])), x)
        np.testing.assert_allclose(found[:, 0], c / 4, rtol=1e-6)
        np.testing.assert_allclose(found[:, 1], ((c / 2) ** 2 - 1) / 2, rtol=1e-5)
        assert np.all(found[:, 2] == -np.inf)
        assert np.all(found[:, 3] == np.inf)
    equal = np.array([1e300 if dtype == "float64" else 1e37], dtype)
    g = side.function(ops.log_ndtr_diff)
    slopes = side.vmap(side.grad(lambda a, b: g(a, b), argnums=(0, 1)))
    found = side.once(slopes)(side.array(equal), side.array(equal))
    assert [float(side.numpy(v)[0]) for v in found] == [-np.inf, np.inf]
