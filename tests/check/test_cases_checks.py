"""Public bug reports about checking a gradient, with twingrad in both frameworks.

What finds a wrong rule here: the binder (shapes), autodiff of the op's own forward function in
float64 with random cotangents at the points that matter, and the two modes against each other.
A checker for gradients that you have already is not there yet.
"""

import importlib

import numpy as np
import pytest

from tests.closeness import as_numpy, assert_close
from tests.ops.test_cases_formulas import compare_with_autodiff
from tests.properties import random_like
from twingrad import ops
from twingrad.interop import RuleError, define

each_side = pytest.mark.parametrize("framework", ["torch", "jax"])


def side_of(framework):
    pytest.importorskip(framework)
    return importlib.import_module(f"tests.side_{framework}")


def checker(side, order):
    """The framework's own check of an op of one array, in both modes."""
    if side.NAME == "torch":
        autograd = importlib.import_module("torch.autograd")

        def check(f, x):
            leaf = x.clone().requires_grad_()
            assert autograd.gradcheck(f, leaf, check_forward_ad=order == 1)
            assert order == 1 or autograd.gradgradcheck(f, leaf)

    else:
        check_grads = importlib.import_module("jax.test_util").check_grads

        def check(f, x):
            check_grads(side.compiler()(f), (x,), order=order, modes=("fwd", "rev"))

    return check


@each_side
@pytest.mark.parametrize("order", [1, 2])
def test_r37_the_frameworks_own_checkers_pass_a_right_op_in_float64(framework, order):
    """jax-ml/jax#39821, bermanmaxim/superpixPool#5; and they fail one that is 1 per cent off"""
    side = side_of(framework)
    check, x = checker(side, order), side.array(np.linspace(-3, -0.5, 4))
    check(side.function(ops.log1mexp), x)

    @define("()->()")
    def off(xp, x):
        return ops.log1mexp(xp, x)

    off.def_vjp(lambda xp, ct, out, x: -1.01 * ct / xp.expm1(-x))
    error = AssertionError if framework == "jax" else RuntimeError
    with pytest.raises(error):
        check(side.function(off), x)


@each_side
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_r37_low_precision_tangents_are_the_float64_ones_rounded(framework, dtype):
    """jax-ml/jax#39821, in forward mode and for an op of two arguments"""
    side, bits = side_of(framework), {"float16": 11, "bfloat16": 8, "float32": 24}[dtype]
    f, raw = side.function(ops.log_ndtr_diff), (np.linspace(-2, 0, 5), np.linspace(0.5, 3, 5))
    low = [side.cast(side.array(x), dtype) for x in raw]
    found = []
    for x in (low, [side.cast(v, "float64") for v in low]):
        dots = tuple(map(side.LIB.ones_like, x))
        push = side.once(lambda x, dots: side.jvp(f, x, dots)[1])
        found.append(as_numpy(push(tuple(x), dots)).astype(np.float64))
    error = np.abs(found[0] - found[1]) / np.abs(found[1])
    assert error.max() <= 2.0**-bits + 2e-6


def relu(edge=0.0):
    """max(x, 0); with another edge its rule has the wrong side of the kink."""

    @define("()->()")
    def relu(xp, t):
        return xp.where(t > 0, t, xp.zeros_like(t))

    relu.def_vjp(lambda xp, ct, out, t: xp.where(t > edge, ct, 0 * ct))
    return relu


def leak(size=1e-7):
    """t + 1e-7 sum t, whose cross term a rule may forget."""

    @define("(n)->(n)")
    def leak(xp, t):
        return t + 1e-7 * xp.sum(t, axis=-1, keepdims=True)

    leak.def_vjp(lambda xp, ct, out, t: ct + size * xp.sum(ct, axis=-1, keepdims=True))
    return leak


def same(clip=False):
    """The identity; with `clip` its rule is not linear in the cotangent."""

    @define("()->()")
    def same(xp, t):
        return t * 1

    same.def_vjp(lambda xp, ct, out, t: xp.clip(ct, -1, 1) if clip else ct)
    return same


AT_THE_KINK = np.array([-2.0, -5e-4, 5e-4, 2.0])
WRONG = {
    "kink": (relu(), relu(-1e-3), AT_THE_KINK),
    "cross term": (leak(), leak(0), AT_THE_KINK),
    "not linear": (same(), same(clip=True), AT_THE_KINK),
}


