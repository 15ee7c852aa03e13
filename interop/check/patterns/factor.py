"""Patterns of a factor: a constant one, or a power of an input or output."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from twingrad.interop.check.patterns.evidence import Evidence

POWERS = (-1.0, 1.0, -2.0, 2.0, -0.5, 0.5, -3.0, 3.0, -1.5, 1.5)


def constant(e: Evidence, sign: bool) -> str | None:
    """hand = c true, with the same c at every point."""
    found = [float((h * t).sum() / max((t * t).sum(), 1e-300)) for h, t in e.pairs()]
    c = found[0]
    if not np.isfinite(found).all() or not np.allclose(found, c, 1e-6, 0):
        return None
    if sign != bool(abs(c + 1) < 1e-6) or not e.explains([c * t for _, t in e.pairs()]):
        return None
    if sign:
        return f"the gradient of {e.name} has the wrong sign"
    return f"the gradient of {e.name} is {c:.7g} times what it should be{_of_a_size(e, c)}"


def _of_a_size(e: Evidence, c: float) -> str:
    point = e.points[0]
    sizes = {n for a in (*point.inputs, *point.outputs) for n in np.shape(a) if n > 1}
    for n in sorted(sizes):
        if abs(c * n - 1) < 1e-6:
            return f": 1/{n}, as of a mean in place of a sum over a dimension of size {n}"
        if abs(c / n - 1) < 1e-6:
            return f": {n}, as of a sum in place of a mean over a dimension of size {n}"
    return ""


def factor(e: Evidence, outputs: bool) -> str | None:
    """hand = c s^p true for a power p of one input, or of an output, entry by entry."""
    if e.explains([np.zeros_like(t) for _, t in e.pairs()]):
        return None
    first = e.points[0]
    count = len(first.outputs if outputs else first.inputs)
    best = None
    for which, power in itertools.product(range(count), POWERS):
        for along, maps in _aligned(e, which, outputs).items():
            with np.errstate(all="ignore"):
                candidates = [t * m**power for (_, t), m in zip(e.pairs(), maps, strict=True)]
            left = _left(e, candidates)
            if left is not None and (best is None or left < 0.1 * best[0]):
                best = (left, which, power, along)
    if best is None:
        return None
    _, which, power, along = best
    name = ("the output" if count == 1 else f"output {which}") if outputs else e.names[which]
    shown = name if abs(power) == 1 else f"{name}^{abs(power):g}"
    much, why = (
        (shown, f"multiplied by {shown} once too often, or not divided by it")
        if power > 0
        else (f"1/{shown}", f"divided by {shown} once too often, or the factor is missing")
    )
    return f"the gradient of {e.name} is {much} times what it should be{along}: {why}"


def _left(e: Evidence, candidates: list[np.ndarray]) -> float | None:
    """How much a factor leaves unexplained, as a share of the discrepancy."""
    if any(not np.isfinite(c).all() for c in candidates) or not e.explains(candidates):
        return None
    return max(
        float(np.abs(h - c).max() / max(np.abs(h - t).max(), 1e-300))
        for (h, t), c in zip(e.pairs(), candidates, strict=True)
    )


def _aligned(e: Evidence, which: int, outputs: bool) -> dict[str, list[np.ndarray]]:
    """A variable laid against the Jacobian: by the entry of the input, or of the output."""
    found: dict[str, list[np.ndarray]] = {}
    for p, (_, true) in zip(e.points, e.pairs(), strict=True):
        s = np.abs(np.asarray((p.outputs if outputs else p.inputs)[which]))
        if not s.size or s.dtype.kind not in "f":
            return {}
        x, y = np.shape(p.inputs[e.argument]), np.shape(p.outputs[0])
        for text, laid in _ways(s, x, y, true.shape, len(p.outputs)):
            found.setdefault(text, []).append(laid)
    return {text: maps for text, maps in found.items() if len(maps) == len(e.points)}


def _ways(
    s: np.ndarray,
    x: tuple[int, ...],
    y: tuple[int, ...],
    shape: tuple[int, ...],
    count: int,
) -> Iterator[tuple[str, np.ndarray]]:
    if s.size == 1:
        yield "", np.full(shape, s.ravel()[0])
        return
    for name, target, along in (("input", x, 1), ("output", y, 0)):
        if np.prod(target, dtype=int) != shape[along] or (along == 0 and count > 1):
            continue
        for lead in (False, True)[: 1 + (s.ndim < len(target))]:
            padded = s.reshape(s.shape + (1,) * (len(target) - s.ndim)) if lead else s
            try:
                laid = np.broadcast_to(padded, target).ravel()
            except ValueError:
                continue
            text = f", for each entry of the {name}"
            text += " from the left" if lead else ""
            yield text, (np.broadcast_to(laid, shape) if along else laid[:, None] * np.ones(shape))
    for norm, text in ((s.sum(), "the sum of"), (np.sqrt((s * s).sum()), "the norm of")):
        yield f" ({text} its entries)", np.full(shape, norm)
