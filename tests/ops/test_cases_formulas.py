"""Public bug reports about formulas, each done with twingrad in both frameworks: it is right.

Wrong rules that a weak probe passes, NaN from a branch not taken, tails, equal eigenvalues.
A test's name begins with the number of its case; the reports are named in the docstrings.
"""

import importlib

import mpmath
import numpy as np
import pytest

from tests.closeness import as_numpy, assert_close
from tests.properties import nestings, random_like
from twingrad import ops
from twingrad.interop import define

each_side = pytest.mark.parametrize("framework", ["torch", "jax"])


def side_of(framework):
    pytest.importorskip(framework)
    return importlib.import_module(f"tests.side_{framework}")


def numbers(*shape, seed=0):
    return random_like(shape, seed)


def rms_norm(forget=False):
    """x r w with r = 1 / rms(x); the wrong rule forgets w in the correction term."""

    @define("(n),(n)->(n)")
    def rms_norm(xp, x, w):
        return x * w / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-6)

    @rms_norm.def_vjp
    def _(xp, ct, out, x, w):
        r = 1 / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        h = ct * w
        slope = xp.mean((ct if forget else h) * x, axis=-1, keepdims=True)
        return r * h - x * r**3 * slope, ct * x * r

    return rms_norm


def layer_norm(fold=False):
    """The wrong rule takes everything after the first dimension for one sample."""

    @define("(n)->(n)")
    def layer_norm(xp, x):
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)

    @layer_norm.def_vjp
    def _(xp, ct, out, x):
        axes = tuple(range(1, x.ndim)) if fold else -1
        spread = xp.mean((x - xp.mean(x, axis=axes, keepdims=True)) ** 2, axis=axes, keepdims=True)
        along = xp.mean(ct * out, axis=axes, keepdims=True)
        centred = ct - xp.mean(ct, axis=axes, keepdims=True)
        return (centred - out * along) / xp.sqrt(spread + 1e-5)

    return layer_norm


def namespace(side):
    """The `xp` that a forward function gets."""
    names = {"torch": "array_api_compat.torch", "jax": "jax.numpy"}
    return importlib.import_module(names[side.NAME])


def compare_with_autodiff(side, op, raw, ct):
    """The gradients of the op's rule, and those of autodiff of its own forward function."""
    xp = namespace(side)
    x, ct = tuple(map(side.array, raw)), side.array(ct)
    plain = side.once(lambda ct, x: side.REFERENCE_REVERSE(lambda *x: op.forward(xp, *x), ct, x))
    right = plain(ct, x)
    for mode, f in side.reverse_modes(op).values():
        found = side.once(lambda ct, x, mode=mode, f=f: mode(f, ct, x))(ct, x)
        for got, want in zip(found, right, strict=True):
            assert_close(got, as_numpy(want), "gradient", rtol=1e-9)


@each_side
def test_r57_rms_norm_is_right_with_a_weight_that_is_not_one(framework):
    """karpathy/llm.c#763"""
    side, raw, ct = side_of(framework), (numbers(2, 4), numbers(4, seed=1)), numbers(2, 4, seed=2)
    compare_with_autodiff(side, rms_norm(), raw, ct)
    with pytest.raises(AssertionError, match="gradient"):
        compare_with_autodiff(side, rms_norm(forget=True), raw, ct)
    ones = (raw[0], np.ones(4))
    compare_with_autodiff(side, rms_norm(forget=True), ones, ct)  # what hid the error


@each_side
def test_r57_forward_mode_and_second_derivatives_follow_from_the_rule(framework):
    side, op, raw = side_of(framework), rms_norm(), (numbers(2, 4), numbers(4, seed=1))
    (x, w), f = map(side.array, raw), side.function(op)
    dots = side.array(numbers(2, 4, seed=2)), side.array(numbers(4, seed=3))
    found = []
    for g in (f, lambda *x: op.forward(namespace(side), *x)):
        push = side.once(lambda x, w, g=g: side.jvp(g, (x, w), dots)[1])
        slope = side.grad(lambda x, w, g=g: side.LIB.sum(g(x, w) ** 3), argnums=(0, 1))
        second = side.once(lambda x, w, slope=slope: side.jvp(slope, (x, w), dots)[1])
        found.append((push(x, w), *second(x, w)))
    for got, want in zip(*found, strict=True):
        assert_close(got, as_numpy(want), rtol=1e-9)


