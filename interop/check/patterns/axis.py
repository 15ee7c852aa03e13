"""Patterns of axes: transposed, reversed, shifted, or mixed along another axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twingrad.interop.check.patterns.evidence import Evidence

Said = str | None

_MOVES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "reversed": lambda a, k: np.flip(a, k),
    "shifted by one": lambda a, k: np.roll(a, 1, k),
    "shifted back by one": lambda a, k: np.roll(a, -1, k),
    "summed in the other direction": lambda a, k: np.flip(a, k),
}


def transposed(e: Evidence) -> Said:
    """J for J^T, or the gradient of a matrix as of its transpose."""
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


def axis(e: Evidence) -> Said:
    """Reversed or shifted along an axis of the input or the output."""
    shape = np.shape(e.points[0].inputs[e.argument])
    outs = e.outputs
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
    outs, x = e.outputs, np.asarray(e.points[0].inputs[e.argument])
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
