"""Compilers, exports, fake and meta tensors see a fused op as the plain one."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad

from tests import fused, sample_ops
from twingrad.interop import define

pytestmark = pytest.mark.compile
X = torch.linspace(-2.0, -0.2, 6, dtype=torch.float64)


TRACED = {
    "fake": lambda f: _under_fake(f),
    "meta": lambda f: f(torch.ones(4, device="meta")),
    "compiled": lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)(X),
    "compiled gradient": lambda f: torch.compile(
        grad(lambda x: f(x).sum()), backend="aot_eager", fullgraph=True
    )(X),
    "exported": lambda f: torch.export.export(_Layer(f), (X,), strict=False).module()(X),
    "exported strictly": lambda f: torch.export.export(_Layer(f), (X,), strict=True).module()(X),
    "made by make_fx": lambda f: torch.fx.experimental.proxy_tensor.make_fx(f)(X)(X),
    "linearized": lambda f: torch.func.linearize(f, X)[1](X),
}


class _Layer(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


def _under_fake(f):
    with FakeTensorMode():
        return f(torch.ones(4))


@pytest.mark.parametrize("name", TRACED)
def test_who_traces_gets_the_plain_op(name, monkeypatch):
    torch._dynamo.reset()
    fused.of_torch_operations(monkeypatch)
    calls = fused.Calls(monkeypatch)
    f, plain = fused.both(sample_ops.cube())
    ran = calls.of(lambda: TRACED[name](f))
    assert ran == 0 or name == "linearized"  # which calls the function itself first
    if name not in ("fake", "meta"):
        torch.testing.assert_close(TRACED[name](f), TRACED[name](plain))


def test_structured_arguments_have_kernels_and_compile(monkeypatch):
    fused.of_torch_operations(monkeypatch)

    @define("{a: (), b: ()},(n)->(n)")
    def line(xp, p, x):
        return p["a"][..., None] * x + p["b"][..., None]

    @line.def_vjp
    def _(xp, ct, out, p, x):
        bars = {"a": xp.sum(ct * x, axis=-1), "b": xp.sum(ct, axis=-1)}
        return bars, ct * p["a"][..., None]

    f, plain = fused.both(line)
    a, b, x = torch.rand(5), torch.rand(5), torch.rand(5, 3)

    def of(f):
        return lambda a, b, x: f({"a": a, "b": b}, x)

    calls = fused.Calls(monkeypatch)
    every = (0, 1, 2)
    got, want = (grad(lambda *v, g=g: of(g)(*v).sum(), every)(a, b, x) for g in (f, plain))
    assert calls.run == 2
    torch.testing.assert_close(got, want)
    whole = torch.compile(of(f), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(whole(a, b, x), of(plain)(a, b, x))
    assert calls.run == 2
