"""Elementary and special functions where they are hard, and their error against mpmath.

`RANGES` names the inputs, `TRUTH` the functions; what runs them is the caller's.  Errors are
in units in the last place (ulps) of the right result.
"""

import mpmath
import numpy as np

POWER = 7.5  # exact in every dtype
COUNT = 500


def _wide(dtype, low, high):
    """Half of them negative, evenly spread in the logarithm; low None: the smallest normals."""
    low = 4 * float(np.finfo(dtype).tiny) if low is None else low
    size = np.exp(np.random.default_rng(0).uniform(np.log(low), np.log(high), COUNT))
    return np.where(np.arange(COUNT) % 2, size, -size)


def _even(low, high):
    return np.random.default_rng(1).uniform(low, high, COUNT)


def _double(dtype):
    return dtype == np.float64


def _top(dtype):
    """Where exp(x) is near the largest number."""
    return 700.0 if _double(dtype) else 87.0


def _subnormal(dtype):
    return _even(0.01, 0.99) * float(np.finfo(dtype).tiny)


def _largest(dtype):
    return float(np.finfo(dtype).max) / 16


# function -> name of a range -> inputs for a dtype
RANGES = {
    "exp": {
        "near 0": lambda d: _wide(d, None, 1.0),
        "far out": lambda d: _even(-_top(d), _top(d)),
        "subnormal result": lambda d: _even(-740, -709) if _double(d) else _even(-102, -88),
    },
    "expm1": {
        "near 0": lambda d: _wide(d, None, 1e-3),
        "from -1 to 1": lambda d: _even(-1, 1),
        "far out": lambda d: _even(-_top(d), _top(d)),
        "subnormal": _subnormal,
    },
    "log": {
        "wide": lambda d: np.abs(_wide(d, None, _largest(d))),
        "near 1": lambda d: 1 + _wide(d, 1e-7, 0.4),
        "subnormal": _subnormal,
    },
    "log1p": {
        "near 0": lambda d: _wide(d, None, 1e-3),
        "from -0.99 to 1": lambda d: _even(-0.99, 1),
        "near -1": lambda d: -1 + np.abs(_wide(d, 1e-6, 1e-2)),
        "far out": lambda d: np.abs(_wide(d, 1.0, _largest(d))),
        "subnormal": _subnormal,
    },
    "erfc": {
        "from 0 on": lambda d: _even(0, 26 if _double(d) else 9),
        "below 0": lambda d: _even(-6, 0),
    },
    "erfcx": {
        "from 0 on": lambda d: _even(0, 30),
        "wide": lambda d: np.abs(_wide(d, 1e-6, 1e6)),
    },
    "tanh": {"near 0": lambda d: _wide(d, None, 1e-2), "from -10 to 10": lambda d: _even(-10, 10)},
    "lgamma": {
        "near 1 and 2": lambda d: np.where(np.arange(COUNT) % 2, 1, 2) + _wide(d, 1e-4, 0.1),
        "from 0 to 50": lambda d: _even(0.01, 50),
    },
    "power": {"wide": lambda d: np.exp(_even(-1, 1) * _top(d) / 9)},
    "sqrt": {"wide": lambda d: np.abs(_wide(d, None, _largest(d))), "subnormal": _subnormal},
    "half": {"subnormal result": lambda d: 2 * _subnormal(d)},
}

TRUTH = {
    "exp": mpmath.exp,
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "erfc": mpmath.erfc,
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "tanh": mpmath.tanh,
    "lgamma": mpmath.loggamma,
    "power": lambda x: x**POWER,
    "sqrt": mpmath.sqrt,
    "half": lambda x: x / 2,
}


def inputs(function, dtype):
    """name of the range -> array of the dtype."""
    return {name: make(dtype).astype(dtype) for name, make in RANGES[function].items()}


def worst(function, x, got):
    """(largest error in ulps, where); infinite for a result that is not finite."""
    errors = []
    with mpmath.workprec(300):
        for v, g in zip(x, got, strict=True):
            exact = TRUTH[function](mpmath.mpf(float(v)))
            ulp = np.spacing(np.abs(x.dtype.type(float(exact))))
            apart = abs(mpmath.mpf(float(g)) - exact) if np.isfinite(g) else mpmath.inf
            errors.append(float(apart / mpmath.mpf(float(ulp))))
    return max(errors), float(x[int(np.argmax(errors))])
