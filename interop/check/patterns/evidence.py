"""The Jacobians that a diagnosis looks at: by hand and by differences, at several points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import entry_name, flat


@dataclass(frozen=True)
class Point:
    """One input with both Jacobians, matrices (entries of the outputs, entries of an input).

    Attributes:
        inputs, outputs: NumPy arrays.
        hand: for each input, from the rule; None for integers.
        true, error: for each input, from differences, and how far they may be off.
        allowed: for each input, how far `hand` may be from `true`.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    hand: list[Any]
    true: list[Any]
    error: list[Any]
    allowed: list[Any]

    def wrong(self, i: int) -> np.ndarray:
        """Where the Jacobian in an input is wrong; nothing is known where differences fail."""
        if self.hand[i] is None:
            return np.zeros((0, 0), bool)
        known = np.isfinite(self.true[i]) & np.isfinite(self.error[i])
        off = np.abs(self.hand[i] - self.true[i])
        found: np.ndarray = known & ~(off <= self.allowed[i])
        return found


@dataclass(frozen=True)
class Evidence:
    """What is known of one wrong input: `points` that show it, and the names.

    `anywhere` has those at very small and very large inputs, too.  `truth(inputs)` gives the
    Jacobians at other inputs, by differences.
    """

    names: tuple[str, ...]
    argument: int
    points: list[Point]
    anywhere: list[Point]
    truth: Callable[[tuple[Any, ...]], list[Any]]

    @property
    def name(self) -> str:
        """Of the input."""
        return self.names[self.argument]

    @property
    def outputs(self) -> list[np.ndarray]:
        """At the first point."""
        return [np.asarray(y) for y in self.points[0].outputs]

    def pairs(self, argument: int | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
        """(hand, true) of one input, at each point."""
        i = self.argument if argument is None else argument
        return [(p.hand[i], p.true[i]) for p in self.points]

    def with_truth(self, matrices: list[np.ndarray]) -> Evidence:
        """The same evidence, as if these were the true Jacobians."""
        points = []
        for p, matrix in zip(self.points, matrices, strict=True):
            true = [matrix if i == self.argument else t for i, t in enumerate(p.true)]
            points.append(replace(p, true=true))
        return replace(self, points=points)

    def explains(self, candidates: list[np.ndarray], share: float = 0.02) -> bool:
        """Whether candidates in place of the true Jacobians leave next to nothing wrong."""
        i = self.argument
        for p, candidate in zip(self.points, candidates, strict=True):
            hand, true = p.hand[i], p.true[i]
            if candidate.shape != hand.shape or not np.isfinite(candidate).all():
                return False
            discrepancy, left = np.abs(hand - true).max(), np.abs(hand - candidate).max()
            noise = float(np.nanmax(p.error[i], initial=0.0))
            if not left <= max(share * discrepancy, 50 * noise):
                return False
            if discrepancy <= 100 * noise and left > discrepancy / 3:
                return False
        return True


def worst_entry(point: Point, i: int) -> tuple[int, int]:
    """Where the rule is furthest off, relative to what it may be."""
    wrong = point.wrong(i)
    excess = np.abs(point.hand[i] - point.true[i]) / point.allowed[i]
    excess = np.where(wrong, np.nan_to_num(excess, nan=np.inf, posinf=np.inf), -1.0)
    row, column = np.unravel_index(int(np.argmax(excess)), excess.shape)
    return int(row), int(column)


def entry_of(point: Point, names: tuple[str, ...], i: int, row: int, column: int) -> str:
    """``d out[1] / d s[0]``."""
    x = point.inputs[i]
    several = len(point.outputs) > 1
    for number, y in enumerate(point.outputs):
        size = len(flat(y))
        if row < size:
            out = f"out{number}" if several else "out"
            return f"d {out}{entry_name(row, y)} / d {names[i]}{entry_name(column, x)}"
        row -= size
    raise IndexError(row)
