"""What is wrong with a gradient: patterns that two Jacobians are compared with.

Each function here looks at an `Evidence` and returns a sentence, or None where its pattern
does not explain what is wrong at every point.  `diagnose` asks them in order, the narrow
ones first, and says so when none fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import flat
from twingrad.interop.check.patterns.axis import axis, coupling, transposed
from twingrad.interop.check.patterns.evidence import Evidence
from twingrad.interop.check.patterns.factor import constant, factor
from twingrad.interop.check.patterns.small import float32, shifted, small

Said = str | None


def zero(e: Evidence) -> Said:
    """No gradient where there is one."""
    if all(not hand.any() for hand, _ in e.pairs()):
        return f"the gradient of {e.name} is zero; the output does depend on it"
    return None


def partly_zero(e: Evidence) -> Said:
    """Right in some columns, or in scattered entries, and zero in the rest."""
    left_out = []
    for hand, true in e.pairs():
        wrong = ~np.isclose(hand, true, 1e-6, 1e-12 * np.abs(true).max())
        if not wrong.any() or hand[wrong].any() or not hand.any():
            return None
        left_out.append(int(wrong.any(0).sum()))
    return (
        f"the gradient of {e.name} is right where it is not zero, but zero for {left_out[0]} of "
        f"{e.pairs()[0][0].shape[1]} entries"
    )


def not_finite(e: Evidence) -> Said:
    """NaN or infinity where differences are finite."""
    if any(not np.isfinite(hand).all() for hand, _ in e.pairs()):
        return f"the gradient of {e.name} is not finite where the function is smooth"
    return None


def _conjugate(e: Evidence, matrix: np.ndarray) -> np.ndarray:
    """The real matrix of the complex conjugate Jacobian: C J C with C = diag(1, -1)."""
    rows = np.concatenate(
        [np.repeat([1.0, -1.0], y.size) if _complex(y) else np.ones(y.size) for y in e.outputs]
    )
    x = np.asarray(e.points[0].inputs[e.argument])
    columns = np.repeat([1.0, -1.0], x.size) if _complex(x) else np.ones(x.size)
    found: np.ndarray = rows[:, None] * matrix * columns
    return found


def _complex(x: np.ndarray) -> bool:
    return bool(x.dtype.kind == "c")


def conjugation(e: Evidence) -> Said:
    """A complex rule of the other convention."""
    if not any(_complex(np.asarray(x)) for x in (*e.points[0].inputs, *e.outputs)):
        return None
    if e.explains([_conjugate(e, true) for _, true in e.pairs()]):
        return (
            f"the gradient of {e.name} is conjugated: a rule is the plain transpose J^T ct, "
            "without conj (torch's own convention is J^H ct)"
        )
    return None


def swapped(e: Evidence) -> Said:
    """The gradient of another input."""
    for other, name in enumerate(e.names):
        pairs = [(p.true[other], p.hand[e.argument]) for p in e.points]
        if other == e.argument or any(a is None or a.shape != b.shape for a, b in pairs):
            continue
        if e.explains([a for a, _ in pairs]):
            return f"the gradient of {e.name} is that of {name}: the two are exchanged"
    return None


def diagonal(e: Evidence) -> Said:
    """Only the diagonal is there; then it is right, or wrong in a way of its own."""
    pairs = e.pairs()
    if any(true.shape[0] != true.shape[1] or len(true) == 1 for _, true in pairs):
        return None
    if not all(_off_diagonal(true).any() for _, true in pairs):
        return None
    said = (
        f"cross terms are dropped: every d out[i] / d {e.name}[j] is zero; d out[i] / d {e.name}[i]"
    )
    if e.explains([np.diag(np.diag(true)) for _, true in pairs]):
        return f"{said} is right"
    if any(_off_diagonal(hand).any() for hand, _ in pairs):
        return None
    rest = e.with_truth([np.diag(np.diag(true)) for _, true in pairs])
    for look in _FACTORS:
        found = look(rest)
        if found is not None:
            return f"{said} is there, and wrong: {found}"
    return None


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    """The entries off the diagonal that are more than rounding."""
    rest = matrix - np.diag(np.diag(matrix))
    return np.where(np.abs(rest) > 1e-9 * np.abs(matrix).max(), rest, 0.0)


_FACTORS: tuple[Callable[[Evidence], Said], ...] = (
    lambda e: constant(e, sign=True),
    lambda e: constant(e, sign=False),
    lambda e: factor(e, outputs=False),
    lambda e: factor(e, outputs=True),
)


def _rank_one(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    if len(s) < 2 or s[0] == 0 or s[1] > 1e-5 * s[0]:
        return None
    return u[:, 0] * s[0], v[0]


def normaliser(e: Evidence) -> Said:
    """The missing part is u v^T with u the output, as for p / Z, or constant, as for log(p / Z)."""
    for p, (hand, true) in zip(e.points, e.pairs(), strict=True):
        if min(true.shape) < 2:
            return None
        for block, rows in _blocks(p.outputs, true - hand):
            if not block.any():
                continue
            found, y = _rank_one(block), rows
            if found is None:
                return None
            u = found[0] / np.linalg.norm(found[0])
            ways = (y / max(np.linalg.norm(y), 1e-300), np.full(len(y), len(y) ** -0.5))
            if all(abs(abs(u @ way) - 1) > 1e-6 for way in ways):
                return None
    return (
        f"a normaliser is held constant: what is missing of the gradient of {e.name} is the "
        "output times the derivative of a sum or norm that it is divided by"
    )


def _blocks(outputs: tuple[Any, ...], delta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The discrepancy whole; or row by row of a matrix output, each with its output."""
    whole = np.concatenate([flat(y)[: np.size(y)] for y in outputs])
    first = np.asarray(outputs[0])
    if len(outputs) > 1 or first.ndim < 2 or len(whole) != len(delta):
        return [(delta, whole)] if len(whole) == len(delta) else []
    length = first.shape[-1]
    return [(delta[k : k + length], whole[k : k + length]) for k in range(0, len(whole), length)]


