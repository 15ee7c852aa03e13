"""Quotients whose derivatives are right in every unit.

A rule that divides by x is differentiated by the framework, in JAX through x^-2, which
overflows below 1e-154 (float64; 1e-19 in float32) though the derivative itself may be an
ordinary number: x can be a length in metres.  So an op returns u = `unit(x)`, which is about
1/x, as a hidden output, and its rules write y/x as (y / (x u)) u.  That is y/x for every u, so
u counts as a constant: its tangent is 0 (None), and its cotangent is ignored.
"""

from __future__ import annotations

from typing import Any


def unit(xp: Any, x: Any) -> Any:
    """1/x for x >= 0, kept finite and above 0."""
    limits = xp.finfo(x.dtype)
    return xp.clip(1.0 / x, float(limits.smallest_normal), float(limits.max))


def over(y: Any, xu: Any, u: Any) -> Any:
    """y / x, from the product x u with u = `unit(x)`."""
    return (y / xu) * u
