"""The places where a hand-written rule is silently lost or wrong in torch (traps T1 to T7).

The ops here have rules that are 100 times the derivative: a result without the factor was
made by autodiff.
"""

import contextlib
import functools

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

from tests import sample_ops
from twingrad.interop import MissingRuleError
from twingrad.interop.torch import bind

close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
tensor = functools.partial(torch.tensor, dtype=torch.float64)


@pytest.fixture(autouse=True)
def forward_mode_left_clean():
    """A failed compile can leave torch inside a forward-mode level, and every later test broken."""
    yield
    while torch.autograd.forward_ad._current_level >= 0:
        torch.autograd.forward_ad.exit_dual_level()
    with contextlib.suppress(RuntimeError):
        torch._C._exit_dual_level(level=0)


RULES = ("vjp", "jvp", "both")
X = tensor(2.0)
FIRST, SECOND = tensor(1200.0), tensor(1200.0)  # 100 * 3 x^2 and 100 * 6 x, at x = 2


def backward(f):
    def gradient(x):
        x = x.detach().requires_grad_()
        f(x).backward()
        return x.grad

    return gradient


def forward_ad(f):
    def tangent(x):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            return torch.autograd.forward_ad.unpack_dual(f(dual)).tangent

    return tangent


FIRST_ORDER = {
    "backward": backward,
    "grad": grad,
    "vjp": lambda f: lambda x: vjp(f, x)[1](torch.ones_like(x))[0],
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "jvp": lambda f: lambda x: jvp(f, (x,), (torch.ones_like(x),))[1],
    "forward AD": forward_ad,
    "linearize": lambda f: lambda x: linearize(f, x)[1](torch.ones_like(x)),
    "vmap(grad)": lambda f: lambda x: vmap(grad(f))(x.expand(2))[0],
    "vmap(jacfwd)": lambda f: lambda x: vmap(jacfwd(f))(x.expand(2))[0],
    "grad(vmap)": lambda f: lambda x: grad(lambda xs: vmap(f)(xs).sum())(x.expand(2))[0],
    "vmap(vmap(grad))": lambda f: lambda x: vmap(vmap(grad(f)), 1, 1)(x.expand(2, 3))[0, 0],
    "checkpoint": lambda f: backward(
        lambda x: torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    ),
}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("mode", FIRST_ORDER)
def test_the_hand_written_rule_runs_in_every_first_order_mode(mode, rules):
    close(FIRST_ORDER[mode](bind(sample_ops.cube(100, rules)))(X), FIRST)


NESTINGS = [(a, b) for a in (jacrev, jacfwd) for b in (jacrev, jacfwd)]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("outer", "inner"), NESTINGS)
def test_second_derivatives_differentiate_the_rule_in_every_nesting(outer, inner, rules):
    """T2: forward over forward is 0 where jvp is written out in the Function."""
    second = outer(inner(bind(sample_ops.cube(100, rules))))
    close(second(X), SECOND)
    close(vmap(second)(torch.stack([X, 2 * X])), torch.stack([SECOND, 2 * SECOND]))


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("order", range(8))
def test_third_derivatives_in_every_nesting(order, rules):
    f = bind(sample_ops.cube(100, rules))
    for bit in range(3):
        f = (jacfwd if order >> bit & 1 else jacrev)(f)
    close(f(X), tensor(600.0))


@pytest.mark.parametrize("rules", RULES)
def test_the_pull_back_of_a_tangent_inside_vmap(rules):
    """The pull-back runs when the level of its vjp has ended."""
    f = bind(sample_ops.cube(100, rules))
    one = torch.ones_like(X)
    pull = lambda x: vjp(lambda x: jvp(f, (x,), (one,))[1], x)[1](one)[0]  # noqa: E731
    close(vmap(pull)(torch.stack([X, 2 * X])), torch.stack([SECOND, 2 * SECOND]))


