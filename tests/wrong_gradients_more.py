"""The second half of `wrong_gradients`: faults of scalars, axes, eps, complex rules and code."""

import numpy as np

from tests import right_ops as right
from tests.wrong_gradients import (
    AXIS,
    CONSTANT,
    CROSS,
    EPS,
    FLOAT32,
    NOT_SUMMED,
    OF_INPUT,
    OF_OUTPUT,
    SMALL,
    SWAPPED,
    TERM,
    fault,
    setter,
    swap,
    times,
)

# affine: y = x s + b
fault(
    right.affine,
    "s's gradient of the first entry",
    NOT_SUMMED,
    "s",
    setter(1, lambda xp, g, ct, y, x, s, b: ct[..., 0] * x[..., 0]),
)
fault(
    right.affine,
    "b's gradient a mean",
    (CONSTANT, NOT_SUMMED),
    "b",
    setter(2, lambda xp, g, ct, y, x, s, b: xp.mean(ct, axis=-1)),
)
fault(
    right.affine,
    "x's gradient without s",
    OF_INPUT,
    "x",
    setter(0, lambda xp, g, ct, y, x, s, b: ct),
)
fault(right.affine, "b has none", "zero gradient", "b", times(2, 0.0))
fault(right.affine, "s and b exchanged", SWAPPED, "s b", swap(1, 2))
# gaussian: -((x - m)/s)^2/2 - log s
fault(
    right.gaussian,
    "divided by s once more",
    OF_INPUT,
    "x",
    setter(0, lambda xp, g, ct, y, x, m, s: g / s[..., None]),
)
fault(
    right.gaussian,
    "without the logarithm's term",
    (TERM,),
    "s",
    setter(2, lambda xp, g, ct, y, x, m, s: g + xp.sum(ct, axis=-1) / s),
)
fault(
    right.gaussian,
    "eps 1e-8 added to s in the rule",
    EPS,
    "x m s",
    lambda xp, found, ct, y, x, m, s: found.__setitem__(
        slice(None), right.gaussian()[0].vjp(xp, ct, y, x, m, s + 1e-8)
    ),
)
fault(
    right.gaussian,
    "sigma squared in place of sigma",
    OF_INPUT,
    "m",
    setter(1, lambda xp, g, ct, y, x, m, s: g * s),
)
fault(right.gaussian, "jvp twice", CONSTANT, "x m s", times(0, 2.0), "jvp")
fault(
    right.gaussian,
    "jvp without the scale",
    "zero gradient",
    "s",
    lambda xp, found, t, y, x, m, s: found.__setitem__(
        0, right.gaussian()[0].jvp(xp, (t[0], t[1], 0 * t[2]), y, x, m, s)
    ),
    "jvp",
)
# cumsum of squares
fault(
    right.cumsum,
    "summed forwards",
    (
        "transpose",
        AXIS,
        OF_INPUT,
        TERM,
    ),
    "x",
    setter(0, lambda xp, g, ct, y, x: 2 * x * xp.cumulative_sum(ct, axis=-1)),
)
fault(
    right.cumsum,
    "not summed",
    CROSS,
    "x",
    setter(0, lambda xp, g, ct, y, x: 2 * x * ct),
)
fault(
    right.cumsum,
    "not multiplied by x",
    OF_INPUT,
    "x",
    setter(0, lambda xp, g, ct, y, x: g / x),
)
# power: x^p
fault(
    right.power,
    "x^p in place of x^(p - 1)",
    OF_INPUT,
    "x",
    setter(0, lambda xp, g, ct, y, x, p: g * x),
)
fault(
    right.power,
    "without p",
    OF_INPUT,
    "x",
    setter(0, lambda xp, g, ct, y, x, p: g / p[..., None]),
)
fault(
    right.power,
    "without the power itself",
    OF_OUTPUT,
    "p",
    setter(1, lambda xp, g, ct, y, x, p: xp.sum(ct * xp.log(x), axis=-1)),
)
fault(
    right.power,
    "logarithm to base 10",
    CONSTANT,
    "p",
    times(1, 1 / np.log(10.0)),
)
fault(
    right.power,
    "float32 constant",
    (FLOAT32, CONSTANT),
    "x",
    times(0, float(np.float32(1.1)) / 1.1),
)
# hypot
fault(right.hypot, "gradients exchanged", SWAPPED, "a b", swap(0, 1))
fault(
    right.hypot,
    "not divided by y",
    OF_OUTPUT,
    "a",
    setter(0, lambda xp, g, ct, y, a, b: ct * a),
)
fault(
    right.hypot,
    "divided by y + 1e-3",
    (EPS, SMALL),
    "a b",
    lambda xp, found, ct, y, a, b: found.__setitem__(
        slice(None), [ct * a / (y + 1e-3), ct * b / (y + 1e-3)]
    ),
)
fault(
    right.hypot,
    "eps 1e-8 under the root, in the rule",
    (EPS, SMALL),
    "a",
    setter(0, lambda xp, g, ct, y, a, b: ct * a / (a * a + b * b + 1e-8) ** 0.5),
)
fault(
    right.hypot,
    "a in float32",
    FLOAT32,
    "a",
    setter(0, lambda xp, g, ct, y, a, b: ct * right.low(xp, a) / y),
)
fault(
    right.hypot,
    "jvp of b reversed",
    AXIS,
    "b",
    lambda xp, found, t, y, a, b: found.__setitem__(0, (a * t[0] + xp.flip(b * t[1], axis=-1)) / y),
    "jvp",
)
# complex product a b^2
fault(
    right.product,
    "a's gradient with conj",
    "conjugation",
    "a",
    setter(0, lambda xp, g, ct, y, a, b: ct * xp.conj(b * b)),
)
fault(right.product, "b's gradient half", CONSTANT, "b", times(1, 0.5))
fault(
    right.product,
    "jvp with conj",
    "conjugation",
    "b",
    lambda xp, found, t, y, a, b: found.__setitem__(0, t[0] * b * b + 2 * xp.conj(a * b) * t[1]),
    "jvp",
)
# several outputs
fault(
    right.moments,
    "second output without the 2",
    (OF_INPUT, TERM),
    "x",
    setter(0, lambda xp, g, ct, y, x: ct[0][..., None] + x * ct[1][..., None]),
)
fault(
    right.moments,
    "first output left out",
    ("zero gradient", TERM),
    "x",
    setter(0, lambda xp, g, ct, y, x: 2 * x * ct[1][..., None]),
)
# host op
fault(right.energy, "x's gradient minus", "sign", "x", times(0, -1.0))
fault(
    right.energy,
    "x's gradient without s",
    OF_INPUT,
    "x",
    setter(0, lambda xp, g, ct, y, x, s: ct[..., None] * xp.cos(x)),
)
fault(
    right.energy,
    "s's gradient a mean",
    CONSTANT,
    "s",
    setter(1, lambda xp, g, ct, y, x, s: ct * xp.mean(xp.sin(x), axis=-1)),
)
