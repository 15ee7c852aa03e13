"""The standard normal law on an interval: log mass, mean, end density, rules.

For an interval [t, t + w] let D = Phi(t + w) - Phi(t), phi the density, and
    F  = log D,
    mu = (phi(t) - phi(t + w)) / D   the mean of the law cut off to the interval,
    q  = w phi(t + w) / D            width times density at the far end.
Their derivatives in t and in log w need nothing but themselves, t and w, so
derivatives of every order come from the rules below. q and log w rather than
phi(t + w)/D and w: in a narrow interval the latter are of the order 1/w, and
second derivatives, often of the order 1, would be the difference of two such.

`standardize` reflects the interval so that its midpoint c = t + w/2 is >= 0.
Then nothing cancels in the right tail, and the left tail is the same thing. It
also clips t to >= -40 and w to <= 80, which changes no result in float64 (the
density there is below 1e-347) and removes every infinity: after it, a cut-off
at infinity is an ordinary number. t and log w must reach the rules as *outputs*
of the op: differentiating (lower - mean)/scale would bring the infinity back.
The units u of the scale and ug of upper - lower are outputs, too: see `_units`.

Limits. lower == upper: F is -inf, its derivatives in mean and scale are their
finite limits (for mean c/scale, up to the sign), those in lower and upper -inf
and +inf. lower > upper: all is NaN. scale must be > 0. Where the mass is nearly 1
the second derivative in (lower, upper) is phi phi / D^2, far below the others;
its error is about one rounding of those, so that beyond 5 sigma on both sides
(3 in float32) it has no digits of its own.

Everything is elementwise on arrays of one floating type and broadcasts.
Sources: DLMF 7.2 (erfc), 7.8 (Mills' ratio), 7.9.2 (its continued fraction),
24.2.1 (the Bernoulli numbers); Fernandez-de-Cossio-Diaz, "Moments of the
univariate truncated normal distribution" (the regimes); Moller, "Quasi
double-precision in floating point addition", BIT 5 (1965) (TwoSum).
"""

from typing import Any, NamedTuple

from twingrad.ops._special import BERNOULLI, erfcx, expm1, log1p
from twingrad.ops._units import over, unit

Arrays = tuple[Any, ...]

_SQRT_HALF = 0.7071067811865476
_SQRT_HALF_PI = 1.2533141373155003
_SQRT_TWO_PI = 2.5066282746310002
_LOG_SQRT_TWO_PI = 0.9189385332046727


class _Limits(NamedTuple):
    """Where the regimes meet, and how many terms each needs, for one dtype."""

    narrow: float  # a bound on w and on w c
    far: float  # t beyond which the continued fraction is used
    depth: int  # of the continued fraction
    series: tuple[tuple[float, ...], ...]  # see _series; rows: powers of (wc)^2


_DOUBLE = _Limits(
    narrow=0.25,
    far=6.0,
    depth=16,
    series=(
        (
            0.08333333333334764,
            0.004166666667338159,
            0.00014880927498212934,
            4.143084249654965e-06,
        ),
        (-0.0013888888887917394, -9.920630458505875e-05, -4.141006108281015e-06),
        (3.3068826574514315e-05, 2.48305050028341e-06),
        (-8.272810041477029e-07,),
    ),
)
_SINGLE = _Limits(
    narrow=0.7,
    far=3.0,
    depth=12,
    series=(
        (0.08333332998392562, 0.0041663165725379725, 0.00015146747205722276),
        (-0.0013888962256741126, -0.00010067963791685256),
        (3.345312087864644e-05,),
    ),
)


_BERNOULLI = BERNOULLI[:5]  # enough for d < narrow


def _limits(xp: Any, x: Any) -> _Limits:
    return _DOUBLE if xp.finfo(x.dtype).bits == 64 else _SINGLE


# With d = w c, S0 = sinh(d/2) / (d/2), and y measured from the midpoint:
#   D = phi(c) w K,   K = int cosh(d y) exp(-w^2 y^2 / 2) dy over [-1/2, 1/2].
# K exp(w^2/8) / S0 = 1 + w^2 B(d^2, w^2), B analytic, B(0, 0) = 1/12. This is B:
# a least-squares fit at 40 digits to its double power series on Chebyshev nodes
# of [0, narrow]^2. The error of w^2 B is 2e-15 (float64), 1.4e-8 (float32).
def _series(xp: Any, d: Any, w: Any) -> Any:
    u, v = d * d, w * w
    return _horner([_horner(row, v) for row in _limits(xp, d).series], u)