@each_side
@pytest.mark.parametrize("name", WRONG)
def test_r72_autodiff_of_the_forward_finds_what_a_gradient_check_lets_through(framework, name):
    """pytorch/pytorch#194869: gradcheck passes all three.

    A rule that is wrong at a kink only, and a forgotten cross term, look to the binder like
    any other rule: nothing but a comparison of numbers, at these points, can find them.
    """
    side, (right, wrong, x) = side_of(framework), WRONG[name]
    ct = 4 * random_like(x.shape, 0)
    compare_with_autodiff(side, right, (x,), ct)
    with pytest.raises(AssertionError, match="gradient"):
        compare_with_autodiff(side, wrong, (x,), ct)


def both_modes(side, op, x, ct, t):
    """sum(ct * jvp(t)), and sum(vjp(ct) * t): equal where both are one linear map."""
    f, (x, ct, t) = side.function(op), map(side.array, (x, ct, t))
    push = side.once(lambda x, t: side.jvp(f, (x,), (t,))[1])(x, t)
    pull = side.once(lambda ct, x: side.vjp(f, x)[1](ct)[0])(ct, x)
    return side.LIB.sum(ct * push), side.LIB.sum(pull * t)


@each_side
def test_r72_the_two_modes_differ_for_a_rule_that_is_not_linear(framework):
    """Forward mode follows from the rule near 0, where clipping does nothing."""
    side, (ct, t) = side_of(framework), (4 * random_like((4,), seed) for seed in (0, 1))
    for op in (relu(), leak(), same()):
        assert_close(*both_modes(side, op, AT_THE_KINK, ct, t), rtol=1e-12)
    with pytest.raises(AssertionError):
        assert_close(*both_modes(side, same(clip=True), AT_THE_KINK, ct, t), rtol=1e-3)


@each_side
@pytest.mark.parametrize("transform", ["gradient", "gradient of each", "tangent"])
def test_r72_a_gradient_of_the_wrong_shape_is_refused_in_every_mode(framework, transform):
    """pytorch/pytorch#65244: averaged over rows that the input does not have"""

    @define("(n)->()")
    def total(xp, t):
        return xp.sum(t, axis=-1)

    total.def_vjp(lambda xp, ct, out, t: xp.stack([ct[..., None] + 0 * t] * 2) / 2)
    side = side_of(framework)
    f, x = side.function(total), side.array(np.ones(3))
    with pytest.raises(RuleError, match=r"total \(n\)->\(\): its vjp .*shape \(2,.* for t"):
        if transform == "tangent":
            side.jvp(f, (x,), (x,))
        elif transform == "gradient":
            side.grad(f)(x)
        else:
            side.vmap(side.grad(f))(side.array(np.ones((4, 3))))


@each_side
def test_r72_an_output_that_does_not_depend_on_the_input_disturbs_nothing(framework):
    """pytorch/pytorch#194869: it comes first, and gradcheck's fast mode fails for it"""

    @define("()->(),()")
    def with_zero(xp, t):
        return xp.zeros_like(t), t * 2

    with_zero.def_vjp(lambda xp, ct, out, t: 2 * ct[1])
    side = side_of(framework)
    f, x = side.function(with_zero), side.array(np.array([-1.0, 0.5, 2.0]))
    check = checker(side, 2)
    check(lambda x: f(x)[1] ** 2 + f(x)[0], x)
    dots = side.jvp(f, (x,), (side.LIB.ones_like(x),))[1]
    np.testing.assert_array_equal(as_numpy(dots[0]), np.zeros(3))
    np.testing.assert_array_equal(as_numpy(dots[1]), 2 * np.ones(3))


@each_side
def test_r72_an_integer_output_before_the_others_disturbs_no_gradient(framework):
    """pytorch/pytorch#194869"""

    @define("()->(),()")
    def with_place(xp, t):
        return xp.astype(t > 0, xp.int32), t * t

    with_place.def_vjp(lambda xp, ct, out, t: 2 * t * ct[1])
    side = side_of(framework)
    f, x = side.function(with_place), side.array(np.array([-1.0, 0.5, 2.0]))
    assert as_numpy(f(x)[0]).tolist() == [0, 1, 1]
    slope = side.grad(lambda x: f(x)[1])
    np.testing.assert_array_equal(as_numpy(side.vmap(slope)(x)), [-2, 1, 4])
    np.testing.assert_array_equal(as_numpy(side.vmap(side.grad(slope))(x)), [2, 2, 2])
