"""Inputs at which textbook formulas fail and the ops promise full accuracy."""

from math import inf

LOG_PROBABILITIES = {
    f"x = {x:g}": (x,)
    for x in (-1e-300, -1e-30, -1e-10, -1e-3, -0.6931471805599453, -0.7, -1, -10, -80, -700)
}

_WIDTHS = [
    (0.3, 1e-6), (0.3, 1e-10), (-0.3, 1e-6), (-0.3, 1e-10), (5.0, 1e-6), (-5.0, 1e-6),
    (5.0, 1e-10), (35.0, 1e-6), (-35.0, 1e-6), (3.0, 1e-7), (0.0, 1e-10),
]  # fmt: skip

# (name, lower, upper)
_WINDOWS = [
    *[(f"right {n} sigma", n, n + 1.0) for n in (6.0, 9.0, 13.0, 20.0, 35.0)],
    *[(f"left {n} sigma", -n - 1.0, -n) for n in (6.0, 9.0, 13.0, 20.0, 35.0)],
    *[(f"width {w:g} at {x:g}", x, x + w) for x, w in _WIDTHS],
    # near the edges of the regimes in which such functions are computed
    *[(f"width {w:g} at {x:g}", x, x + w) for x in (-0.1, 0.5, 5.9) for w in (0.04, 0.24, 0.26)],
    ("width 1 at 0", 0.0, 1.0),
    ("width 0.7 at 3", 3.0, 3.7),
    ("centre", -0.5, 1.5),
    ("both tails", -30.0, 30.0),
    ("upper inf", 0.4, inf),
    ("lower -inf", -inf, 0.4),
    ("both inf", -inf, inf),
    ("upper inf, lower 35", 35.0, inf),
    ("lower -inf, upper -35", -inf, -35.0),
    ("upper inf, lower -35", -35.0, inf),
    ("about zero", -1e-8, 1e-8),
]

INTERVALS = {name: (lower, upper) for name, lower, upper in _WINDOWS}

_FAR = [("right", t, t + 1.0) for t in (100.0, 1e4, 1e8)]
_FAR += [("left", -t - 1.0, -t) for t in (100.0, 1e4, 1e8)]

# (mean, scale, lower, upper)
LAWS = {
    **{name: (0.0, 1.0, lower, upper) for name, lower, upper in _WINDOWS},
    **{f"{side} {abs(low):g} sigma": (0.0, 1.0, low, high) for side, low, high in _FAR},
    "about zero": (1e-9, 1.0, -1e-8, 1e-8),  # with mean 0 the gradient in it is 0
    "own mean and scale": (0.3, 1.2, -0.5, 1.5),
    "own mean and scale, upper inf": (0.3, 1.2, 0.9, inf),
    "own mean and scale, lower -inf": (0.3, 1.2, -inf, 0.9),
    "mean far from 0": (1000.25, 0.7, 1000.0, 1001.5),
    "small unit": (2.0**-70, 2.0**-69, 2.0**-71, 2.0**-68),
    "large unit": (-40.0, 70.0, -50.0, 150.0),
    "scale 1e-30 inside": (0.3, 1e-30, -0.5, 1.5),
    "scale 1e-30, upper inf": (0.3, 1e-30, -0.2, inf),
    "scale 1e10": (0.3, 1e10, -0.5, 1.5),
}

# Three laws that all matter in every window, and three of which one may outweigh the rest.
# The weights do not add up to 1: log Z would be near 0, and only as good as their rounding.
_MEANS, _SCALES, _WEIGHTS = (-0.02, 0.0, 0.03), (1.01, 1.0, 0.99), (0.25, 0.5, 0.375)
_UNLIKE = (-0.4, 0.3, 1.1), (0.7, 1.2, 0.9), _WEIGHTS

MIXTURES = {
    **{
        f"{name}, alike": (_MEANS, _SCALES, _WEIGHTS, lower, upper)
        for name, lower, upper in _WINDOWS
    },
    **{f"{name}, unlike": (*_UNLIKE, lower, upper) for name, lower, upper in _WINDOWS},
    **{
        f"{side} {abs(low):g} sigma, {name}": (*laws, low, high)
        for side, low, high in _FAR
        for name, laws in (("alike", (_MEANS, _SCALES, _WEIGHTS)), ("unlike", _UNLIKE))
    },
    # laws that differ by so little that all of them still matter there
    **{
        f"{side} {abs(low):g} sigma, near": (
            (0.0, 0.5 / low, -1.0 / low),
            (1.0, 1.0, 1.0),
            _WEIGHTS,
            low,
            high,
        )
        for side, low, high in _FAR
    },
    "a weight 0": (_UNLIKE[0], _UNLIKE[1], (0.0, 0.5, 0.3), -0.5, 1.5),
    "two weights 0": (_UNLIKE[0], _UNLIKE[1], (0.0, 0.5, 0.0), -0.5, 1.5),
    "a weight 0, right 9 sigma": (_UNLIKE[0], _UNLIKE[1], (0.2, 0.0, 0.3), 9.0, 10.0),
    "a weight 0, upper inf": (_UNLIKE[0], _UNLIKE[1], (0.2, 0.0, 0.3), 0.5, inf),
    "scale 1e-30 inside": (_UNLIKE[0], (0.7, 1e-30, 0.9), _WEIGHTS, -0.5, 1.5),
    "scale 1e-30 left of it": (_UNLIKE[0], (1e-30, 1.2, 0.9), _WEIGHTS, 0.0, 1.5),
    "scale 1e-30 right of it": (_UNLIKE[0], (0.7, 1.2, 1e-30), _WEIGHTS, -0.5, 0.9),
    "scale 1e-30, upper inf": (_UNLIKE[0], (0.7, 1e-30, 0.9), _WEIGHTS, -0.2, inf),
    "scale 1e10": (_UNLIKE[0], (0.7, 1e10, 0.9), _WEIGHTS, -0.5, 1.5),
    "large unit": ((-40.0, 30.0, 110.0), (70.0, 120.0, 90.0), _WEIGHTS, -50.0, 150.0),
    "mean far from 0": ((1000.25, 1000.5, 1001.0), (0.7, 1.2, 0.9), _WEIGHTS, 1000.0, 1001.5),
}

# (x, y) of a convolution: nothing cancels in it that is there
_FOUR = (0.5, -1.25, 3.0, 0.75)
SIGNALS = {
    "sizes far apart": ((1e15, 1e-15, 1.0, -1e10), (1e-10, 1e5)),
    "zeros": ((0.0, 0.0, 1.0, 0.0), (0.0, 2.0)),
    "small": (_FOUR, (1e-30, -1e-33)),
    "large": (_FOUR, (1e30, 2e30)),
}

# (frequencies, pole, residue): near the pole i w - p cancels without a rounding
POLES = {
    f"{width:g} from the pole, residue {residue}": (
        (0.75, 0.75 + width, 0.75 - width, 2.0),
        -width + 0.75j,
        residue,
    )
    for width in (1e-3, 2.0**-20)
    for residue in (1.0 + 0.0j, 1e-8 - 2.0j)
}
