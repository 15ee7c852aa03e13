"""log(1 - exp(x)), the smallest op of the package: the one to copy."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops._special import expm1, log1p

_LOG_2 = 0.6931471805599453


@define("()->(),()", hidden=1)
def log1mexp(xp: Any, x: Any) -> Any:
    """log(1 - exp(x)) for x <= 0, accurate near 0 and far from it.

    Args:
        x: log-probability, shape (), x <= 0; NaN above 0.

    Returns:
        The log of the complementary probability, shape (); -inf at x = 0.

    Reference: M. Maechler (2012), "Accurately computing log(1 - exp(-|a|))", equation 7,
    with a = -x.
    """
    small = expm1(xp, x)
    value = xp.where(x > -_LOG_2, xp.log(-small), log1p(xp, -xp.exp(x)))
    return value, xp.where(x > 0, xp.nan, xp.exp(x) / small)


# d/dx log(1 - e^x) = -e^x / (1 - e^x) = e^x / expm1(x) =: s, and ds/dx = s (1 - s), in which
# nothing cancels, for s <= 0.  So s is a hidden output: left to autodiff, its derivative
# would need the square of expm1(x), which underflows near 0.
@log1mexp.def_vjp
def _(xp: Any, ct: Any, out: Any, x: Any) -> Any:
    (y_bar, s_bar), (_, s) = ct, out
    return y_bar * s if s_bar is None else y_bar * s + (s_bar * s) * (1.0 - s)
