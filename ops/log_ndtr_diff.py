"""log(Phi(b) - Phi(a)), the log of the mass that a normal law puts on an interval."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops._truncated_normal import interval, interval_jvp, interval_vjp, saturated


@define("(),()->(),(),(),(),()", hidden=4)
def log_ndtr_diff(xp: Any, a: Any, b: Any) -> Any:
    """log(Phi(b) - Phi(a)) for a < b, accurate in both tails and in narrow intervals.

    Phi is the standard normal distribution function.  d/da = -phi(a)/D, d/db = phi(b)/D
    with D = Phi(b) - Phi(a) and the density phi.

    Args:
        a: lower end, shape (); -inf allowed.
        b: upper end, shape (); +inf allowed.

    Returns:
        The log mass, shape (), <= 0.  a = b gives -inf, with the infinite derivatives that
        are the limit; a > b gives NaN.

    Reference: see `twingrad.ops._normal_interval`, which holds the formulas.
    """
    return interval(xp, xp.zeros_like(a), 1.0, a, b)


# F depends on (a, b) through the near end t of the reflected interval and its width w; both
# steps of the chain stand in _normal_interval, here with mean 0 and scale 1.
@log_ndtr_diff.def_vjp
def _(xp: Any, ct: Any, out: Any, a: Any, b: Any) -> Any:
    standard = xp.zeros_like(a), 1.0
    _, _, a_bar, b_bar = interval_vjp(xp, ct, out, saturated(out), *standard, a, b)
    return a_bar, b_bar


@log_ndtr_diff.def_jvp
def _(xp: Any, tangents: Any, out: Any, a: Any, b: Any) -> Any:
    standard = xp.zeros_like(a), 1.0
    return interval_jvp(xp, (0.0, 0.0, *tangents), out, saturated(out), *standard, a, b)
