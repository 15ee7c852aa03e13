"""Structured ops at names of a module, which other processes import."""

from tests.structured_ops import of_numpy
from twingrad.interop import define, from_numpy

SIGNATURE = "{rate: (), shift: (n)}, (t) -> (t)"


@define(SIGNATURE)
def line(xp, params, t):
    return params.rate[..., None] * t + xp.sum(params.shift, axis=-1)[..., None]


@line.def_vjp
def line_bars(xp, ct, out, params, t):
    total = xp.sum(ct, axis=-1)
    shift_bar = total[..., None] * xp.ones_like(params.shift)
    return {"rate": xp.sum(ct * t, axis=-1), "shift": shift_bar}, ct * params.rate[..., None]


host_line = from_numpy(
    of_numpy(line.written["function"].function),
    signature=SIGNATURE,
    vjp=of_numpy(line_bars),
    name="host_line",
)
host_line.__module__ = __name__
