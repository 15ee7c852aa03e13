"""The law N(mean, scale^2) cut off to [lower, upper]: what the ops on it share.

`interval` gives (F, mu, h, t, w) of the reflected, standardised interval, see
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
    """(F, mu, h, t, w), elementwise."""
    t, w, c = standardize(xp, mean, scale, lower, upper)
    return (*log_mass(xp, t, w, c), t, w)


def saturated(out: Arrays) -> Any:
    """Where both densities have underflowed: every derivative of F is 0 there."""
    _, mu, h, _, _ = out
    return (mu == 0) & (h == 0)


# Where `dead`, derivatives are 0 to every order, and so they are made: t, scale or the
# densities may be so large or small there that their products would be 0 times inf.
def interval_jvp(xp: Any, tangents: Arrays, out: Arrays, dead: Any, *inputs: Any) -> Arrays:
    """The tangents of (F, mu, h, t, w); tangents and inputs of mean, scale, lower, upper."""
    f, mu, h, t, w = out
    mean, scale, lower, upper = inputs
    scale = xp.where(dead, 1.0, scale)
    t_dot, w_dot = standardize_jvp(xp, tangents, (t, w), mean, scale, lower, upper)
    t_dot, w_dot = xp.where(dead, 0.0, t_dot), xp.where(dead, 0.0, w_dot)
    return (*log_mass_jvp(xp, (t_dot, w_dot), (f, mu, h), t, w), t_dot, w_dot)


# The transpose of the rule above.  A cotangent is None where nobody differentiates that
# output; for a first derivative only that of F is there.
def interval_vjp(xp: Any, cts: Arrays, out: Arrays, dead: Any, *inputs: Any) -> Any:
    """The gradients of mean, scale, lower, upper, in the broadcast shape."""
    f, mu, h, t, w = out
    f_bar, mu_bar, h_bar, t_direct, w_direct = cts
    mean, scale, lower, upper = inputs
    scale = xp.where(dead, 1.0, scale)
    t_bar, w_bar = log_mass_vjp(xp, (f_bar, mu_bar, h_bar), (f, mu, h), t, w)
    t_bar = t_bar if t_direct is None else t_bar + t_direct
    w_bar = w_bar if w_direct is None else w_bar + w_direct
    t_bar, w_bar = xp.where(dead, 0.0, t_bar), xp.where(dead, 0.0, w_bar)
    return standardize_vjp(xp, (t_bar, w_bar), (t, w), mean, scale, lower, upper)
