"""A host function at many perturbed points of a whole batch, in one call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from twingrad.interop.errors import RuleError
from twingrad.interop.op.definition import Op
from twingrad.interop.op.signature import as_tuple

Array = Any


class Points:
    """The inputs of one batch, and the op's function around them.

    Attributes:
        size: the samples of the batch, B.
        moving: which inputs are perturbed: those that are no integers, of the wanted ones.
        x: the moving inputs side by side, float64, shape (B, n).
        finite: which numbers of x are finite; the others stay where they are.
    """

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Array],
        static: dict[str, Any],
        size: int = 1,
        wanted: Sequence[bool] | None = None,
    ) -> None:
        self.op, self.static = op, static
        self.size = max(size, *[len(x) for x in inputs])
        self.inputs = [np.broadcast_to(x, (self.size, *x.shape[1:])) for x in inputs]
        if any(x.dtype.kind == "c" for x in inputs):
            raise RuleError(f"{op.label}: differences are for real inputs; found complex ones")
        live = [True] * len(inputs) if wanted is None else wanted
        self.moving = [i for i, x in enumerate(inputs) if x.dtype.kind == "f" and live[i]]
        self.x = self.join([self.inputs[i] for i in self.moving])
        self.finite = np.isfinite(self.x)

    def join(self, parts: Sequence[Array]) -> Array:
        """Arrays like the moving inputs, side by side: (B, n), or more samples."""
        return side_by_side(tuple(parts), self.size)

    def split(self, joined: Array) -> tuple[Array, ...]:
        """(B, n) as one array for each input, None for those that are not moving."""
        found: list[Array] = [None] * len(self.inputs)
        parts = apart(joined, tuple(self.inputs[i] for i in self.moving))
        for i, part in zip(self.moving, parts, strict=True):
            found[i] = part
        return tuple(found)

    def pull(self, slopes: Array, ct: Any) -> tuple[Array, ...]:
        """The gradients for cotangents of the outputs, with slopes (n, B, m) in every number.

        An output of cotangent 0 adds nothing, whatever its slope.
        """
        seeds = side_by_side(ct)
        size = max(self.size, len(seeds))
        spread = np.broadcast_to(slopes, (len(slopes), size, slopes.shape[-1]))
        seeds = np.broadcast_to(seeds, (size, seeds.shape[1]))
        return self.split(np.einsum("ibm,bm->bi", used(spread, seeds), seeds))

    def at(self, points: Array) -> Array:
        """The function's outputs side by side, (P, B, m), at points of shape (P, B, n).

        One call on a batch of P B samples.

        Raises:
            RuleError: an output has another shape than the signature promises.
        """
        count = len(points)
        args = []
        flat = points.reshape(count * self.size, -1)
        start = 0
        for i, x in enumerate(self.inputs):
            core = x.shape[1:]
            if i in self.moving:
                end = start + math.prod(core)
                args.append(flat[:, start:end].reshape(-1, *core))
                start = end
            else:
                args.append(np.broadcast_to(x, (count, *x.shape)).reshape(-1, *core))
        for arg in args:
            arg.flags.writeable = False
        found = as_tuple(self.op.forward(np, *args, **self.static))
        return np.concatenate([self._flat(y, count) for y in found], axis=-1)

    def _flat(self, y: Array, count: int) -> Array:
        y = np.asarray(y)
        if y.shape[:1] != (count * self.size,):
            raise RuleError(
                f"{self.op.label}: its host function returned shape {y.shape} for "
                f"{count * self.size} perturbed samples; expected the batch dimension in front"
            )
        return y.reshape(count, self.size, -1)


def used(slopes: Array, factors: Array) -> Array:
    """The slopes, and 0 for those times 0: an infinite one would make a NaN of that."""
    return slopes if np.isfinite(slopes).all() else np.where(factors == 0, 0, slopes)


def moved(along: Array, tangents: Array) -> Array:
    """The tangents (B, m) of the outputs, 0 for the samples whose tangents `along` are all 0."""
    return np.where(np.any(along != 0, axis=1)[:, None], tangents, 0)


def side_by_side(arrays: Any, least: int = 1) -> Array:
    """Arrays with one batch dimension as (B, m), one after the other; float64 or complex128."""
    arrays = as_tuple(arrays)
    size = max([least, *map(len, arrays)])
    flat = [np.broadcast_to(a, (size, *a.shape[1:])).reshape(size, -1) for a in arrays]
    joined = np.concatenate(flat, axis=1)
    return joined.astype(np.complex128 if joined.dtype.kind == "c" else np.float64)


def longest(arrays: Sequence[Any]) -> int:
    """The batch size of arrays of which some may be None."""
    return max(len(a) for a in arrays if a is not None)


def apart(joined: Array, outs: Any) -> tuple[Array, ...]:
    """(B, m) as one array for each output."""
    found, start = [], 0
    for y in as_tuple(outs):
        end = start + math.prod(y.shape[1:])
        found.append(joined[:, start:end].reshape(len(joined), *y.shape[1:]))
        start = end
    return tuple(found)
