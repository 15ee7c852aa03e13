"""Public bug reports that tell of JAX, or of one way of torch, done with twingrad in torch.

A test's name begins with the number of its case; the reports are named in the docstrings.
"""

import functools
import gc
import weakref

import numpy as np
import pytest
import torch
from torch.func import grad, jacfwd, jacrev, vmap

from tests import sample_ops
from twingrad.interop import MissingRuleError, define
from twingrad.interop.torch import bind

close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
tensor = functools.partial(torch.tensor, dtype=torch.float64)
BACKENDS = pytest.mark.parametrize("backend", [None, "eager"])
NESTINGS = [(a, b) for a in (jacrev, jacfwd) for b in (jacrev, jacfwd)]
X = tensor([0.0, 1.0, 2.0])


def compiled(f, backend):
    if backend is None:
        return f
    torch._dynamo.reset()
    return torch.compile(f, backend=backend, fullgraph=True)


def sine(kind, rule):
    @define("()->()")
    def sine(xp, x):
        return xp.sin(x)

    getattr(sine, f"def_{kind}")(rule)
    return bind(sine)


def pull(xp, ct, out, x):
    return 10 * torch.func.vjp(torch.sin, x)[1](ct)[0]


def push(xp, tangents, out, x):
    return 10 * torch.func.jvp(torch.sin, (x,), tangents)[1]


def by_attached_autograd(xp, ct, out, x):
    """torch.autograd inside a rule as it must be: not detached, with create_graph where asked."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        x = x if x.requires_grad else x.requires_grad_()
        return 10 * torch.autograd.grad(x.sin(), x, ct, create_graph=again)[0]


@pytest.mark.parametrize(("kind", "rule"), [("vjp", pull), ("jvp", push)])
@pytest.mark.parametrize(("outer", "inner"), NESTINGS)
def test_r05_r13_a_rule_with_torch_func_inside_has_every_second_derivative(
    outer, inner, kind, rule
):
    """pytorch/functorch#922, also next to another path"""
    f = sine(kind, rule)
    close(vmap(outer(inner(lambda t: f(t) + t**3)))(X), 6 * X - 10 * X.sin())


@pytest.mark.compile
@pytest.mark.parametrize(("kind", "rule"), [("vjp", pull), ("jvp", push)])
def test_r05_a_rule_with_torch_func_inside_compiles(kind, rule):
    f = sine(kind, rule)
    close(compiled(vmap(grad(f)), "eager")(X), 10 * X.cos())
    close(compiled(vmap(grad(grad(f))), "eager")(X), -10 * X.sin())


def test_r05_r13_torch_autograd_inside_a_rule_that_does_not_detach_is_right():
    """pytorch/pytorch#89860: also under torch.func, and its second derivative"""
    f = sine("vjp", by_attached_autograd)
    close(vmap(grad(f))(X), 10 * X.cos())
    x = X.clone().requires_grad_()
    (g,) = torch.autograd.grad((f(x) + x**3).sum(), x, create_graph=True)
    close(g.detach(), 10 * X.cos() + 3 * X**2)
    close(torch.autograd.grad(g.sum(), x)[0], 6 * X - 10 * X.sin())


def by_detached_autograd(xp, ct, out, x):
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad(leaf.sin(), leaf, ct)[0]


@pytest.mark.parametrize("transform", [grad, jacfwd, lambda f: grad(grad(f))])
def test_r05_torch_autograd_on_a_detached_leaf_is_refused_under_torch_func(transform):
    """pytorch/pytorch#158610: torch names torch.func as the way out; it is never a number"""
    f = transform(sine("vjp", by_detached_autograd))
    for call in (lambda: f(X[1]), lambda: vmap(f)(X)):
        with pytest.raises(RuntimeError, match=r"functorch transforms \(e\.g\. grad, vjp"):
            call()


@pytest.mark.parametrize("rule", [pull, by_attached_autograd])
def test_r66_nothing_is_alive_after_a_second_backward_pass(rule):
    """pytorch/pytorch#51978: nor the op itself, when nobody holds it"""
    f, x = sine("vjp", rule), X.clone().requires_grad_()
    y = x * 2
    out = f(y)
    (g,) = torch.autograd.grad(out.sum(), y, create_graph=True)
    torch.autograd.grad(g.sum(), x)
    alive = [weakref.ref(a) for a in (y, out, g, f)]
    del f, y, out, g
    gc.collect()
    assert [a() for a in alive] == [None] * 4


def test_r30_the_gradient_of_a_broadcast_argument_is_summed():
    """jax-ml/jax#3056, in torch, for a jvp rule"""
    f, v = bind(sample_ops.multiply("jvp")), tensor([1.0, 2.0, 3.0])
    close(grad(lambda q: f(q, v).sum())(tensor(1.0)), tensor(6.0))
    q = torch.ones(1, 1).double().requires_grad_()
    f(q, v).sum().backward()
    close(q.grad, tensor([[6.0]]))


@pytest.mark.compile
@BACKENDS
def test_r41_host_functions_get_numpy_arrays(backend):
    """jax-ml/jax#12194, in torch: plain ones, in every way of calling"""
    energy, recorder = sample_ops.host_energy()
    f, x = bind(energy), torch.ones(2, 3).double()
    compiled(vmap(grad(lambda x: f(x, 2.0))), backend)(x)
    with torch.no_grad():
        f(x.to(torch.bfloat16), 2.0)
    given = [a for call in recorder.calls + recorder.adjoint_calls for a in call]
    assert recorder.counts[0] and recorder.counts[1] == 1
    assert {type(a) for a in given} == {np.ndarray}


@pytest.mark.compile
@pytest.mark.parametrize(
    "transform", [grad, jacfwd, lambda f: compiled(grad(f), "eager")], ids=["grad", "jvp", "jit"]
)
def test_r76_a_host_function_without_a_rule_raises_under_torch_func(transform):
    """jax-ml/jax#1142, in torch"""

    @define("()->()", host=True)
    def opaque(xp, x):
        return np.sin(x)

    f = bind(opaque)
    with pytest.raises(Exception, match=r"opaque \(\)->\(\).*def_") as caught:
        transform(lambda x: f(x) + x**2)(X[1])
    assert isinstance(caught.value, MissingRuleError) or "MissingRule" in str(caught.value)


@pytest.mark.compile
@BACKENDS
def test_r78_an_op_in_plain_numpy_is_not_traced_as_torch(backend):
    """pytorch/pytorch#138215: a compiler that saw through it would lose the factor 10"""

    @define("()->()", host=True)
    def np_sin(xp, x):
        assert type(x) is np.ndarray
        return np.sin(x)

    np_sin.def_vjp(lambda xp, ct, out, x: 10 * ct * np.cos(x))
    f, x = bind(np_sin), X.clone().requires_grad_()
    compiled(lambda q: (f(q * 1.0) * 2).sum(), backend)(x).backward()
    close(x.grad, 20 * X.cos())
    close(compiled(vmap(grad(f)), backend)(X), 10 * X.cos())