def _horner(coefficients: Any, x: Any) -> Any:
    *rest, value = coefficients
    for coefficient in reversed(rest):
        value = value * x + coefficient
    return value


def _twice_midpoint(xp: Any, mean: Any, lower: Any, upper: Any) -> Any:
    """lower + upper - 2 mean to full accuracy, also where it nearly cancels.

    `lost` is exactly what rounding took from the sum (Moller's TwoSum). An edge
    at infinity becomes a huge number, which keeps the sign right.
    """
    huge = float(xp.finfo(mean.dtype).max) / 4
    lower, upper = xp.clip(lower, -huge, None), xp.clip(upper, None, huge)
    total = lower + upper
    part = total - lower
    lost = (lower - (total - part)) + (upper - part)
    return (total - 2.0 * mean) + lost


def flip(xp: Any, mean: Any, lower: Any, upper: Any) -> Any:
    """Whether `standardize` reflects: the midpoint lies below the mean."""
    return _twice_midpoint(xp, mean, lower, upper) < 0


def standardize(xp: Any, mean: Any, scale: Any, lower: Any, upper: Any) -> Any:
    """(t, log w, u, ug, exact): near end, log width, units, what `log_mass` needs.

    The width comes from upper - lower, and c from the sum of the edges, because
    both may be far smaller than t. (t + w/2 with an ample margin is a bound on
    c, and stands in for it where the width was clipped.) `exact` is (t, w, c), for
    `log_mass` only: beyond t = tiny^-1/2, where D has long underflowed and the mean
    is t up to rounding, they stay there, so that M(t) does not underflow.
    """
    limits = xp.finfo(mean.dtype)
    t = xp.maximum(lower - mean, mean - upper) / scale
    t = xp.clip(t, -40.0, float(limits.max))
    near = xp.clip(t, None, float(limits.smallest_normal) ** -0.5)
    gap = upper - lower
    w = xp.clip(xp.where(gap < 0, xp.nan, gap) / scale, None, 80.0)
    c = 0.5 * xp.abs(_twice_midpoint(xp, mean, lower, upper))
    c = xp.minimum(c, (near + 0.501 * w) * scale) / scale
    return t, xp.log(w), unit(xp, scale), unit(xp, gap), (near, w, c)


# Three regimes, with d = w c and Mills' ratio M(x) = sqrt(pi/2) erfcx(x/sqrt 2):
#   narrow:  D = phi(t) w ((1 - e^-d) / d) (1 + w^2 B), see _series;
#   right:   D = phi(t) (M(t) - e^-d M(t+w)), as phi(t+w) = phi(t) e^-d;
#   centre:  D = 1 - phi(t) (M(-t) + e^-d M(t+w)), for t < 0.
# In all of them mu = (1 - e^-d) phi(t)/D and q = w e^-d phi(t)/D; num/den is
# phi(t)/D, both free of underflow in the right tail. The widened w makes mu = c
# and q = 1 come out at w = 0 with no 0/0; w / widened takes D to its own limit.
def log_mass(xp: Any, end: Any, t: Any, w: Any, c: Any) -> Any:
    """(F, mu, q, E) for the near end and (t, w, c) as `standardize` gives them.

    E = sqrt(2 pi) D exp(max(t, 0)^2 / 2): the mass apart from what makes it underflow.
    """
    limit = _limits(xp, t).narrow
    tiny = float(xp.finfo(t.dtype).smallest_normal)
    t_neg = xp.clip(t, None, 0.0)
    t_pos = end - t_neg
    widened = w + tiny**0.75
    d = widened * c + tiny
    decay, gain = xp.exp(-d), -expm1(xp, -d)
    num = xp.exp(-0.5 * (t_neg * t_neg))
    near = _SQRT_HALF_PI * erfcx(xp, _SQRT_HALF * xp.abs(t))
    far = decay * (_SQRT_HALF_PI * erfcx(xp, _SQRT_HALF * (t + w)))
    w_in = xp.clip(w, 0.0, limit)
    bulge = 1.0 + (w_in * w_in) * _series(xp, xp.clip(d, 0.0, limit), w_in)
    narrow = (d < limit) & (w < limit)
    centre = (t < 0) & ~narrow
    tails = num * (near + far)
    den = xp.where(centre, _SQRT_TWO_PI - tails, near - far)
    den = xp.where(narrow, num * (widened * (gain / d) * bulge), den)
    mass = den * (w / widened)
    log_d = xp.log(mass) - (0.5 * (t_pos * t_pos) + _LOG_SQRT_TWO_PI)
    missing = xp.clip(tails * (-1.0 / _SQRT_TWO_PI), -0.95, None)
    ratio = num / den
    log_d = xp.where(centre, log1p(xp, missing), log_d)
    return log_d, gain * ratio + (end - t), widened * decay * ratio, mass