@each_side
@pytest.mark.parametrize("shape", [(8,), (6, 8), (2, 3, 8), (2, 1, 3, 8)], ids=str)
def test_r59_layer_norm_is_right_at_every_rank(framework, shape):
    """flagos-ai/FlagGems#5392, with a random cotangent: pytorch/pytorch#63541"""
    side = side_of(framework)
    compare_with_autodiff(side, layer_norm(), (numbers(*shape),), numbers(*shape, seed=1))


@each_side
def test_r59_rank_3_and_a_random_cotangent_tell_a_wrong_fold(framework):
    """What hid it: rank 2, where it is right, and the loss sum(out), whose gradient is 0."""
    side, x, ct = side_of(framework), numbers(2, 3, 8), numbers(2, 3, 8, seed=1)
    compare_with_autodiff(side, layer_norm(fold=True), (x[0],), ct[0])
    with pytest.raises(AssertionError, match="gradient"):
        compare_with_autodiff(side, layer_norm(fold=True), (x,), ct)
    f = side.function(layer_norm())
    total = as_numpy(side.once(side.grad(lambda x: side.LIB.sum(f(x))))(side.array(x)))
    np.testing.assert_allclose(total, 0 * x, atol=1e-14)


@define("()->()")
def root(xp, x):
    """sqrt(x), and 0 for x <= 0."""
    return xp.where(x > 0, xp.sqrt(xp.where(x > 0, x, xp.ones_like(x))), xp.zeros_like(x))


@root.def_vjp
def _(xp, ct, out, x):
    return xp.where(x > 0, ct / (2 * xp.where(x > 0, root(xp, x), xp.ones_like(x))), 0 * ct)


@each_side
def test_r61_no_nan_from_the_branch_that_was_not_taken(framework):
    """jax-ml/jax#5798, in every mode and at the second order"""
    side, raw = side_of(framework), np.array([-1.0, 0.0, 4.0])
    f, x = side.function(root), side.array(raw)
    ones = side.array(np.ones(3))
    gradient = side.once(side.vmap(side.grad(f)))
    np.testing.assert_allclose(as_numpy(gradient(x)), [0, 0, 0.25])
    tangent = side.once(lambda x, t: side.jvp(f, (x,), (t,))[1])(x, ones)
    np.testing.assert_allclose(as_numpy(tangent), [0, 0, 0.25])
    for hessian in nestings(side).values():
        second = side.once(side.vmap(hessian(f)))(x)
        np.testing.assert_allclose(as_numpy(second), [0, 0, -0.25 * 4**-1.5], atol=1e-15)


@each_side
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_r63_the_log_of_the_normal_cdf_far_in_its_tails(framework, dtype):
    """pytorch/pytorch#192295: log Phi(x) is log_ndtr_diff(-inf, x)"""
    side = side_of(framework)
    raw = np.array([-1e4, -50.0, -35.0, -20.0, -9.0, 0.5, 9.0], dtype)
    x, low = side.array(raw), side.array(np.array(-np.inf, dtype))
    f = side.function(ops.log_ndtr_diff)
    with mpmath.workdps(40):
        value = [float(mpmath.log(mpmath.ncdf(float(v)))) for v in raw[1:]]
        slope = [float(mpmath.npdf(float(v)) / mpmath.ncdf(float(v))) for v in raw[1:]]
    slopes = side.once(side.vmap(side.grad(lambda v: f(low, v))))
    got = as_numpy(side.once(f)(low, x)), as_numpy(slopes(x))
    push = side.once(lambda x: side.jvp(lambda v: f(low, v), (x,), (side.LIB.ones_like(x),))[1])
    np.testing.assert_allclose(as_numpy(push(x)), got[1], rtol=1e-6)
    rtol = {"float64": 1e-13, "float32": 3e-6}[dtype]
    np.testing.assert_allclose(got[0][1:], value, rtol=rtol)
    np.testing.assert_allclose(got[1][1:], slope, rtol=10 * rtol, atol=1e-40)
    np.testing.assert_allclose([got[0][0], got[1][0]], [-5.0000010e7, 1e4], rtol=1e-6)


