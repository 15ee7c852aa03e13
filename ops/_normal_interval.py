"""The standard normal law on an interval: log mass, mean, end density, rules.

For an interval [t, t + w] let D = Phi(t + w) - Phi(t), phi the density, and
    F  = log D,
    mu = (phi(t) - phi(t + w)) / D   the mean of the law cut off to the interval,
    h  = phi(t + w) / D              its density at the far end;
its density at the near end is phi(t) / D = mu + h. The three are closed under
differentiation, so derivatives of every order come from the rules below.

`standardize` reflects the interval so that its midpoint c = t + w/2 is >= 0.
Then nothing cancels in the right tail, and the left tail is the same thing. It
also clips t to >= -40 and w to <= 80, which changes no result in float64 (the
density there is below 1e-347) and removes every infinity: after it, a cut-off
at infinity is an ordinary number. t and w must reach the rules as *outputs* of
the op: differentiating (lower - mean) / scale would bring the infinity back.

Limits. lower == upper: F is -inf, mu is c, h is +inf; so the mean's derivative
is finite, those of lower and upper are infinite, and scale's is NaN, as are
second derivatives. lower > upper: F is NaN. scale must be > 0.

Everything is elementwise on arrays of one floating type and broadcasts.
Sources: DLMF 7.2 (erfc), 7.8 (Mills' ratio), 7.9.2 (its continued fraction);
Fernandez-de-Cossio-Diaz, "Moments of the univariate truncated normal
distribution" (the regimes); Moller, "Quasi double-precision in floating point
addition", BIT 5 (1965) (the rounding error of a sum).
"""

from typing import Any, NamedTuple

from twingrad.ops._special import erfcx

Arrays = tuple[Any, Any]

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


def _limits(xp: Any, x: Any) -> _Limits:
    return _DOUBLE if xp.finfo(x.dtype).bits == 64 else _SINGLE


# With d = w c, S0 = sinh(d/2) / (d/2), and y measured from the midpoint:
#   D = phi(c) w K,   K = int cosh(d y) exp(-w^2 y^2 / 2) dy over [-1/2, 1/2].
# K exp(w^2/8) / S0 = 1 + w^2 B(d^2, w^2), B analytic, B(0, 0) = 1/12. This is B:
# a least-squares fit at 40 digits to its double power series on Chebyshev nodes
# of [0, narrow]^2. The error of w^2 B is 2e-15 (float64), 1.4e-8 (float32).
def _series(xp: Any, d: Any, w: Any) -> Any:
    u, v = d * d, w * w
    total = None
    for row in reversed(_limits(xp, d).series):
        value = row[-1]
        for coefficient in reversed(row[:-1]):
            value = value * v + coefficient
        total = value if total is None else total * u + value
    return total


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
    """(t, w, c): the near end, width and midpoint of the reflected interval.

    The width comes from upper - lower, and c from the sum of the edges, because
    both may be far smaller than t. (t + w/2 with an ample margin is a bound on
    c, and stands in for it where the width was clipped.) c serves `log_mass`
    only: t and w are what the op returns.
    """
    top = float(xp.finfo(mean.dtype).max) / 256
    t = xp.maximum(lower - mean, mean - upper) / scale
    t = xp.clip(t, -40.0, top)
    w = xp.clip((upper - lower) / scale, None, 80.0)
    c = 0.5 * xp.abs(_twice_midpoint(xp, mean, lower, upper))
    return t, w, xp.minimum(c, (t + 0.501 * w) * scale) / scale


# Three regimes, with d = w c and Mills' ratio M(x) = sqrt(pi/2) erfcx(x/sqrt 2):
#   narrow:  D = phi(t) w ((1 - e^-d) / d) (1 + w^2 B), see _series;
#   right:   D = phi(t) (M(t) - e^-d M(t+w)), as phi(t+w) = phi(t) e^-d;
#   centre:  D = 1 - phi(t) (M(-t) + e^-d M(t+w)), for t < 0.
# From D, in all of them: mu + h = phi(t)/D, h = e^-d phi(t)/D and
# mu = (1 - e^-d) phi(t)/D. num/den is phi(t)/D, both free of underflow in the
# right tail. The widened w makes mu = c come out at w = 0 with no 0/0; the
# ratio w / widened then takes F and h to their own limits.
def log_mass(xp: Any, t: Any, w: Any, c: Any = None) -> Any:
    """(F, mu, h) of [t, t + w], for t and w as `standardize` gives them."""
    limit = _limits(xp, t).narrow
    tiny = float(xp.finfo(t.dtype).smallest_normal)
    widened = w + tiny**0.75
    d = widened * (t + 0.5 * w if c is None else c) + tiny
    decay, gain = xp.exp(-d), -xp.expm1(-d)
    t_neg = xp.clip(t, None, 0.0)
    t_pos = t - t_neg
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
    shrink = w / widened
    log_d = xp.log(den * shrink) - (0.5 * (t_pos * t_pos) + _LOG_SQRT_TWO_PI)
    missing = xp.clip(tails * (-1.0 / _SQRT_TWO_PI), -0.95, None)
    ratio = num / den
    log_d = xp.where(centre, xp.log1p(missing), log_d)
    return log_d, gain * ratio, decay * ratio / shrink


