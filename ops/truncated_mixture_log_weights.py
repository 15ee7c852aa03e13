"""The log of the normalised weights of a truncated Gaussian mixture."""

from __future__ import annotations

from typing import Any

from twingrad.interop import define
from twingrad.ops._units import over, unit
from twingrad.ops.truncated_mixture_log_normalizer import truncated_mixture_log_normalizer as log_z


@define("(k),(k),(k),(),()->(k),(),(k),(k),(k),(k),(k),(k),(k),(),(k)", hidden=10)
def truncated_mixture_log_weights(
    xp: Any, means: Any, scales: Any, weights: Any, lower: Any, upper: Any
) -> Any:
    """log w_i = log p_i - log Z, the log of `truncated_mixture_weights`.

    It stays finite where the weights themselves overflow: far out in the tails.

    Args:
        means: m, shape (k), in the unit of the data.
        scales: s, shape (k), > 0, in the unit of the data.
        weights: p, shape (k), >= 0; p_i = 0 gives -inf, and the gradient 1/0 in p_i.
        lower: lo, shape (); -inf allowed.
        upper: hi, shape (), > lo; +inf allowed.

    Returns:
        log w, shape (k).  lower = upper gives +inf with NaN gradients, lower > upper NaN.

    Reference: see `truncated_mixture_log_normalizer`.
    """
    out = log_z.forward(xp, means, scales, weights, lower, upper)
    return (xp.log(weights) - out[0][..., None], *out, unit(xp, weights))


def _quotient(xp: Any, g: Any, p: Any, unit: Any) -> Any:
    """g / p, and 0 where both are 0: a weight that is 0 must not disturb the others."""
    return over(g, xp.where((p == 0) & (g == 0), 1.0, p * unit), unit)


# d log w_i = dp_i / p_i - d log Z: with g the cotangent, p_j gets g_j / p_j, and log Z the
# cotangent -sum_i g_i.
@truncated_mixture_log_weights.def_vjp
def _(xp: Any, ct: Any, out: Any, *inputs: Any) -> Any:
    (g, z_bar, *rest, _), (_, *normalizer, unit) = ct, out
    minus_sum = -xp.sum(g, axis=-1)
    total = minus_sum if z_bar is None else minus_sum + z_bar
    m_bar, s_bar, p_bar, lo_bar, hi_bar = log_z.vjp(xp, (total, *rest), normalizer, *inputs)
    return m_bar, s_bar, p_bar + _quotient(xp, g, inputs[2], unit), lo_bar, hi_bar


@truncated_mixture_log_weights.def_jvp
def _(xp: Any, tangents: Any, out: Any, *inputs: Any) -> Any:
    _, *normalizer, unit = out
    z_dot, *rest = log_z.jvp(xp, tangents, normalizer, *inputs)
    own = _quotient(xp, tangents[2], inputs[2], unit)
    return (own - z_dot[..., None], z_dot, *rest, None)
