"""The closed forms in mpmath of the ops of `tests.kinds`; see `truth` for what each returns."""

import mpmath as mp


def transfer(frequencies, pole, residue):
    n = len(frequencies)
    value, first, second = [], [], []
    for i, w in enumerate(frequencies):
        d = 1 / (1j * w - pole)
        at, slopes = (i, n, n + 1), (-1j, 1)  # of -1/d in the frequency, and in the pole
        row, square = [mp.mpc(0)] * (n + 2), [[mp.mpc(0)] * (n + 2) for _ in range(n + 2)]
        row[n + 1] = d
        for j, a in zip(at, slopes, strict=False):
            row[j] = residue * a * d**2
            square[j][n + 1] = square[n + 1][j] = a * d**2
            for k, b in zip(at, slopes, strict=False):
                square[j][k] = 2 * residue * a * b * d**3
        value.append(residue * d)
        first.append(row)
        second.append(square)
    return value, first, second


def convolve(x, y):
    n, m = len(x), len(y)
    value = [mp.fsum(x[i] * y[k - i] for i in range(n) if 0 <= k - i < m) for k in range(n + m - 1)]
    first = [[mp.mpf(0)] * (n + m) for _ in value]
    second = [[[mp.mpf(0)] * (n + m) for _ in range(n + m)] for _ in value]
    for i in range(n):
        for j in range(m):
            first[i + j][i], first[i + j][n + j] = y[j], x[i]
            second[i + j][i][n + j] = second[i + j][n + j][i] = mp.mpf(1)
    return value, first, second


def density(x, width, grid):
    n, w = len(x), width
    value = [mp.mpf(0)] * len(grid)
    first = [[mp.mpf(0)] * (n + 1) for _ in grid]
    second = [[[mp.mpf(0)] * (n + 1) for _ in range(n + 1)] for _ in grid]
    for k, g in enumerate(grid):
        rows = second[k]
        for i in range(n):
            u = (g - x[i]) / w
            e = mp.exp(-(u**2) / 2)
            value[k] += e
            first[k][i] = e * u / w
            first[k][n] += e * u**2 / w
            rows[i][i] = e * (u**2 - 1) / w**2
            rows[i][n] = rows[n][i] = e * (u**3 - 2 * u) / w**2
            rows[n][n] += e * (u**4 - 3 * u**2) / w**2
    return value, first, second


def decay(rate, amplitude, times):
    n, value, first, second = len(times), [], [], []
    for k, t in enumerate(times):
        e, at, slopes = mp.exp(-rate * t), (0, 2 + k), (-t, -rate)  # of log e
        row, rows = [mp.mpf(0)] * (n + 2), [[mp.mpf(0)] * (n + 2) for _ in range(n + 2)]
        row[1] = e
        for i, a in zip(at, slopes, strict=True):
            row[i] = amplitude * a * e
            rows[1][i] = rows[i][1] = a * e
            for j, b in zip(at, slopes, strict=True):
                rows[i][j] = amplitude * e * (a * b - (i != j))
        value.append(amplitude * e)
        first.append(row)
        second.append(rows)
    return value, first, second


def spectrum(x):
    n = len(x)
    first = [[mp.expjpi(mp.mpf(-2 * j * k) / n) for j in range(n)] for k in range(n // 2 + 1)]
    value = [mp.fdot(row, x) for row in first]
    return value, first, [[[mp.mpc(0)] * n for _ in x] for _ in first]


def intensity(gain, field):
    """In the parts of the field."""
    n, parts = len(field), [part for z in field for part in (z.real, z.imag)]
    value = [gain * abs(z) ** 2 for z in field]
    first = [[abs(z) ** 2] + [mp.mpf(0)] * 2 * n for z in field]
    second = [[[mp.mpf(0)] * (2 * n + 1) for _ in range(2 * n + 1)] for _ in field]
    for i, x in enumerate(parts):
        first[i // 2][i + 1] = 2 * gain * x
        rows = second[i // 2]
        rows[0][i + 1] = rows[i + 1][0] = 2 * x
        rows[i + 1][i + 1] = 2 * gain
    return value, first, second


def integrals(x, times=2):
    n = len(x)
    rows = [[mp.mpf(i == j) for j in range(n)] for i in range(n)]
    first = []
    for _ in range(times):
        rows = [[mp.fsum(row[j] for row in rows[: i + 1]) for j in range(n)] for i in range(n)]
        first += rows
    value = [mp.fdot(row, x) for row in first]
    return value, first, [[[mp.mpf(0)] * n for _ in x] for _ in first]
