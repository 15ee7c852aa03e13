"""The log-normaliser of a truncated Gaussian mixture: what its likelihood needs."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops._truncated_normal import interval, interval_jvp, interval_vjp, saturated


@define("(k),(k),(k),(),()->(),(k),(k),(k),(k),(k),(k),(k),()", hidden=8)
def truncated_mixture_log_normalizer(
    xp: Any, means: Any, scales: Any, weights: Any, lower: Any, upper: Any
) -> Any:
    """log Z with Z = sum_j p_j D_j, D_j = Phi((hi - m_j)/s_j) - Phi((lo - m_j)/s_j).

    Z is the mass that the mixture sum_j p_j N(m_j, s_j^2) puts on [lo, hi].

    Args:
        means: m, shape (k), in the unit of the data.
        scales: s, shape (k), > 0, in the unit of the data.
        weights: p, shape (k), >= 0; they need not add up to 1.
        lower: lo, shape (); -inf allowed.
        upper: hi, shape (), > lo; +inf allowed.

    Returns:
        log Z, shape (), accurate also where every D_j has underflowed.  lower = upper gives
        -inf with NaN gradients, lower > upper NaN.

    Reference: Phi and phi are those of DLMF 7.1-7.2; the density of a truncated mixture is
    sum_j p_j phi((x - m_j)/s_j) / (s_j Z) on [lo, hi].
    """
    lower, upper = lower[..., None], upper[..., None]
    masses, scaled, (*parts, ug) = interval(xp, means, scales, lower, upper)
    live = weights > 0
    highest = xp.max(xp.where(live, masses, -xp.inf), axis=-1, keepdims=True)
    # where all masses have underflowed, the nearest component has the largest
    rank = xp.where(live, xp.where(highest == -xp.inf, -parts[2], masses), -xp.inf)
    at = xp.argmax(rank, axis=-1, keepdims=True)
    x = _relative(xp, at, scaled, parts[2], means, scales, lower, upper)
    px = weights * x
    total = xp.sum(px, axis=-1, keepdims=True)
    log_z = xp.where(highest == -xp.inf, highest, highest + xp.log(total))
    total = xp.where(total == 0, 1.0, xp.where(total < 0, xp.nan, total))
    return (log_z[..., 0], x / total, px / total, *parts, ug[..., 0])


# D_j / D_top, to full relative accuracy at any distance.  With E as in `log_mass` and tau the
# positive part of t,
#   D_j / D_top = E_j / E_top exp(-(tau_j - tau_top)(tau_j + tau_top) / 2).
# tau is rounded, so its difference must not be taken from it where the window is outside of
# both laws and on the same side.  With d = tau s the distance from the mean, exactly then
#   tau_j - tau_top = (d_j - d_top + tau' (s_top - s_j)) / max(s_j, s_top),
# d_j - d_top is a difference of means, and tau' belongs to the narrower of the two laws.
def _relative(xp: Any, at: Any, E: Any, t: Any, means: Any, scales: Any, *window: Any) -> Any:
    # all of one shape: JAX refuses to take, of one array for all samples, sharded ones
    zero = 0.0 * E
    alike = E, t, means + zero, scales + zero
    E_top, t_top, m_top, s_top = [xp.take_along_axis(x, at, axis=-1) for x in alike]
    lower, upper = window
    left = m_top < lower  # then distance grows with -m, otherwise with m
    one = xp.ones_like(m_top)
    sign, edge = xp.where(left, -one, one), xp.where(left, -lower, upper)
    edge = xp.where(t_top > 0, edge, xp.inf)
    signed = sign * means
    of_narrower = xp.where(scales < s_top, t, t_top)
    apart = (signed - sign * m_top) + of_narrower * (s_top - scales)
    tau, tau_top = xp.clip(t, 0.0, None), xp.clip(t_top, 0.0, None)
    apart = xp.where(signed > edge, apart / xp.maximum(scales, s_top), tau - tau_top)
    ratio = E / E_top * xp.exp((-0.5 * apart) * (tau + tau_top))
    limits = xp.finfo(t.dtype)  # only a weight of 0 can meet them
    return xp.clip(ratio, None, float(limits.max) * float(limits.eps))


# With rho_j = D_j / Z and the responsibilities r_j = p_j rho_j:
#   d log Z = sum_j rho_j dp_j + r_j d log D_j,
#   d rho_j = rho_j (d log D_j - d log Z),   d r_j = r_j (d log D_j - d log Z) + rho_j dp_j,
# and d log D_j follows from the interval of component j.  Both are hidden outputs: taken
# from log Z, which is of the order t^2, they would lose t^2 times the rounding.  Where rho_j
# underflows, the component contributes nothing to any derivative.
def _dead(log_z: Any, rho: Any, parts: Any) -> Any:
    known = (log_z == log_z)[..., None]  # NaN has NaN derivatives
    return (rho == 0) | (saturated(parts) & known)


@truncated_mixture_log_normalizer.def_vjp
def _(
    xp: Any, ct: Any, out: Any, means: Any, scales: Any, weights: Any, lower: Any, upper: Any
) -> Any:
    (z_bar, rho_bar, r_bar, *rest), (log_z, rho, r, *parts, ug) = ct, out
    own = _plus(_times(rho_bar, rho), _times(r_bar, r))
    z_bar = z_bar if own is None else z_bar - xp.sum(own, axis=-1)
    z_bar = z_bar[..., None]
    p_bar = _plus(z_bar * rho, _times(r_bar, rho))
    cts = _plus(z_bar * r, own), *rest
    inputs = means, scales, lower[..., None], upper[..., None]
    parts = (*parts, ug[..., None])
    m_bar, s_bar, lo_bar, hi_bar = interval_vjp(xp, cts, parts, _dead(log_z, rho, parts), *inputs)
    return m_bar, s_bar, p_bar, xp.sum(lo_bar, axis=-1), xp.sum(hi_bar, axis=-1)


def _plus(x: Any, y: Any) -> Any:
    """x + y, where None is 0."""
    return y if x is None else x if y is None else x + y


def _times(x: Any, y: Any) -> Any:
    return None if x is None else x * y


@truncated_mixture_log_normalizer.def_jvp
def _(
    xp: Any, tangents: Any, out: Any, means: Any, scales: Any, weights: Any, lower: Any, upper: Any
) -> Any:
    m_dot, s_dot, p_dot, lo_dot, hi_dot = tangents
    log_z, rho, r, *parts, ug = out
    inputs = means, scales, lower[..., None], upper[..., None]
    dots = m_dot, s_dot, lo_dot[..., None], hi_dot[..., None]
    parts = (*parts, ug[..., None])
    f_dot, *moved = interval_jvp(xp, dots, parts, _dead(log_z, rho, parts), *inputs)
    own = rho * p_dot
    z_dot = xp.sum(own + r * f_dot, axis=-1)
    step = f_dot - z_dot[..., None]
    return (z_dot, rho * step, r * step + own, *moved)
