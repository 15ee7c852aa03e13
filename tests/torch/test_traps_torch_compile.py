"""Two ops compiled in one process stay two ops, whichever way the compiler meets them."""

import pytest
import torch
from torch.func import grad

from twingrad.interop import define
from twingrad.interop.torch import bind

CALL = torch.compile(lambda f, x: f(x), backend="eager")
WAYS = {
    "directly": lambda f: torch.compile(f, backend="eager"),
    "grad": lambda f: torch.compile(grad(f), backend="eager"),
    "default argument": lambda f: torch.compile(lambda x, f=f: f(x), backend="eager"),
    "closure": lambda f: torch.compile(lambda x: f(x), backend="eager"),
    "argument": lambda f: lambda x: CALL(f, x),
}


def times(factor, host):
    @define("()->()", host=host)
    def times(xp, x):
        return factor * x

    times.def_vjp(lambda xp, ct, out, x: factor * ct)
    return bind(times)


@pytest.mark.compile
@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_each_compiled_op_is_itself(way, host):
    """Dynamo keeps what it compiled by code object, and binders share theirs among ops."""
    torch._dynamo.reset()
    ops = [times(float(k), host) for k in (2, 3, 4)]
    x = torch.ones(())
    compiled = [WAYS[way](f) for f in ops]
    assert [float(f(x)) for f in compiled] == [2, 3, 4]
    assert [float(f(x)) for f in compiled] == [2, 3, 4]
