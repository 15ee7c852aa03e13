"""Outputs that are inputs, graphs, modes, threads and memory: an op's life in torch."""

import functools
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.func import grad, hessian, jvp, vjp, vmap

from tests import sample_ops
from twingrad.interop import ArgumentError, define
from twingrad.interop.torch import bind

close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
tensor = functools.partial(torch.tensor, dtype=torch.float64)
X = tensor([1.0, -2.0, 0.5])


def leaves(*values):
    return [v.clone().requires_grad_() for v in values]


@pytest.mark.parametrize("make", [sample_ops.identity, sample_ops.flip_axes])
def test_an_op_that_returns_its_input_or_a_view_keeps_its_rule(make):
    f = bind(make())
    (x,) = leaves(torch.arange(6.0).reshape(2, 3))
    hundred = torch.full((2, 3), 100.0)
    out = f(x)
    assert out is not x and out.requires_grad
    out.sum().backward()
    close(x.grad, hundred)
    close(grad(lambda x: f(x).sum())(x), hundred)
    close(vmap(grad(lambda x: f(x).sum()))(torch.stack([x, x])), hundred.expand(2, 2, 3))
    close(vmap(f, 2, 2)(x.detach()[..., None])[..., 0], f(x.detach()))


def test_a_rule_may_read_the_input_that_its_op_returns():
    """torch saves no tensor that is both: an output owns its memory."""

    @define("()->()")
    def same(xp, x):
        return x

    same.def_vjp(lambda xp, ct, out, x: ct * xp.cos(x))
    close(grad(lambda x: bind(same)(x).sum())(X), torch.cos(X))
    close(jvp(bind(same), (X,), (X,))[1], X * torch.cos(X))


@pytest.mark.parametrize("make", [sample_ops.identity, sample_ops.flip_axes])
def test_writing_into_the_output_never_gives_a_wrong_gradient(make):
    f = bind(make())
    (x,) = leaves(torch.arange(6.0).reshape(2, 3))
    y = x * 1
    try:
        out = f(y)
        out.mul_(2)
        (out.sum() + y.sum()).backward()
    except RuntimeError:
        return  # torch refuses it: a view made in a custom Function, or a saved tensor changed
    close(x.grad, torch.full((2, 3), 201.0))
    close(y, torch.arange(6.0).reshape(2, 3))


def test_one_tensor_given_twice_gets_both_gradients():
    f = bind(sample_ops.dot())
    (x,) = leaves(X)
    f(x, x).backward()
    close(x.grad, 2 * X)
    close(grad(lambda x: f(x, x))(X), 2 * X)
    close(hessian(lambda x: f(x, x))(X), 2 * torch.eye(3).double())


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_a_zero_batch_is_an_ordinary_batch(shape):
    energy, _ = sample_ops.host_energy()
    for f in (bind(sample_ops.dot()), lambda x, y: bind(energy)(x, y[..., 0])):
        (x,) = leaves(torch.ones(*shape, 3))
        out = f(x, x)
        assert out.shape == shape
        out.sum().backward()
        assert x.grad.shape == (*shape, 3)
        if shape[0]:  # torch.func.vmap refuses a mapped dimension of size 0
            assert vmap(grad(lambda x, f=f: f(x, x).sum()))(x).shape == (*shape, 3)


def test_only_the_inputs_that_require_it_get_a_gradient():
    f = bind(sample_ops.affine())
    x, s, b = X, tensor(2.0).requires_grad_(), tensor(1.0)
    out = f(x, s, b)
    (g,) = torch.autograd.grad(out.sum(), s)
    close(g, X.sum())
    assert not f(X, tensor(2.0), b).requires_grad


def test_no_grad_and_inference_mode_give_plain_values():
    f = bind(sample_ops.affine())
    args = leaves(X, tensor(2.0), tensor(1.0))
    with torch.no_grad():
        out = f(*args)
    assert not out.requires_grad
    with torch.inference_mode():
        out = f(*args)
        assert out.is_inference()
        close(vmap(f, (0, None, None))(X[:, None], tensor(2.0), tensor(1.0))[:, 0], 2 * X + 1)
    close(out, 2 * X + 1)


def test_double_backward_can_be_repeated():
    f = bind(sample_ops.cube())
    (x,) = leaves(X)
    for _ in range(3):
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        for _ in range(2):
            (h,) = torch.autograd.grad(g.sum(), x, retain_graph=True)
            close(h, 6 * X)


@pytest.mark.parametrize("order", [1, 2])
def test_memory_is_freed_when_the_graph_is_dropped(order):
    f = bind(sample_ops.cube())
    x = torch.randn(1000, requires_grad=True)
    y = x * 2
    out = f(y)
    if order == 2:
        (g,) = torch.autograd.grad(out.sum(), y, create_graph=True)
    else:
        g = None
    refs = [weakref.ref(y), weakref.ref(out)]
    gc.disable()
    try:
        del y, out, g
        assert [r() for r in refs] == [None, None]
    finally:
        gc.enable()


def test_an_op_can_be_called_from_many_threads():
    f = bind(sample_ops.cube(100))

    def both(i):
        x = tensor(float(i)).requires_grad_()
        return float(torch.autograd.grad(f(x), x)[0]) + float(grad(f)(x))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(both, range(200))) == [600.0 * i**2 for i in range(200)]


def test_a_pickled_op_is_bound_to_the_same_function():
    op = pickle.loads(pickle.dumps(sample_ops.module_level))
    assert bind(op) is bind(sample_ops.module_level)


@pytest.mark.parametrize("value", [[1.0], np.ones(2), "x", None])
def test_an_argument_that_is_no_tensor_is_named_with_its_type(value):
    with pytest.raises(ArgumentError, match=rf"dot .*y is a {type(value).__name__}"):
        bind(sample_ops.dot())(X, value)


def test_vjp_and_jvp_of_broadcast_inputs_agree():
    f = bind(sample_ops.affine())
    args = torch.randn(2, 1, 3).double(), torch.randn(4).double(), tensor(1.0)
    dots = tuple(torch.randn_like(a) for a in args)
    out, pull = vjp(f, *args)
    ct = torch.randn_like(out)
    _, dot = jvp(f, args, dots)
    close((ct * dot).sum(), sum((g * d).sum() for g, d in zip(pull(ct), dots, strict=True)))
