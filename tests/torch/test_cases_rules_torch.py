"""Public bug reports about what a rule does inside, in torch: autograd, randomness, checkers.

A test's name begins with the number of its case; the reports are named in the docstrings.
"""

import gc
import weakref

import pytest
import torch
from torch.func import grad, vmap

from tests import sample_ops
from twingrad.interop import RuleError, define
from twingrad.interop.torch import bind

X = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
close = torch.testing.assert_close


def sine(rule):
    @define("()->()")
    def sine(xp, x):
        return xp.sin(x)

    sine.def_vjp(rule)
    return bind(sine)


def by_func(xp, ct, out, x):
    """The gradient by torch.func inside the rule."""
    return torch.func.vjp(torch.sin, x)[1](ct)[0]


def by_autograd(xp, ct, out, x):
    """The gradient by torch.autograd inside the rule."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(leaf.sin(), leaf, ct)[0]


@pytest.mark.parametrize("mode", ["backward", "grad", "vmap of grad", "second"])
def test_r05_a_rule_may_use_torch_func_inside(mode):
    """pytorch/functorch#922, pytorch/pytorch#158610"""
    f, want = sine(by_func), X.cos()
    if mode == "backward":
        x = X.clone().requires_grad_()
        found = torch.autograd.grad(f(x).sum(), x)[0]
    elif mode == "second":
        found, want = vmap(grad(grad(f)))(X), -X.sin()
    else:
        found = vmap(grad(f))(X) if "vmap" in mode else grad(lambda x: f(x).sum())(X)
    close(found, want)


def test_r05_torch_autograd_inside_a_rule_is_right_or_raises():
    """It is right in an ordinary backward pass; under vmap torch refuses it, in words."""
    f, x = sine(by_autograd), X.clone().requires_grad_()
    close(torch.autograd.grad(f(x).sum(), x)[0], X.cos())
    with pytest.raises(RuntimeError, match="functorch transform"):
        vmap(grad(f))(X)


def jitter():
    @define("(),()->()", host=True)
    def jitter(xp, x, draw):
        return x + draw

    jitter.def_vjp(lambda xp, ct, out, x, draw: (ct, ct))
    return bind(jitter)


def test_r06_draws_that_are_an_argument_obey_vmap_s_randomness():
    """pytorch/pytorch#90789: a generator hidden in the function would not be seen"""
    f = jitter()
    noisy = lambda x: f(x, torch.randn(()).double())  # noqa: E731
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(noisy, randomness="error")(X)
    same = vmap(noisy, randomness="same")(0 * X)
    assert same.unique().numel() == 1
    assert vmap(noisy, randomness="different")(0 * X).unique().numel() == 3
    close(vmap(grad(noisy), randomness="different")(X), torch.ones(3).double())


@pytest.mark.parametrize("rule", [by_func, by_autograd])
def test_r66_nothing_is_alive_after_the_graph_is_dropped(rule):
    """pytorch/pytorch#51978, #52140"""

    class Model:
        def __init__(self):
            self.x = X.clone().requires_grad_()
            self.result = self.f(self.x)
            self.result.sum().backward()

        def f(self, x):
            return sine(rule)(x) * 2

    alive = weakref.ref(Model())
    gc.collect()
    assert alive() is None


def test_r72_what_a_gradient_check_lets_through_and_a_rule_here_does_not():
    """pytorch/pytorch#194869: an averaged gradient of the wrong shape, and a missing cross term"""

    @define("(n)->()")
    def total(xp, t):
        return xp.sum(t, axis=-1)

    total.def_vjp(lambda xp, ct, out, t: ct * xp.ones((2, 3), dtype=t.dtype) / 2)
    with pytest.raises(RuleError, match=r"total .*shape \(2, 3\)"):
        torch.autograd.gradcheck(bind(total), X.clone().requires_grad_())


def test_r72_a_cotangent_that_is_not_one_hot_tells_a_rule_that_is_not_linear():
    """gradcheck's are one-hot: the rule passes there and fails on a larger one"""

    @define("()->()")
    def same(xp, t):
        return t * 1

    same.def_vjp(lambda xp, ct, out, t: xp.clip(ct, -1, 1))
    f, x = bind(same), X.clone().requires_grad_()
    assert torch.autograd.gradcheck(f, x)
    found = torch.func.vjp(f, X)[1](torch.full((3,), 4.0).double())[0]
    with pytest.raises(AssertionError):
        close(found, torch.full((3,), 4.0).double())


def test_r72_a_right_op_with_an_output_that_has_no_gradient_passes_gradcheck():
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    f = bind(sample_ops.moments())
    assert torch.autograd.gradcheck(lambda x: (torch.zeros_like(x).detach(), *f(x)), x)
