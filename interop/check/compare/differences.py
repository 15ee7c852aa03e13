"""Derivatives by central differences with Richardson's extrapolation and an error estimate.

C. J. F. Ridders (1982), "Accurate computation of F'(x) and F'(x) F''(x)", Advances in
Engineering Software 4 (2), 75-76: differences with shrinking steps, extrapolated to step 0; of
all the extrapolated values the one that differs least from its neighbours is taken, for
each entry by itself, and that difference is its error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import count, flat_all, moves, unflat

FIRST, SHRINK, LEVELS = 0.1, 2.5, 9  # steps from a tenth down to 7e-5, relative to the scale


def derivative(f: Callable[[float], np.ndarray], scale: float, eps: float) -> tuple[Any, Any]:
    """f'(0) of a function of a number, entry by entry, and its errors.

    Args:
        f: returns a real vector; where it is not finite a step is left out.
        scale: the length over which f changes.
        eps: the relative rounding error of f.
    """
    with np.errstate(all="ignore"):
        rows: list[list[np.ndarray]] = []
        steps = [FIRST * scale / SHRINK**level for level in range(LEVELS)]
        best: Any = None
        worst: Any = None
        step: Any = None
        for level, h in enumerate(steps):
            high, low = f(h), f(-h)
            row = [(high - low) / (2 * h)]
            rounding = eps * np.maximum(np.abs(high), np.abs(low)) / h
            if best is None:
                best, worst, step = (np.full(row[0].shape, v) for v in (np.nan, np.inf, h))
            for j in range(1, level + 1):
                power = SHRINK ** (2 * j)
                row.append((power * row[j - 1] - rows[-1][j - 1]) / (power - 1))
                error = np.maximum(np.abs(row[j] - row[j - 1]), np.abs(row[j] - rows[-1][j - 1]))
                error = np.where(np.isfinite(error), error, np.inf) + rounding
                better = error < worst
                best, worst, step = (
                    np.where(better, new, old)
                    for new, old in ((row[j], best), (error, worst), (h, step))
                )
            rows.append(row)
        return best, np.maximum(worst, _noise(rows, steps, best) / step)


def _noise(rows: list[list[np.ndarray]], steps: list[float], best: Any) -> np.ndarray:
    """The noise of f itself, seen in the smallest steps: neighbours may agree by chance."""
    last = [np.abs(rows[k][1] - best) * steps[k] for k in range(LEVELS - 3, LEVELS)]
    found = np.max(last, axis=0)
    return np.where(np.isfinite(found), found, 0.0)


def jacobian(
    value: Callable[..., Any], inputs: tuple[Any, ...], eps: float
) -> list[tuple[Any, Any] | None]:
    """For each input the matrix (outputs, entries of it) and its errors; None for integers."""
    found: list[tuple[Any, Any] | None] = []
    for i, x in enumerate(inputs):
        if not moves(x):
            found.append(None)
            continue
        columns = [_column(value, inputs, i, k, eps) for k in range(count(x))]
        size = len(flat_all(value(*inputs))) if not columns else 0
        empty = np.zeros((size, 0))
        matrix = np.stack([c[0] for c in columns], 1) if columns else empty
        found.append((matrix, np.stack([c[1] for c in columns], 1) if columns else empty))
    return found


def _column(value: Any, inputs: Any, i: int, k: int, eps: float) -> tuple[Any, Any]:
    x = np.asarray(inputs[i])
    unit = unflat(np.eye(1, count(x), k)[0], x)
    size = float(abs(x.ravel()[k % x.size]))
    scale = size if size > 1e-12 else max(float(np.abs(x).max()), 1e-3)

    def along(h: float) -> np.ndarray:
        moved = list(inputs)
        moved[i] = x + np.asarray(h * unit, x.dtype)
        return flat_all(value(*moved))

    return derivative(along, scale, eps)


def directional(
    value: Callable[..., Any], inputs: tuple[Any, ...], tangents: tuple[Any, ...], eps: float
) -> tuple[Any, Any]:
    """The derivative of `value` along the tangents, as a vector, and its errors."""
    sizes = [float(np.abs(x).max()) for x in inputs if moves(x) and np.asarray(x).size]
    pairs = list(zip(inputs, tangents, strict=True))
    ratios = [
        float(np.min(np.abs(np.asarray(x)) / np.maximum(np.abs(t), 1e-300)))
        for x, t in pairs
        if moves(x) and np.asarray(x).size and np.all(np.asarray(x) != 0)
    ]
    scale = min([*ratios, *(s for s in sizes if s > 0), 1e300]) if sizes else 1.0
    scale = scale if 0 < scale < 1e300 else 1.0

    def along(h: float) -> np.ndarray:
        moved = (x + np.asarray(h * t, np.asarray(x).dtype) if moves(x) else x for x, t in pairs)
        return flat_all(value(*moved))

    return derivative(along, scale, eps)
