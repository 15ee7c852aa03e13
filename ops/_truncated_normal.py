"""The law N(mean, scale^2) cut off to [lower, upper]: what the ops on it share.

`interval` gives (F, E) and the parts (mu, q, t, log w, u, ug) of the reflected, standardised
interval, see `_normal_interval`; F = log P(lower < X < upper).  The parts are outputs of the
op that calls it, because its rules need them and rules see inputs, outputs and cotangents
only.
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


def interval(xp: Any, mean: Any, scale: Any, lower: Any, upper: Any) -> tuple[Any, Any, Arrays]:
    """(F, E, parts), elementwise."""
    t, log_w, u, ug, exact = standardize(xp, mean, scale, lower, upper)
    log_d, mu, q, mass = log_mass(xp, t, *exact)
    return log_d, mass, (mu, q, t, log_w, u, ug)


def saturated(parts: Arrays) -> Any:
    """Where both densities have underflowed: every derivative of F is 0 there."""
    mu, q = parts[:2]
    return (mu == 0) & (q == 0)


def interval_jvp(xp: Any, tangents: Arrays, parts: Arrays, dead: Any, *inputs: Any) -> Arrays:
    """The tangents of F and the parts; the others are of mean, scale, lower, upper."""
    mu, q, t, log_w, *units = parts
    moved = standardize_jvp(xp, tangents, (t, *units), dead, *inputs)
    return (*log_mass_jvp(xp, moved, (mu, q), t, log_w), *moved, None, None)


# The transpose of the rule above.  A cotangent is None where nobody differentiates that
# output; for a first derivative only that of F is there.
def interval_vjp(xp: Any, cts: Any, parts: Arrays, dead: Any, *inputs: Any) -> Any:
    """The gradients of mean, scale, lower, upper, in the broadcast shape."""
    mu, q, t, log_w, *units = parts
    *mass_bars, t_direct, l_direct, _, _ = cts
    t_bar, l_bar = log_mass_vjp(xp, tuple(mass_bars), (mu, q), t, log_w)
    t_bar = t_bar if t_direct is None else t_bar + t_direct
    l_bar = l_bar if l_direct is None else l_bar + l_direct
    return standardize_vjp(xp, (t_bar, l_bar), (t, *units), dead, *inputs)
