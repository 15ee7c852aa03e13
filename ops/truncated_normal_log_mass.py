"""The log of the mass that a normal law with a mean and a scale puts on an interval."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops._truncated_normal import interval, interval_jvp, interval_vjp, saturated


@define("(),(),(),()->(),(),(),(),(),(),()", hidden=6)
def truncated_normal_log_mass(xp: Any, mean: Any, scale: Any, lower: Any, upper: Any) -> Any:
    """log P(lower < X < upper) for X ~ N(mean, scale^2).

    The log-likelihood of x under the law cut off to [lower, upper] is that of the whole law
    less this.  Accurate in both tails, in narrow intervals, with cut-offs at infinity, and in
    every unit; so are its derivatives, of which that in the scale is finite at an infinite
    cut-off, too.

    Args:
        mean: shape (), in the unit of the data.
        scale: standard deviation, shape (), > 0, in the unit of the data.
        lower: shape (); -inf allowed.
        upper: shape (), > lower; +inf allowed.

    Returns:
        The log mass, shape (), <= 0.  lower = upper gives -inf, with the limits as
        derivatives, of which those in lower and upper are infinite.  lower > upper gives
        NaN, as do its derivatives.

    Reference: see `twingrad.ops._normal_interval`, which holds the formulas.
    """
    log_d, _, parts = interval(xp, mean, scale, lower, upper)
    return (log_d, *parts)


# F depends on the arguments through the near end t of the reflected, standardised interval
# and its width w; both steps of the chain stand in _normal_interval.
@truncated_normal_log_mass.def_vjp
def _(xp: Any, ct: Any, out: Any, *inputs: Any) -> Any:
    return interval_vjp(xp, ct, out[1:], saturated(out[1:]), *inputs)


@truncated_normal_log_mass.def_jvp
def _(xp: Any, tangents: Any, out: Any, *inputs: Any) -> Any:
    return interval_jvp(xp, tangents, out[1:], saturated(out[1:]), *inputs)
