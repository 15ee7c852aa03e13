"""Structured ops in the check: the ordinary op of one structure, at the arrays in it."""

from __future__ import annotations

import numpy as np

from twingrad.interop.check.subjects.inputs import Draw
from twingrad.interop.check.subjects.subject import Arrays
from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.definition import Op
from twingrad.interop.op.structure.family import Family


def flattened(
    target: Family, inputs: Arrays, draw: Draw | None, seed: int
) -> tuple[Op, Arrays, Draw | None]:
    """The op of the arrays in these arguments, the arrays, and a draw of them.

    Raises:
        ArgumentError: no arguments are given, or `draw` returns some of several structures.
    """
    if not inputs and draw is None:
        raise ArgumentError(
            f"check {target.label}: give inputs, or draw=: their structure is not in the signature"
        )
    given = inputs if inputs or draw is None else draw(np.random.default_rng(seed))
    op, leaves, _ = target.flatten(given, {})
    if inputs or draw is None:
        return op, tuple(leaves), None

    def arrays(rng: np.random.Generator) -> Arrays:
        other, found, _ = target.flatten(draw(rng), {})
        if other is not op:
            raise ArgumentError(f"check {target.label}: draw returns arguments of two structures")
        return tuple(found)

    return op, (), arrays