@define("(n,n)->(n,n)")
def projector(xp, a, *, level=1.0):
    """On the eigenvectors of a symmetric matrix whose eigenvalue is above a level."""
    w, v = xp.linalg.eigh(a)
    return xp.matmul(v * _above(xp, w, level)[..., None, :], xp.matrix_transpose(v))


@projector.def_vjp
def _(xp, ct, out, a, *, level):
    """P_dot = V (F o V^T a_dot V) V^T, F_ij = (k_i - k_j)/(w_i - w_j), 0 where k_i = k_j."""
    w, v = xp.linalg.eigh(a)
    kept = _above(xp, w, level)
    change = kept[..., :, None] - kept[..., None, :]
    apart = w[..., :, None] - w[..., None, :]
    factor = xp.where(change == 0, 0 * apart, change / xp.where(change == 0, 1 + 0 * apart, apart))
    vt = xp.matrix_transpose(v)
    inner = factor * xp.matmul(vt, xp.matmul(ct, v))
    g = xp.matmul(v, xp.matmul(inner, vt))
    return (g + xp.matrix_transpose(g)) / 2


def _above(xp, w, level):
    return xp.where(w > level, xp.ones_like(w), xp.zeros_like(w))


@each_side
@pytest.mark.parametrize("eigenvalues", [(0, 2, 2), (0, 2, 2 + 1e-13), (-1, 0, 0)], ids=str)
def test_r64_a_spectral_projector_at_equal_eigenvalues(framework, eigenvalues):
    """jax-ml/jax#669: autodiff of eigh divides by the difference of the equal ones"""
    side, ct = side_of(framework), np.arange(9.0).reshape(3, 3)
    q = np.linalg.qr(numbers(3, 3))[0]
    a = q @ np.diag(np.array(eigenvalues, float)) @ q.T
    f = side.once(side.function(projector))
    gradient = side.grad(side.weighted(side.function(projector), side.array(ct)))
    got = as_numpy(side.once(gradient)(side.array(a)))
    step = 1e-5
    for i, j in ((0, 0), (0, 1), (1, 2)):
        move = np.zeros((3, 3))
        move[i, j] += 0.5
        move[j, i] += 0.5
        ends = [as_numpy(f(side.array(a + s * move))) for s in (step, -step)]
        slope = np.sum(ct * (ends[0] - ends[1])) / (2 * step)
        np.testing.assert_allclose(np.sum(got * move), slope, rtol=1e-6, atol=1e-8)
    many = side.once(side.vmap(gradient))(side.array(np.stack([a, a])))
    np.testing.assert_allclose(as_numpy(many), [got, got], rtol=1e-9, atol=1e-12)


@each_side
@pytest.mark.parametrize("level", [1.0, 2.0**25 + 4])
def test_r64_float32_eigenvalues_near_2_to_the_25(framework, level):
    """jax-ml/jax#40141: as float64 gives it, although their differences are a few ulp"""
    side, ct = side_of(framework), np.arange(9.0).reshape(3, 3)
    a, found = np.diag(2.0**25 + np.array([0, 8, 16])), []
    for dtype in ("float32", "float64"):
        f, seed = side.function(projector), side.array(ct.astype(dtype))
        loss = side.weighted(lambda a, f=f: f(a, level=level), seed)
        found.append(side.once(side.grad(loss))(side.array(a.astype(dtype))))
        assert side.dtype_of(found[-1]) == dtype
    assert np.any(as_numpy(found[1])) == (level > 1)
    np.testing.assert_allclose(as_numpy(found[0]), as_numpy(found[1]), rtol=1e-6)


@each_side
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_r37_low_precision_gradients_are_the_float64_ones_rounded(framework, dtype):
    """jax-ml/jax#39821: a checker with a fixed step cannot see that they are right"""
    side, bits = side_of(framework), {"float16": 11, "bfloat16": 8, "float32": 24}[dtype]
    f = side.function(ops.log1mexp)
    x = side.cast(side.array(np.linspace(-3, -0.1, 7)), dtype)
    gradient = side.once(side.vmap(side.grad(f)))
    got, right = (as_numpy(gradient(v)) for v in (x, side.cast(x, "float64")))
    error = np.abs(got.astype(np.float64) - right) / np.abs(right)
    assert error.max() <= 2.0**-bits + 4e-7
