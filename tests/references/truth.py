"""Values, Jacobians and Hessians of the ops from mpmath, at inputs that are exact doubles.

Everything is a closed form, evaluated with many digits: no differences of anything.  Each
function takes a list of inputs (floats, or lists of floats) and returns (value, first,
second) for the inputs in one row: value[i], first[i][j] and second[i][j][k].
"""

import functools

import mpmath as mp
import numpy as np

from tests.references import linear


def log1mexp(x):
    y, rest = mp.exp(x), -mp.expm1(x)
    return [mp.log(rest)], [[-y / rest]], [[[-y / rest**2]]]


def log_ndtr_diff(a, b):
    value, first, second = _interval(0, 1, a, b)
    edges = [2, 3]  # of mean, scale, lower, upper
    first, second = [first[i] for i in edges], [[second[i][j] for j in edges] for i in edges]
    return _log([value], [first], [second])


def truncated_normal_log_mass(mean, scale, lower, upper):
    value, first, second = _interval(mean, scale, lower, upper)
    return _log([value], [first], [second])


def log_normalizer(means, scales, weights, lower, upper):
    value, first, second = _normalizer(means, scales, weights, lower, upper)
    return _log([value], [first], [second])


def weights(means, scales, weights, lower, upper):
    z, dz, ddz = _normalizer(means, scales, weights, lower, upper)
    k, n = len(means), len(dz)
    # 1/Z and its derivatives, then the product with p_i
    d = [-g / z**2 for g in dz]
    dd = [[2 * dz[i] * dz[j] / z**3 - ddz[i][j] / z**2 for j in range(n)] for i in range(n)]
    value = [p / z for p in weights]
    first, second = [], []
    for i, p in enumerate(weights):
        here = 2 * k + i
        first.append([p * d[j] + (1 / z if j == here else 0) for j in range(n)])
        rows = [[p * dd[j][m] for m in range(n)] for j in range(n)]
        for j in range(n):
            rows[here][j] += d[j]
            rows[j][here] += d[j]
        second.append(rows)
    return value, first, second


def log_weights(means, scales, weights, lower, upper):
    z, dz, ddz = (x[0] for x in log_normalizer(means, scales, weights, lower, upper))
    value, first, second = [], [], []
    for i, p in enumerate(weights):
        here = 2 * len(means) + i
        value.append(mp.log(p) - z if p else -mp.inf)
        first.append([-g for g in dz])
        second.append([[-h for h in row] for row in ddz])
        first[i][here] += 1 / p if p else mp.inf
        second[i][here][here] -= 1 / p**2 if p else mp.inf
    return value, first, second


def rosenbrock(x, a=1.0, b=5.0):
    n = len(x)
    value, first, second = mp.mpf(0), [mp.mpf(0)] * n, [[mp.mpf(0)] * n for _ in x]
    for i in range(n - 1):
        step = x[i + 1] - x[i] ** 2
        value += (a - x[i]) ** 2 + b * step**2
        first[i] += -2 * (a - x[i]) - 4 * b * x[i] * step
        first[i + 1] += 2 * b * step
        second[i][i] += 2 - 4 * b * (step - 2 * x[i] ** 2)
        second[i + 1][i + 1] += 2 * b
        second[i][i + 1] = second[i + 1][i] = -4 * b * x[i]
    return [value], [first], [second]


def sparse_solve(values, b):
    return _linear_equations(linear.SPARSE, values, b)


def solve_sylvester(A, B, C):
    parameters = [x for matrix in (A, B) for row in matrix for x in row]
    value, first, second = _linear_equations(
        linear.sylvester(len(A), len(B)), parameters, [x for row in C for x in row]
    )
    n = len(B)
    return [value[i : i + n] for i in range(0, len(value), n)], first, second


def _linear_equations(positions, parameters, c):
    """x with K x = c and its derivatives in (p, c), where K = sum_k p_k E_k: see `linear`.

    dx/dp_k = -L E_k x and dx/dc_j = L e_j for L = K^-1; once more, dL/dp_k = -L E_k L.  The
    second derivatives are products of these exact numbers, in float64.
    """
    size, count = len(c), len(parameters)
    K, E = mp.matrix(size, size), np.zeros((count, size, size))
    for k, (p, where) in enumerate(zip(parameters, positions, strict=True)):
        for i, j in where:
            K[i, j] += p
            E[k, i, j] = 1.0
    L = (K**-1).tolist()
    x = [mp.fdot(row, c) for row in L]
    first = [[-mp.fdot((row[i], x[j]) for i, j in where) for where in positions] + row for row in L]
    rounded, once = np.array(_rounded(L)), np.array(_rounded(first))
    half = np.einsum("ir,krc,co->iko", -rounded, E, once)
    second = np.zeros((size, count + size, count + size))
    second[:, :count] += half
    second[:, :, :count] += half.transpose(0, 2, 1)
    return x, first, second.tolist()


