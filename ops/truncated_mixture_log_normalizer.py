"""The log-normaliser of a truncated Gaussian mixture: what its likelihood needs."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops._truncated_normal import interval, interval_jvp, interval_vjp, saturated


@define("(k),(k),(k),(),()->(),(k),(k),(k),(k),(k)", hidden=5)
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
    out = interval(xp, means, scales, lower[..., None], upper[..., None])
    masses = out[0]
    top = xp.max(xp.where(weights > 0, masses, -xp.inf), axis=-1, keepdims=True)
    top = xp.where(top == -xp.inf, 0.0, top)
    # no mass with a weight above 0 exceeds top, and the others must not overflow
    total = xp.sum(weights * xp.exp(xp.clip(masses - top, None, 0.0)), axis=-1)
    return (top[..., 0] + xp.log(total), *out)


# With rho_j = D_j / Z and the responsibilities r_j = p_j rho_j:
#   d log Z = sum_j rho_j dp_j + r_j d log D_j,
# and d log D_j follows from the interval of component j.  Where rho_j underflows, the
# component contributes nothing to any derivative.
def _ratio(xp: Any, log_z: Any, out: Any) -> tuple[Any, Any]:
    bound = 709.0 if xp.finfo(log_z.dtype).bits == 64 else 88.0
    rho = xp.exp(xp.clip(out[0] - log_z[..., None], None, bound))
    return rho, (rho == 0) | saturated(out)


@truncated_mixture_log_normalizer.def_vjp
def _(
    xp: Any, ct: Any, out: Any, means: Any, scales: Any, weights: Any, lower: Any, upper: Any
) -> Any:
    (z_bar, f_bar, *rest), (log_z, *parts) = ct, out
    rho, dead = _ratio(xp, log_z, parts)
    p_bar = z_bar[..., None] * rho
    mass_bar = p_bar * weights
    mass_bar = mass_bar if f_bar is None else mass_bar + f_bar
    inputs = means, scales, lower[..., None], upper[..., None]
    m_bar, s_bar, lo_bar, hi_bar = interval_vjp(xp, (mass_bar, *rest), tuple(parts), dead, *inputs)
    return m_bar, s_bar, p_bar, xp.sum(lo_bar, axis=-1), xp.sum(hi_bar, axis=-1)


@truncated_mixture_log_normalizer.def_jvp
def _(
    xp: Any, tangents: Any, out: Any, means: Any, scales: Any, weights: Any, lower: Any, upper: Any
) -> Any:
    m_dot, s_dot, p_dot, lo_dot, hi_dot = tangents
    log_z, *parts = out
    rho, dead = _ratio(xp, log_z, parts)
    inputs = means, scales, lower[..., None], upper[..., None]
    dots = m_dot, s_dot, lo_dot[..., None], hi_dot[..., None]
    moved = interval_jvp(xp, dots, tuple(parts), dead, *inputs)
    return (xp.sum(rho * (p_dot + weights * moved[0]), axis=-1), *moved)
