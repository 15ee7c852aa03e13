"""What is wrong with a gradient: patterns that two Jacobians are compared with.

Each function here looks at an `Evidence` and returns a sentence, or None where its pattern
does not explain what is wrong at every point.  `diagnose` asks them in order, the narrow
ones first, and says so when none fits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twingrad.interop.check.evidence import Evidence, outputs_of
from twingrad.interop.check.patterns_factor import constant, factor
from twingrad.interop.check.patterns_small import float32, shifted, small

Said = str | None


def zero(e: Evidence) -> Said:
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
    if any(not np.isfinite(hand).all() for hand, _ in e.pairs()):
        return f"the gradient of {e.name} is not finite where the function is smooth"
    return None


def _conjugate(e: Evidence, matrix: np.ndarray) -> np.ndarray:
    """The real matrix of the complex conjugate Jacobian: C J C with C = diag(1, -1)."""
    rows = np.concatenate(
        [np.repeat([1.0, -1.0], y.size) if _complex(y) else np.ones(y.size) for y in _outs(e)]
    )
    x = np.asarray(e.points[0].inputs[e.argument])
    columns = np.repeat([1.0, -1.0], x.size) if _complex(x) else np.ones(x.size)
    return rows[:, None] * matrix * columns


def _complex(x: np.ndarray) -> bool:
    return bool(x.dtype.kind == "c")


def _outs(e: Evidence) -> list[np.ndarray]:
    return [np.asarray(y) for y in e.points[0].outputs]


def conjugation(e: Evidence) -> Said:
    if not any(_complex(np.asarray(x)) for x in (*e.points[0].inputs, *_outs(e))):
        return None
    if e.explains([_conjugate(e, true) for _, true in e.pairs()]):
        return (
            f"the gradient of {e.name} is conjugated: a rule is the plain transpose J^T ct, "
            "without conj (torch's own convention is J^H ct)"
        )
    return None


def swapped(e: Evidence) -> Said:
    for other, name in enumerate(e.names):
        pairs = [(p.true[other], p.hand[e.argument]) for p in e.points]
        if other == e.argument or any(a is None or a.shape != b.shape for a, b in pairs):
            continue
        if e.explains([a for a, _ in pairs]):
            return f"the gradient of {e.name} is that of {name}: the two are exchanged"
    return None


def transposed(e: Evidence) -> Said:
    if all(true.shape[0] == true.shape[1] > 1 for _, true in e.pairs()) and e.explains(
        [true.T for _, true in e.pairs()]
    ):
        return (
            f"the rule multiplies by J where J^T belongs (gradient of {e.name}), or back to front"
        )
    if _same_places(e, [true.T for _, true in e.pairs()]):
        return (
            f"the gradient of {e.name} runs back to front: entries of J^T stand where those of J "
            "belong (J in place of J^T, or a sum that runs the other way)"
        )
    shape = np.shape(e.points[0].inputs[e.argument])
    if len(shape) >= 2 and shape[-1] != 1 and shape[-2] != 1:
        found = [_axes(true, shape, transpose=True) for _, true in e.pairs()]
        if e.explains(found):
            return f"the gradient of the matrix {e.name} is transposed"
    return None


def _axes(matrix: np.ndarray, shape: tuple[int, ...], transpose: bool) -> np.ndarray:
    whole = matrix.reshape(len(matrix), *shape)
    whole = np.swapaxes(whole, -1, -2)
    return whole.reshape(len(matrix), -1)


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
    for look in (lambda e: constant(e, True), lambda e: constant(e, False), *_FACTORS):
        found = look(rest)
        if found is not None:
            return f"{said} is there, and wrong: {found}"
    return None


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    """The entries off the diagonal that are more than rounding."""
    rest = matrix - np.diag(np.diag(matrix))
    return np.where(np.abs(rest) > 1e-9 * np.abs(matrix).max(), rest, 0.0)


_FACTORS = (lambda e: factor(e, outputs=False), lambda e: factor(e, outputs=True))


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


def _blocks(outputs: tuple[object, ...], delta: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The discrepancy whole; or row by row of a matrix output, each with its output."""
    whole = np.concatenate([np.asarray(y).real.ravel() for y in outputs])
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
        live, right = np.abs(true).max(1) > 0, np.isclose(hand, true, 1e-6, 1e-12).all(1)
        gone = ~hand.any(1)
        if not ((right | gone)[live].all() and (gone & live).any() and (right & live).any()):
            return None
        kept.append(right & live)
    return (
        f"the gradient of {e.name} is not summed over the dimension along which it is "
        f"broadcast: only {int(kept[0].sum())} of {len(kept[0])} terms are there"
    )


def axis(e: Evidence) -> Said:
    shape = np.shape(e.points[0].inputs[e.argument])
    outs = _outs(e)
    for k in range(len(shape)):
        for word, change in _MOVES.items():
            moved = [
                change(true.reshape(len(true), *shape), k + 1).reshape(true.shape)
                for _, true in e.pairs()
            ]
            if shape[k] > 1 and e.explains(moved):
                return f"the gradient of {e.name} is {word} along axis {k}"
    if len(outs) == 1:
        for k in range(outs[0].ndim):
            for word, change in _MOVES.items():
                moved = [
                    change(true.reshape(*outs[0].shape, -1), k).reshape(true.shape)
                    for _, true in e.pairs()
                ]
                if outs[0].shape[k] > 1 and e.explains(moved):
                    return f"the cotangent is {word} along axis {k} in the gradient of {e.name}"
                if outs[0].shape[k] > 2 and _same_places(e, moved):
                    return f"a term of the gradient of {e.name} is {word} along axis {k}"
    return None


_MOVES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "reversed": lambda a, k: np.flip(a, k),
    "shifted by one": lambda a, k: np.roll(a, 1, k),
    "shifted back by one": lambda a, k: np.roll(a, -1, k),
    "summed in the other direction": lambda a, k: np.flip(a, k),
}


def _same_places(e: Evidence, moved: list[np.ndarray]) -> bool:
    """Whether the entries that are not zero are those of a moved Jacobian, and of no other."""
    for (hand, true), other in zip(e.pairs(), moved, strict=True):
        if other.shape != hand.shape:
            return False
        live = [np.abs(m) > 1e-9 * np.abs(m).max() for m in (hand, true, other)]
        if (live[0] == live[1]).all() or not (live[0] == live[2]).all():
            return False
    return True


def coupling(e: Evidence) -> Said:
    """The rule mixes entries along an axis along which the function does not, or the reverse."""
    outs, x = _outs(e), np.asarray(e.points[0].inputs[e.argument])
    if len(outs) != 1 or outs[0].shape != x.shape or x.ndim < 2:
        return None
    mixed: list[set[int]] = []
    for matrix in (e.pairs()[0][0], e.pairs()[0][1]):
        full = np.abs(matrix.reshape(*x.shape, *x.shape))
        floor, found = 1e-9 * full.max(), set()
        for o in np.argwhere(np.ones(x.shape, bool)):
            for i in np.argwhere(full[tuple(o)] > floor):
                found |= {k for k in range(x.ndim) if o[k] != i[k]}
        mixed.append(found)
    if mixed[0] != mixed[1]:
        extra, missing = sorted(mixed[0] - mixed[1]), sorted(mixed[1] - mixed[0])
        said = [f"mixes entries along axis {k}, the function does not" for k in extra]
        said += [f"does not mix entries along axis {k}, the function does" for k in missing]
        return f"a wrong axis: the gradient of {e.name} {' and '.join(said)}"
    return None


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


__all__ = ["ORDER", "PATTERNS", "diagnose", "outputs_of"]
