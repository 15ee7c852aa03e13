"""log(Phi(b) - Phi(a)), the log of the mass that a normal law puts on an interval."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops._truncated_normal import interval, interval_jvp, interval_vjp, saturated


@define("(),()->(),(),(),(),(),()", hidden=5)
def log_ndtr_diff(xp: Any, a: Any, b: Any) -> Any:
    """log(Phi(b) - Phi(a)) for a < b, accurate in both tails and in narrow intervals.

    Phi is the standard normal distribution function.  d/da = -phi(a)/D, d/db = phi(b)/D
    with D = Phi(b) - Phi(a) and the density phi.

    For a law with a mean and a scale use `truncated_normal_log_mass`: with a = (lower - m)/s
    the division is yours, and at an infinite cut-off the gradient in s is 0 times inf, NaN.

    Args:
        a: lower end, shape (); -inf allowed.
        b: upper end, shape (); +inf allowed.

    Returns:
        The log mass, shape (), <= 0.  a = b gives -inf, with the infinite derivatives that
        are the limit; a > b gives NaN.

    Reference: see `twingrad.ops._normal_interval`, which holds the formulas.
    """
    log_d, _, (*parts, _, ug) = interval(xp, xp.zeros_like(a), xp.ones_like(a), a, b)
    return (log_d, *parts, ug)


# F depends on (a, b) through the near end t of the reflected interval and its width w; both
# steps of the chain stand in _normal_interval, here with mean 0, scale 1 and its unit 1.
@log_ndtr_diff.def_vjp
def _(xp: Any, ct: Any, out: Any, a: Any, b: Any) -> Any:
    (*cts, _), (_, *parts, ug) = ct, out
    zero, one = xp.zeros_like(a), xp.ones_like(a)
    parts = (*parts, one, ug)
    found = interval_vjp(xp, (*cts, None, None), parts, saturated(parts), zero, one, a, b)
    return found[2:]


@log_ndtr_diff.def_jvp
def _(xp: Any, tangents: Any, out: Any, a: Any, b: Any) -> Any:
    _, *parts, ug = out
    zero, one = xp.zeros_like(a), xp.ones_like(a)
    parts, dots = (*parts, one, ug), (zero, zero, *tangents)
    *moved, _, _ = interval_jvp(xp, dots, parts, saturated(parts), zero, one, a, b)
    return (*moved, None)