# The rules need e = mu - t and r = (1 - q)/w - (t + w), which as written lose
# all digits in narrow intervals, and e also far out. Instead:
#   narrow:  mu = c / (1 + w^2 B) and q = (d/(e^d - 1)) / (1 + w^2 B), hence
#     e = w (1/2 - d B / (1 + w^2 B)),
#     r = (w B + c (1/2 - d S)) / (1 + w^2 B) - (t + w), with
#     d/(e^d - 1) = 1 - d/2 + d^2 S, S the series of _BERNOULLI in d^2;
#   far out: with x(t) = 1/M(t) - t = 1/(t + 2/(t + 3/(t + ...))) (DLMF 7.9.2),
#     e = (mu + q/w) x(t) / (t + x(t)) - (q/w) (w + x(t+w)) / (t + w + x(t+w)).
# Autodiff of this is right too; branches not taken are fed constants.
def _offsets(xp: Any, t: Any, w: Any, mu: Any, q: Any) -> Arrays:
    limit, far_limit, depth, _ = _limits(xp, t)
    c = t + 0.5 * w
    narrow = (w * c < limit) & (w < limit)
    far = (t > far_limit) & ~narrow
    w_in, c_in = xp.where(narrow, w, 0.0), xp.where(narrow, c, 0.0)
    d = w_in * c_in
    b = _series(xp, d, w_in)
    bulge = 1.0 + w_in * w_in * b
    e_narrow = w_in * (0.5 - d * b / bulge)
    r_narrow = (w_in * b + c_in * (0.5 - d * _horner(_BERNOULLI, d * d))) / bulge
    w_out = xp.where(narrow, 1.0, w)
    t_far, mu_far = xp.where(far, t, far_limit), xp.where(far, mu, 0.0)
    e_far = _far_offset(t_far, w_out, mu_far, xp.where(far, q, 0.0) / w_out, depth)
    e = xp.where(narrow, e_narrow, xp.where(far, e_far, mu - t))
    return e, xp.where(narrow, r_narrow, (1.0 - q) / w_out) - (t + w)


def _far_offset(t: Any, w: Any, mu: Any, h: Any, depth: int) -> Any:
    end = t + w
    near, far = _excess(t, depth), _excess(end, depth)
    return ((mu + h) / (t + near)) * near - h * ((w + far) / (end + far))


def _excess(x: Any, depth: int) -> Any:
    value = 0.0
    for k in range(depth, 0, -1):
        value = k / (x + value)
    return value


# Differentiate D = Phi(t+w) - Phi(t) with phi' = -x phi. With h = phi(t+w)/D,
# so that phi(t)/D = mu + h, and l = log w, dw = w dl:
#   dF  = h (dt + dw) - (mu + h) dt = -mu dt + q dl
#   dh  = -h ((t+w)(dt + dw) + dF)
#   dmu = (mu + h)(-t dt - dF) - dh = (q + mu e) dt + q (w - e) dl
#   dq  = w dh + q dl               = q (-(w - e) dt + w r dl)
def log_mass_jvp(xp: Any, tangents: Arrays, out: Any, t: Any, log_w: Any) -> Any:
    """(F_dot, mu_dot, q_dot) from the tangents of t and log w."""
    (t_dot, l_dot), (mu, q) = tangents, out
    w = xp.exp(log_w)
    e, r = _offsets(xp, t, w, mu, q)
    rest = w - e
    f_dot = q * l_dot - mu * t_dot
    mu_dot = (q + mu * e) * t_dot + (q * rest) * l_dot
    return f_dot, mu_dot, ((q * w) * r) * l_dot - (q * rest) * t_dot