# e = mu - t loses all digits where the interval is narrow or far out. Instead:
#   narrow:  mu = c / (1 + w^2 B), hence e = w (1/2 - d B / (1 + w^2 B));
#   far out: with r(x) = 1/M(x) - x = 1/(x + 2/(x + 3/(x + ...))) (DLMF 7.9.2)
#     and D/phi(t) = M(t) - e^-d M(t+w),
#     e = (mu + h) r(t) / (t + r(t)) - h (w + r(t+w)) / (t + w + r(t+w)).
# Written so that autodiff gives its derivatives; the branches not taken are fed
# constants, so no NaN can come from them.
def offset(xp: Any, t: Any, w: Any, mu: Any, h: Any) -> Any:
    """e = mu - t, the mean's distance from the near end, to full accuracy."""
    limit, far_limit, depth, _ = _limits(xp, t)
    d = w * (t + 0.5 * w)
    narrow = (d < limit) & (w < limit)
    w_in, d_in = xp.where(narrow, w, 0.0), xp.where(narrow, d, 0.0)
    b = _series(xp, d_in, w_in)
    e_narrow = w_in * (0.5 - d_in * b / (1.0 + w_in * w_in * b))
    far = (t > far_limit) & ~narrow
    t_out, w_out = xp.where(far, t, far_limit), xp.where(far, w, 1.0)
    mu_out, h_out = xp.where(far, mu, 0.0), xp.where(far, h, 0.0)
    r, s = _excess(t_out, depth), _excess(t_out + w_out, depth)
    e_far = (mu_out + h_out) * (r / (t_out + r))
    e_far = e_far - h_out * ((w_out + s) / (t_out + w_out + s))
    return xp.where(narrow, e_narrow, xp.where(far, e_far, mu - t))


def _excess(x: Any, depth: int) -> Any:
    value = 0.0
    for k in range(depth, 0, -1):
        value = k / (x + value)
    return value


# Differentiate D = Phi(t+w) - Phi(t), phi' = -x phi, with phi(t)/D = mu + h:
#   dF  = h (dt + dw) - (mu + h) dt = -mu dt + h dw
#   dh  = -h ((t+w)(dt + dw) + dF)  = -h ((w - e) dt + (h + t + w) dw)
#   dmu = (phi(t)/D)(-t dt - dF) - dh = (h w + mu e) dt + h (w - e) dw
def log_mass_jvp(xp: Any, tangents: Arrays, out: Any, t: Any, w: Any) -> Any:
    """(F_dot, mu_dot, h_dot) from (t_dot, w_dot)."""
    (t_dot, w_dot), (_, mu, h) = tangents, out
    e = offset(xp, t, w, mu, h)
    rest = w - e
    f_dot = h * w_dot - mu * t_dot
    mu_dot = (h * w + mu * e) * t_dot + (h * rest) * w_dot
    h_dot = -h * (rest * t_dot + (h + t + w) * w_dot)
    return f_dot, mu_dot, h_dot


# The transpose of the rule above. A cotangent that is None belongs to an output
# nobody differentiates; with only F_bar, e is not needed.
def log_mass_vjp(xp: Any, cts: Any, out: Any, t: Any, w: Any) -> Arrays:
    """(t_bar, w_bar) from (F_bar, mu_bar or None, h_bar or None)."""
    (f_bar, mu_bar, h_bar), (_, mu, h) = cts, out
    t_bar, w_bar = -f_bar * mu, f_bar * h
    if mu_bar is None and h_bar is None:
        return t_bar, w_bar
    e = offset(xp, t, w, mu, h)
    rest = w - e
    if mu_bar is not None:
        t_bar = t_bar + mu_bar * (h * w + mu * e)
        w_bar = w_bar + mu_bar * h * rest
    if h_bar is not None:
        t_bar = t_bar - h_bar * h * rest
        w_bar = w_bar - h_bar * h * (h + t + w)
    return t_bar, w_bar


# t = (lower - mean)/scale, or (mean - upper)/scale if reflected, and
# w = (upper - lower)/scale. Derivatives in the scale are -t/scale and -w/scale
# with the clipped t and w, so that nothing is infinite; where clipping acts, mu
# or h is 0 and the difference does not matter.
def standardize_jvp(xp: Any, tangents: Any, out: Arrays, *inputs: Any) -> Arrays:
    """(t_dot, w_dot); tangents and inputs are of mean, scale, lower, upper."""
    (mean_dot, scale_dot, lower_dot, upper_dot), (t, w) = tangents, out
    mean, scale, lower, upper = inputs
    reflected = flip(xp, mean, lower, upper)
    near_dot = xp.where(reflected, mean_dot - upper_dot, lower_dot - mean_dot)
    t_dot = (near_dot - t * scale_dot) / scale
    return t_dot, ((upper_dot - lower_dot) - w * scale_dot) / scale


# The transpose. The cotangents are divided by the scale before they meet t and
# w, so that a cotangent of 0 stays 0 next to a huge t.
def standardize_vjp(xp: Any, cts: Arrays, out: Arrays, *inputs: Any) -> Any:
    """(mean_bar, scale_bar, lower_bar, upper_bar), in the broadcast shape."""
    (t_bar, w_bar), (t, w) = cts, out
    mean, scale, lower, upper = inputs
    reflected = flip(xp, mean, lower, upper)
    t_part, w_part = t_bar / scale, w_bar / scale
    near = t_part - w_part
    mean_bar = xp.where(reflected, t_part, -t_part)
    lower_bar = xp.where(reflected, -w_part, near)
    upper_bar = xp.where(reflected, -near, w_part)
    return mean_bar, -(t_part * t + w_part * w), lower_bar, upper_bar