def broadcast(e: Evidence) -> Said:
    """Of the rows that belong into a sum only some are there."""
    kept = []
    for hand, true in e.pairs():
        if true.shape[0] <= true.shape[1] or true.shape[0] < 2:
            return None
        live = np.abs(true).max(1) > 0
        right = np.asarray(np.isclose(hand, true, 1e-6, 1e-12).all(1))
        gone = ~hand.any(1)
        if not ((right | gone)[live].all() and (gone & live).any() and (right & live).any()):
            return None
        kept.append(right & live)
    return (
        f"the gradient of {e.name} is not summed over the dimension along which it is "
        f"broadcast: only {int(kept[0].sum())} of {len(kept[0])} terms are there"
    )


def additive(e: Evidence) -> Said:
    """One term is missing or extra: elementwise, or of rank one."""
    deltas = [hand - true for hand, true in e.pairs()]
    square = all(d.shape[0] == d.shape[1] > 1 for d in deltas)
    if square and all(np.allclose(d, np.diag(np.diag(d)), 0, 1e-8 * abs(d).max()) for d in deltas):
        return f"an elementwise term of the gradient of {e.name} is missing or extra"
    blocks = [
        block
        for p, d in zip(e.points, deltas, strict=True)
        for block, _ in _blocks(p.outputs, d) or [(d, d)]
    ]
    if all(min(block.shape) > 1 and _rank_one(block) is not None for block in blocks):
        return f"a term of the form u (v . ct) is missing from the gradient of {e.name}, or extra"
    return None


Pattern = Callable[[Evidence], Said]
# In the order in which they are asked.
ORDER: dict[str, Pattern] = {
    "not finite": not_finite,
    "zero gradient": zero,
    "float32 inside": float32,
    "sign": lambda e: constant(e, sign=True),
    "constant factor": lambda e: constant(e, sign=False),
    "conjugation": conjugation,
    "right for one, wrong for another: swapped": swapped,
    "cross terms dropped": diagonal,
    "broadcast not summed": broadcast,
    "zero gradient ": partly_zero,
    "transpose": transposed,
    "wrong axis": axis,
    "factor of an input": lambda e: factor(e, outputs=False),
    "factor of an output": lambda e: factor(e, outputs=True),
    "eps in one pass": shifted,
    "normaliser held constant": normaliser,
    "wrong axis ": coupling,
    "small error": small,
    "term missing or extra": additive,
}
# Others come from tests of their own.
PATTERNS = (
    *dict.fromkeys(name.strip() for name in ORDER),
    "second order only",
    "not linear",
    "not pure",
    "inputs changed",
    "dtype",
    "shape",
    "raw memory",
    "batch",
    "lost digits",
    "rule not used",
    "not what is wanted",
    "frameworks differ",
    "fails",
    "unknown",
)


def diagnose(e: Evidence) -> tuple[str, str]:
    """The pattern and what to say of it; ("unknown", ...) where none fits."""
    for name, pattern in ORDER.items():
        said = pattern(e)
        if said is not None:
            return name.strip(), said
    share = max(
        float(np.nanmax(np.abs(hand - true)) / max(np.abs(true).max(), 1e-300))
        for hand, true in e.pairs()
    )
    return "unknown", (
        f"the gradient of {e.name} is wrong by up to {share:.0e} of its largest entry; no "
        "known pattern fits"
    )