# The transpose of the rule above. A cotangent that is None belongs to an output
# nobody differentiates; with only F_bar, e and r are not needed.
def log_mass_vjp(xp: Any, cts: Any, out: Any, t: Any, log_w: Any) -> Arrays:
    """The cotangents of t and log w from (F_bar, mu_bar or None, q_bar or None)."""
    (f_bar, mu_bar, q_bar), (mu, q) = cts, out
    t_bar, l_bar = -f_bar * mu, f_bar * q
    if mu_bar is None and q_bar is None:
        return t_bar, l_bar
    w = xp.exp(log_w)
    e, r = _offsets(xp, t, w, mu, q)
    rest = w - e
    if mu_bar is not None:
        t_bar = t_bar + mu_bar * (q + mu * e)
        l_bar = l_bar + mu_bar * q * rest
    if q_bar is not None:
        t_bar = t_bar - q_bar * q * rest
        l_bar = l_bar + q_bar * ((q * w) * r)
    return t_bar, l_bar


# t = (lower - mean)/scale, or (mean - upper)/scale if reflected, and
# log w = log(upper - lower) - log(scale). The derivative of t in the scale is
# -t/scale with the clipped t, so that nothing is infinite; where clipping acts,
# mu or q is 0 and the difference does not matter. upper - lower is taken from
# the inputs and not as w scale, so that it does not depend on the scale.
def standardize_jvp(xp: Any, tangents: Any, out: Arrays, dead: Any, *inputs: Any) -> Arrays:
    """Tangents of (t, log w); `tangents`, `inputs`: mean, scale, lower, upper."""
    (mean_dot, scale_dot, lower_dot, upper_dot), (t, u, ug) = tangents, out
    mean, scale, lower, upper = inputs
    reflected = flip(xp, mean, lower, upper)
    near_dot = xp.where(reflected, mean_dot - upper_dot, lower_dot - mean_dot)
    su = xp.where(dead, 1.0, scale * u)
    t_dot = over(near_dot - t * scale_dot, su, u)
    gap_u, gap_dot = _gap(xp, lower, upper) * ug, upper_dot - lower_dot
    gap_u = xp.where((gap_u == 0) & (gap_dot == 0), 1.0, gap_u)
    l_dot = over(gap_dot, gap_u, ug) - over(scale_dot, su, u)
    return xp.where(dead, 0.0, t_dot), xp.where(dead, 0.0, l_dot)


def _gap(xp: Any, lower: Any, upper: Any) -> Any:
    """upper - lower, and a huge number for inf: l_dot, l_bar or q are 0 there."""
    return xp.clip(upper - lower, None, float(xp.finfo(lower.dtype).max) / 4)


# The transpose. The cotangent is divided by the scale before it meets t, so
# that a cotangent of 0 stays 0 next to a huge t.
def standardize_vjp(xp: Any, cts: Arrays, out: Arrays, dead: Any, *inputs: Any) -> Any:
    """(mean_bar, scale_bar, lower_bar, upper_bar), in the broadcast shape."""
    (t_bar, l_bar), (t, u, ug) = cts, out
    t_bar, l_bar = xp.where(dead, 0.0, t_bar), xp.where(dead, 0.0, l_bar)
    mean, scale, lower, upper = inputs
    reflected = flip(xp, mean, lower, upper)
    su, gap_u = xp.where(dead, 1.0, scale * u), _gap(xp, lower, upper) * ug
    t_part, far = over(t_bar, su, u), over(l_bar, gap_u, ug)
    near = t_part - far
    mean_bar = xp.where(reflected, t_part, -t_part)
    lower_bar = xp.where(reflected, -far, near)
    upper_bar = xp.where(reflected, -near, far)
    return mean_bar, -(t_part * t + over(l_bar, su, u)), lower_bar, upper_bar
