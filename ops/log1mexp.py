"""log(1 - exp(x)), the smallest op of the package: the one to copy."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops._special import expm1, log1p

_LOG_2 = 0.6931471805599453


@define("()->()")
def log1mexp(xp: Any, x: Any) -> Any:
    """log(1 - exp(x)) for x <= 0, accurate near 0 and far from it.

    Args:
        x: log-probability, shape (), x <= 0; NaN above 0.

    Returns:
        The log of the complementary probability, shape (); -inf at x = 0.

    Reference: M. Maechler (2012), "Accurately computing log(1 - exp(-|a|))", equation 7,
    with a = -x.
    """
    return xp.where(x > -_LOG_2, xp.log(-expm1(xp, x)), log1p(xp, -xp.exp(x)))


# d/dx log(1 - e^x) = -e^x / (1 - e^x) = e^x / expm1(x).  The same as -1 / expm1(-x), but its
# own derivative does not overflow for x far below 0.
@log1mexp.def_vjp
def _(xp: Any, ct: Any, out: Any, x: Any) -> Any:
    return ct * xp.exp(x) / expm1(xp, x)
