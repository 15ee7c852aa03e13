"""The normalised weights of a truncated Gaussian mixture."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops.truncated_mixture_log_normalizer import truncated_mixture_log_normalizer as log_z


@define("(k),(k),(k),(),()->(k),(),(k),(k),(k),(k),(k),(k),(k),()", hidden=9)
def truncated_mixture_weights(
    xp: Any, means: Any, scales: Any, weights: Any, lower: Any, upper: Any
) -> Any:
    """w_i = p_i / Z with Z = sum_j p_j (Phi((hi - m_j)/s_j) - Phi((lo - m_j)/s_j)).

    With these weights sum_i w_i phi((x - m_i)/s_i)/s_i integrates to 1 over [lo, hi].

    Args:
        means: m, shape (k), in the unit of the data.
        scales: s, shape (k), > 0, in the unit of the data.
        weights: p, shape (k), >= 0; p_i = 0 is an ordinary point.
        lower: lo, shape (); -inf allowed.
        upper: hi, shape (), > lo; +inf allowed.

    Returns:
        w, shape (k).  Where 1/Z exceeds the largest number (a window some 38 scales away
        in float64, 13 in float32) it is inf: use `truncated_mixture_log_weights`.
        lower = upper is that case too; lower > upper gives NaN.

    Reference: see `truncated_mixture_log_normalizer`.
    """
    out = log_z.forward(xp, means, scales, weights, lower, upper)
    inverse = xp.exp(-out[0])[..., None]
    none = (weights == 0) & (inverse == xp.inf)  # 0 times inf
    return (xp.where(none, 0.0, weights * inverse), *out)


# Every w_i depends on every parameter through Z.  With g the cotangent of w and
# c = sum_i g_i w_i, which carries all cross terms:
#   dw_i = dp_i / Z - w_i d log Z,   hence   p_bar_j = g_j / Z - c D_j / Z,
# and all other gradients are those of log Z with the cotangent -c:
#   m_bar_j  = c w_j (phi(b_j) - phi(a_j)) / s_j
#   s_bar_j  = c w_j (b_j phi(b_j) - a_j phi(a_j)) / s_j
#   lo_bar   = c sum_j w_j phi(a_j) / s_j,   hi_bar = -c sum_j w_j phi(b_j) / s_j.
@truncated_mixture_weights.def_vjp
def _(xp: Any, ct: Any, out: Any, *inputs: Any) -> Any:
    (g, z_bar, *rest), (w, *normalizer) = ct, out
    minus_c = -xp.sum(g * w, axis=-1)
    total = minus_c if z_bar is None else minus_c + z_bar
    m_bar, s_bar, p_bar, lo_bar, hi_bar = log_z.vjp(xp, (total, *rest), normalizer, *inputs)
    return m_bar, s_bar, p_bar + g * xp.exp(-normalizer[0])[..., None], lo_bar, hi_bar


@truncated_mixture_weights.def_jvp
def _(xp: Any, tangents: Any, out: Any, *inputs: Any) -> Any:
    w, *normalizer = out
    z_dot, *rest = log_z.jvp(xp, tangents, normalizer, *inputs)
    p_dot = tangents[2]
    inverse = xp.exp(-normalizer[0])
    return (p_dot * inverse[..., None] - w * z_dot[..., None], z_dot, *rest)
