"""The law N(mean, scale^2) cut off to [lower, upper]: what the ops on it share.

`interval` gives (F, mu, q, t, log w) of the reflected, standardised interval, see
`_normal_interval`; F = log P(lower < X < upper).  All five are outputs of the op that
calls it, because its rules need them and rules see inputs, outputs and cotangents only.
"""

from __future__ import annotations

from typing import Any

from twingrad.ops._normal_interval import (
    log_mass,
    log_mass_jvp,
    log_mass_vjp,
    standardize,
    standardize_jvp,
    standardize_vjp,
)

Arrays = tuple[Any, ...]


def interval(xp: Any, mean: Any, scale: Any, lower: Any, upper: Any) -> Arrays:
    """(F, mu, q, t, log w), elementwise."""
    t, log_w, exact = standardize(xp, mean, scale, lower, upper)
    return (*log_mass(xp, t, log_w, exact), t, log_w)


def saturated(out: Arrays) -> Any:
    """Where both densities have underflowed: every derivative of F is 0 there."""
    _, mu, q, _, _ = out
    return (mu == 0) & (q == 0)


# Where `dead`, derivatives are 0 to every order, and so they are made: t, scale or the
# densities may be so large or small there that their products would be 0 times inf.
def interval_jvp(xp: Any, tangents: Arrays, out: Arrays, dead: Any, *inputs: Any) -> Arrays:
    """The tangents of (F, mu, q, t, log w); the others are of mean, scale, lower, upper."""
    *masses, t, log_w = out
    mean, scale, lower, upper = inputs
    scale = xp.where(dead, 1.0, scale)
    t_dot, l_dot = standardize_jvp(xp, tangents, (t, log_w), mean, scale, lower, upper)
    t_dot, l_dot = xp.where(dead, 0.0, t_dot), xp.where(dead, 0.0, l_dot)
    return (*log_mass_jvp(xp, (t_dot, l_dot), tuple(masses), t, log_w), t_dot, l_dot)


# The transpose of the rule above.  A cotangent is None where nobody differentiates that
# output; for a first derivative only that of F is there.
def interval_vjp(xp: Any, cts: Arrays, out: Arrays, dead: Any, *inputs: Any) -> Any:
    """The gradients of mean, scale, lower, upper, in the broadcast shape."""
    *masses, t, log_w = out
    *mass_bars, t_direct, l_direct = cts
    mean, scale, lower, upper = inputs
    scale = xp.where(dead, 1.0, scale)
    t_bar, l_bar = log_mass_vjp(xp, tuple(mass_bars), tuple(masses), t, log_w)
    t_bar = t_bar if t_direct is None else t_bar + t_direct
    l_bar = l_bar if l_direct is None else l_bar + l_direct
    t_bar, l_bar = xp.where(dead, 0.0, t_bar), xp.where(dead, 0.0, l_bar)
    return standardize_vjp(xp, (t_bar, l_bar), (t, log_w), mean, scale, lower, upper)