def _log(value, first, second):
    """The logarithm of each value, with its derivatives."""
    logs, firsts, seconds = [], [], []
    for v, d, dd in zip(value, first, second, strict=True):
        g = [x / v for x in d]
        logs.append(mp.log(v))
        firsts.append(g)
        rows = [[x / v - g[i] * y for x, y in zip(row, g, strict=True)] for i, row in enumerate(dd)]
        seconds.append(rows)
    return logs, firsts, seconds


def _normalizer(means, scales, weights, lower, upper):
    """Z = sum_j p_j D_j and its derivatives in (m, s, p, lower, upper), in one row."""
    k = len(means)
    n = 3 * k + 2
    z, dz, ddz = mp.mpf(0), [mp.mpf(0)] * n, [[mp.mpf(0)] * n for _ in range(n)]
    for j, (m, s, p) in enumerate(zip(means, scales, weights, strict=True)):
        value, first, second = _interval(m, s, lower, upper)
        at = [j, k + j, 3 * k, 3 * k + 1]
        z += p * value
        dz[2 * k + j] = value
        for a, d, row in zip(at, first, second, strict=True):
            dz[a] += p * d
            ddz[a][2 * k + j] = ddz[2 * k + j][a] = d
            for b, dd in zip(at, row, strict=True):
                ddz[a][b] += p * dd
    return z, dz, ddz


def _interval(mean, scale, lower, upper):
    """D = Phi(b) - Phi(a) and its derivatives in (mean, scale, lower, upper)."""
    a, b = (lower - mean) / scale, (upper - mean) / scale
    mirrored = a + b < 0
    low, high = (-b, -a) if mirrored else (a, b)
    value = (mp.erfc(low / mp.sqrt(2)) - mp.erfc(high / mp.sqrt(2))) / 2
    first = [mp.mpf(0)] * 4
    second = [[mp.mpf(0)] * 4 for _ in range(4)]
    for edge, z, sign in ((2, a, -1), (3, b, 1)):
        if mp.isinf(z):
            continue
        density = sign * mp.npdf(z)
        d = [-1 / scale, -z / scale, 0, 0]
        d[edge] = 1 / scale
        dd = [[0, 1 / scale**2, 0, 0], [1 / scale**2, 2 * z / scale**2, 0, 0], [0] * 4, [0] * 4]
        dd[1][edge] = dd[edge][1] = -1 / scale**2
        for i in range(4):
            first[i] += density * d[i]
            for j in range(4):
                second[i][j] += density * (dd[i][j] - z * d[i] * d[j])
    return value, first, second


def _exact(x):
    if np.ndim(x):
        return [_exact(v) for v in x]
    return mp.mpc(complex(x)) if np.iscomplexobj(x) else mp.mpf(float(x))


def evaluate(function, inputs, digits):
    """(value, first, second) in double precision, rounded from the exact ones."""
    arrays = [np.asarray(x, np.complex128 if np.iscomplexobj(x) else np.float64) for x in inputs]
    key = tuple((x.shape, x.dtype, x.tobytes()) for x in arrays)
    return _evaluate(function, key, digits)


@functools.cache
def _evaluate(function, key, digits):
    arrays = [np.frombuffer(data, dtype).reshape(shape) for shape, dtype, data in key]
    with mp.workdps(digits):
        found = function(*map(_exact, arrays))
        return tuple(np.array(_rounded(part)) for part in found)


def _rounded(x):
    if isinstance(x, list):
        return [_rounded(v) for v in x]
    return complex(x) if isinstance(x, mp.mpc) else float(x)


def in_parts(found, complex_inputs):
    """(value, first, second), flat, in the real and imaginary parts of all that is complex.

    `complex_inputs` says it of each entry of the inputs in one row.
    """
    value, first, second = found
    columns = [part for c in complex_inputs for part in ((1, 1j) if c else (1,))]
    entries = [i for i, c in enumerate(complex_inputs) for _ in range(1 + bool(c))]
    first = first[:, entries] * columns
    second = second[:, entries][:, :, entries] * np.outer(columns, columns)
    if not np.iscomplexobj(value):
        return value, first.real, second.real
    parts = (np.stack([part.real, part.imag], 1) for part in (value, first, second))
    return tuple(part.reshape(-1, *part.shape[2:]) for part in parts)
