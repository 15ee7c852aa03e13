"""The ops as their textbook formulas, which each framework's own autodiff differentiates.

They are accurate at moderate inputs only: no tails, no narrow intervals.  `lib` offers
log, exp, erf, sum(x, axis), stack(arrays, axis) and solve(matrix, b) of one framework.  Nothing
here uses the ops' own code.
"""

import cmath

from tests.references import linear

SQRT_HALF = 0.7071067811865476


def log1mexp(lib, x):
    return lib.log(1.0 - lib.exp(x))


def log_ndtr_diff(lib, a, b):
    return lib.log(_mass(lib, a, b))


def truncated_normal_log_mass(lib, mean, scale, lower, upper):
    return lib.log(_mass(lib, (lower - mean) / scale, (upper - mean) / scale))


def log_normalizer(lib, means, scales, weights, lower, upper):
    return lib.log(_normalizer(lib, means, scales, weights, lower, upper))


def weights(lib, means, scales, weights, lower, upper):
    return weights / _normalizer(lib, means, scales, weights, lower, upper)[..., None]


def log_weights(lib, *inputs):
    return lib.log(weights(lib, *inputs))


def rosenbrock(lib, x, a=1.0, b=5.0):
    left, right = x[..., :-1], x[..., 1:]
    return lib.sum((a - left) ** 2 + b * (right - left**2) ** 2, -1)


def sparse_solve(lib, values, b):
    entries = [values[..., k] for k in range(len(linear.SPARSE))]
    return _linear_equations(lib, linear.SPARSE, entries, b)


def solve_sylvester(lib, A, B, C):
    m, n = C.shape[-2:]
    entries = [matrix[..., i, j] for matrix in (A, B) for i, j in _places(matrix.shape)]
    c = C.reshape(*C.shape[:-2], m * n)
    x = _linear_equations(lib, linear.sylvester(m, n), entries, c)
    return x.reshape(*x.shape[:-1], m, n)


def transfer(lib, frequencies, pole, residue):
    return residue[..., None] / (1j * frequencies - pole[..., None])


def convolve(lib, x, y):
    n, m = x.shape[-1], y.shape[-1]
    terms = [
        [x[..., i] * y[..., k - i] for i in range(n) if 0 <= k - i < m] for k in range(n + m - 1)
    ]
    return lib.stack([sum(row) for row in terms], -1)


def density(lib, x, width, grid):
    z = [(g - x) / width[..., None] for g in grid]
    return lib.stack([lib.sum(lib.exp(-0.5 * u * u), -1) for u in z], -1)


def decay(lib, rate, amplitude, times):
    return amplitude[..., None] * lib.exp(-rate[..., None] * times)


def spectrum(lib, x):
    n = x.shape[-1]
    turns = [[cmath.exp(-2j * cmath.pi * j * k / n) for j in range(n)] for k in range(n // 2 + 1)]
    return lib.stack([sum(a * x[..., j] for j, a in enumerate(row)) for row in turns], -1)


def intensity(lib, gain, field):
    return gain[..., None] * (lib.real(field) ** 2 + lib.imag(field) ** 2)


def integrals(lib, x, times=2):
    rows, found = [x[..., i] for i in range(x.shape[-1])], []
    for _ in range(times):
        rows = [sum(rows[: i + 1]) for i in range(len(rows))]
        found += rows
    return lib.stack(found, -1)


def _places(shape):
    return [(i, j) for i in range(shape[-2]) for j in range(shape[-1])]


def _linear_equations(lib, positions, entries, c):
    """K^-1 c for K = sum_k p_k E_k: see `linear`."""
    size, zero = c.shape[-1], sum(0 * p for p in entries)
    K = [[zero] * size for _ in range(size)]
    for p, where in zip(entries, positions, strict=True):
        for i, j in where:
            K[i][j] = K[i][j] + p
    matrix = lib.stack([lib.stack(row, -1) for row in K], -2)
    return lib.solve(matrix, c[..., None])[..., 0]


def _mass(lib, a, b):
    return 0.5 * (lib.erf(SQRT_HALF * b) - lib.erf(SQRT_HALF * a))


def _normalizer(lib, means, scales, weights, lower, upper):
    a, b = (lower[..., None] - means) / scales, (upper[..., None] - means) / scales
    return lib.sum(weights * _mass(lib, a, b), -1)