@pytest.mark.parametrize("wrap", [hessian, lambda f: grad(grad(f)), lambda f: backward(grad(f))])
def test_other_ways_to_the_second_derivative(wrap):
    close(wrap(bind(sample_ops.cube(100)))(X), SECOND)


COMPILED = {
    "call": lambda f: lambda x: f(x) * 150,
    "backward": backward,
    "grad": grad,
    "vmap(grad)": FIRST_ORDER["vmap(grad)"],
    "grad(vmap)": FIRST_ORDER["grad(vmap)"],
    "jacfwd": jacfwd,
    "jvp": FIRST_ORDER["jvp"],
    "hessian": hessian,
    "rev(rev)": lambda f: jacrev(jacrev(f)),
    "fwd(fwd)": lambda f: jacfwd(jacfwd(f)),
    "rev(fwd)": lambda f: jacrev(jacfwd(f)),
    "vmap(rev(rev))": lambda f: lambda x: vmap(jacrev(jacrev(f)))(x.expand(2))[0],
    "vmap(fwd(fwd))": lambda f: lambda x: vmap(jacfwd(jacfwd(f)))(x.expand(2))[0],
}
INDUCTOR = ("backward", "vmap(grad)", "jacfwd")


def check_compiled(mode, rules, backend):
    torch._dynamo.reset()
    f = bind(sample_ops.cube(100, rules))
    if mode == "backward":
        compiled = backward(torch.compile(f, backend=backend, fullgraph=True))
    else:
        compiled = torch.compile(COMPILED[mode](f), backend=backend, fullgraph=True)
    for x in (X, X.clone()):
        close(compiled(x), FIRST)


@pytest.mark.compile
@pytest.mark.parametrize(
    ("mode", "rules"),
    [(mode, "both") for mode in COMPILED]
    + [(mode, rules) for mode in ("grad", "jacfwd", "hessian") for rules in ("vjp", "jvp")],
)
def test_the_hand_written_rule_runs_when_compiled(mode, rules):
    """T1: compile over torch.func differentiates the forward instead of using the rule."""
    check_compiled(mode, rules, "aot_eager" if rules == "both" else "eager")


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("mode", COMPILED)
def test_the_hand_written_rule_runs_with_every_backend(mode, rules, backend):
    check_compiled(mode, rules, backend)


@pytest.mark.compile
@pytest.mark.parametrize("mode", INDUCTOR)
def test_the_hand_written_rule_runs_with_inductor(mode):
    check_compiled(mode, "both", "inductor")


def test_saved_values_keep_their_second_derivative():
    """T3: an intermediate on ctx loses it; a hidden output does not."""
    f = bind(sample_ops.softplus_hidden())
    x = tensor([0.3, -1.0]).requires_grad_()
    assert torch.autograd.gradgradcheck(f, x, check_fwd_over_rev=True)
    s = torch.sigmoid(x.detach())
    close(torch.autograd.functional.hessian(lambda x: f(x).sum(), x.detach()).diagonal(), s - s**2)


def test_linearize_of_an_array_op_is_right_elsewhere_along_other_tangents():
    f = bind(sample_ops.dot(100))
    x, y = torch.randn(2, 3).double()
    _, push = linearize(f, x, y)
    for _ in range(2):
        a, b = torch.randn(2, 3).double()
        close(push(a, b), 100 * ((a * y).sum() + (x * b).sum()))


@pytest.mark.parametrize("second", [True, False])
def test_linearize_of_a_host_op_is_right_along_other_tangents(second):
    """T6: a value baked in at tracing time would be garbage."""
    op = sample_ops.host_sin(second)
    f = bind(op)
    for x in (tensor(0.3), tensor([0.3, 1.0]), tensor(-2.0)):
        out, push = linearize(f, x)
        close(out, x.sin())
        for t in (torch.ones_like(x), torch.full_like(x, -3.0)):
            close(push(t), t * x.cos())


