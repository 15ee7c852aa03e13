"""An op that nobody holds is freed, whatever was done with it in torch."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch.func import grad, jacfwd, vmap

from tests import sample_ops
from twingrad.interop import ArgumentError, Cache, from_jacobian, from_numpy
from twingrad.interop.torch import bind

X = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)


def of_numpy():
    big = np.ones(3)
    return from_numpy(lambda x: x * big, signature="(n)->(n)", vjp=lambda ct, x: ct * big)


def of_jacobian():
    big = np.ones(3)
    return from_jacobian(
        lambda x: (x * big).sum(), lambda x: big, signature="(n)->()", hess=lambda x: np.eye(3)
    )


def of_both():
    big = np.ones(3)
    return from_jacobian(lambda x: ((x * big).sum(), big), True, signature="(n)->()")


def cached():
    cache = Cache(4)
    f = sample_ops.Recorder()
    return from_numpy(lambda x: cache.get(f.value, np, x, 1.0), signature="(n)->()")


MAKERS = {
    "array": sample_ops.cube,
    "array, vjp": lambda: sample_ops.cube(rules="vjp"),
    "array, jvp": lambda: sample_ops.cube(rules="jvp"),
    "host": lambda: sample_ops.host_sin(second=False),
    "host, by another": sample_ops.host_sin,
    "static": sample_ops.power,
    "static, host": sample_ops.host_power,
    "from_numpy": of_numpy,
    "from_jacobian": of_jacobian,
    "from_jacobian, both": of_both,
    "cached": cached,
}


def backward(f):
    y = f(X.clone().requires_grad_()).sum()
    if y.requires_grad:
        y.backward()


def attempt(transform):
    """Some have no rule for it."""

    def call(f):
        try:
            transform(f)(X)
        except NotImplementedError:
            pass

    return call


def compiled(backend):
    def call(f):
        torch.compile(lambda x: f(x) + 1, backend=backend, fullgraph=True)(X)
        g = torch.compile(lambda x: f(x) * 2, backend=backend)
        try:
            backward(g)
        except Exception as error:  # Dynamo wraps what a missing rule raises
            assert "no rules of its own" in str(error) or "needs a vjp" in str(error)

    return call


def exported(f):
    class Layer(torch.nn.Module):
        def forward(self, x):
            return f(x)

    torch.export.export(Layer(), (X,), strict=False).module()(X)


MODES = {
    "call": lambda f: f(X),
    "backward": attempt(lambda f: lambda x: backward(f)),
    "grad": attempt(lambda f: grad(lambda x: f(x).sum())),
    "vmap": lambda f: vmap(f)(torch.stack([X, X])),
    "jacfwd": attempt(jacfwd),
    "second": attempt(lambda f: grad(lambda x: grad(lambda x: f(x).sum())(x).sum())),
    "export": exported,
    "eager": compiled("eager"),
    "aot_eager": compiled("aot_eager"),
}


SLOW = set(MODES) & {"export", "eager", "aot_eager"}
QUICK = {"array", "host, by another", "from_jacobian"}
CASES = [
    *[(mode, MAKERS.keys()) for mode in MODES if mode not in SLOW],
    *[(mode, QUICK) for mode in sorted(SLOW)],
    *[pytest.param(mode, MAKERS.keys() - QUICK, marks=pytest.mark.slow) for mode in sorted(SLOW)],
]


@pytest.mark.parametrize(("mode", "makers"), CASES)
def test_an_op_that_nobody_holds_is_freed(mode, makers):
    torch._dynamo.reset()
    held = [(maker, i, ref) for maker in makers for i, ref in enumerate(references(maker, mode))]
    gc.collect()
    assert [(maker, i) for maker, i, ref in held if ref() is not None] == []


def references(maker, mode):
    """Weak ones, to the op and all that belongs to it."""
    op = MAKERS[maker]()
    f = bind(op)
    MODES[mode](f)
    return [weakref.ref(x) for x in (op, f, op.written["function"], *op.parts.values())]


@pytest.mark.parametrize("maker", sorted(set(MAKERS) - {"cached"}))
def test_a_graph_of_autograd_keeps_its_op(maker):
    op = MAKERS[maker]()
    x = X.clone().requires_grad_()
    y = bind(op)(x).sum()
    held = weakref.ref(op)
    del op
    gc.collect()
    assert held() is not None
    y.backward()
    assert x.grad is not None
    del y, x
    gc.collect()
    assert held() is None


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("maker", ["array", "host"])
def test_compiled_code_that_the_user_holds_keeps_its_op(maker, backend):
    torch._dynamo.reset()
    g = plus_one(MAKERS[maker](), backend)
    found = g(X)
    gc.collect()
    assert torch.equal(g(X), found)


def plus_one(op, backend):
    f = bind(op)
    return torch.compile(lambda x: f(x) + 1, backend=backend, fullgraph=True)


def test_a_graph_whose_op_is_gone_says_so():
    make_fx = torch.fx.experimental.proxy_tensor.make_fx
    graph = make_fx(bind(sample_ops.host_sin()))(X)
    others = [bind(sample_ops.host_sin()) for _ in range(3)]
    gc.collect()
    with pytest.raises(ArgumentError, match=r"host_sin \(\)->\(\): .*is gone; keep the op"):
        graph(X)
    assert all(torch.equal(f(X), torch.sin(X)) for f in others)


def test_many_ops_leave_nothing_in_the_registries():
    """Array and host ops, and one op with many static values."""
    from torch._dynamo import trace_rules

    from twingrad.interop.torch.graphs import names

    allowed = trace_rules._allowed_callable_ids.function_ids
    kept = (names._FUNCTIONS, names._OPS, names._IDENTITIES, names._OWNERS, allowed)
    many, sizes = bind(sample_ops.host_power()), []
    for i in range(300):
        for make in (sample_ops.cube, sample_ops.host_sin):
            backward(bind(make()))
        backward(lambda x, p=float(i): many(x, p=p))
        if i % 100 == 99:
            gc.collect()
            sizes.append(tuple(map(len, kept)))
    assert all(late <= early for early, late in zip(sizes[0], sizes[2], strict=True)), sizes