def test_linearize_of_a_host_op_inside_other_operations():
    f = bind(sample_ops.host_sin())
    x = tensor([0.3, 1.0])
    _, push = linearize(lambda x: (f(x**2) * x).sum(), x)
    for t in (tensor([1.0, 2.0]), tensor([-1.0, 0.5])):
        close(push(t), (t * (2 * x**2 * (x**2).cos() + (x**2).sin())).sum())


def test_linearize_of_the_gradient_of_a_host_op():
    f = bind(sample_ops.host_sin())
    _, push = linearize(vmap(grad(f)), tensor([0.3, 1.0]))
    for t in (tensor([1.0, 2.0]), tensor([-1.0, 0.5])):
        close(push(t), -t * tensor([0.3, 1.0]).sin())


def test_tensors_in_a_container_are_differentiated_after_unpacking():
    """T7: a Function that takes a dict gives no gradient; a bound op refuses one by name."""
    f = bind(sample_ops.dot())
    close(grad(lambda d: f(d["x"], d["y"]))({"x": X[None], "y": X[None]})["x"], X[None])
    with pytest.raises(TypeError, match="y is a dict"):
        f(X[None], {"y": X[None]})


def test_meta_tensors_pass_through_without_data():
    energy, recorder = sample_ops.host_energy()
    for f in (bind(sample_ops.affine()), lambda x, s, b: bind(energy)(x, s) + b):
        x, s, b = (torch.empty(n, device="meta", requires_grad=True) for n in ((2, 3), (2,), ()))
        out = f(x, s, b)
        out.sum().backward()
        assert out.device.type == "meta" and x.grad.shape == (2, 3) and s.grad.shape == (2,)
        assert grad(lambda *a, f=f: f(*a).sum())(x, s, b).device.type == "meta"
    assert recorder.counts == (0, 0)


class Layer(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f, self.w = f, torch.nn.Parameter(torch.arange(3.0))

    def forward(self, x):
        return self.f(x, self.w)


@pytest.mark.compile
@pytest.mark.parametrize("strict", [False, True])
def test_an_op_in_a_module_can_be_exported(strict):
    layer = Layer(bind(sample_ops.dot(100)))
    program = torch.export.export(layer, (torch.ones(2, 3),), strict=strict)
    x = torch.randn(2, 3)
    close(program.module()(x), layer(x), rtol=1e-6, atol=1e-6)
    close(functional_call(layer, {"w": torch.ones(3)}, (x,)), x.sum(-1), rtol=1e-6, atol=1e-6)


@pytest.mark.compile
@pytest.mark.parametrize("strict", [False, True])
def test_a_host_op_can_be_exported(strict):
    energy, recorder = sample_ops.host_energy()
    f = bind(energy)
    layer = Layer(lambda x, w: f(x * w, 2.0))
    program = torch.export.export(layer, (torch.ones(2, 3),), strict=strict)
    assert recorder.counts == (0, 0)
    x = torch.randn(2, 3)
    close(program.module()(x), layer(x))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("make", [lambda: sample_ops.cube(100), sample_ops.host_sin])
def test_checkpointing_recomputes_the_same(make, reentrant):
    f = bind(make())
    found = []
    for wrap in (False, True):
        x = torch.linspace(0, 1, 5, dtype=torch.float64).requires_grad_()
        run = functools.partial(torch.utils.checkpoint.checkpoint, f, use_reentrant=reentrant)
        (run(x) if wrap else f(x)).sum().backward()
        found.append(x.grad)
    assert torch.equal(*found)


@pytest.mark.parametrize("outer", [grad, jacfwd, lambda f: lambda x: hessian(f)(x), backward])
def test_a_missing_second_derivative_raises_and_is_never_a_number(outer):
    f = bind(sample_ops.host_sin(second=False))
    for x in (X, X.clone()):
        close(grad(f)(x), x.cos())
        with pytest.raises(MissingRuleError, match=r"host_sin.*higher derivative"):
            outer(grad(lambda x: f(x) + x**3))(x)
    assert np.isfinite(float(f(X)))
