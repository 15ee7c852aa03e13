"""The shapes in which a kernel gets its arrays: as few batch dimensions as say the same.

A compiler makes another kernel for another rank, and for a size of 1.  So batch dimensions that
nobody has are dropped, and neighbours that the same arrays share are joined: whatever the batch,
nearly every call then has one batch dimension.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

from twingrad.interop.op.signature import Shape, Signature


@dataclass(frozen=True, eq=False)
class Layout:
    """What follows from the shapes of the arguments.

    Attributes:
        shapes: of the arguments, as the kernel gets them.
        repeated: the dimensions of each argument to take the first entry of, before.
        targets: for each gradient and each batch dimension, the argument to take its size from;
            None where the gradient is summed over it.
        outputs: the shapes of the results, if these are the outputs of the signature.
        pattern: what a kernel is compiled for, besides dtypes and devices.
    """

    shapes: tuple[Shape, ...]
    repeated: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int | None, ...], ...]
    outputs: tuple[Shape, ...]
    pattern: Any


@functools.lru_cache(maxsize=1024)
def layout(
    signature: Signature,
    shapes: tuple[Shape, ...],
    repeated: tuple[tuple[int, ...], ...],
    targets: tuple[int, ...],
) -> Layout:
    """The `Layout` of these arguments.

    `repeated` are the batch dimensions of each, counted from the last, along which it is one and
    the same; `targets` the arguments that have a gradient, which has their shape.
    """
    plan = signature.plan(shapes)
    rank = len(plan.batch)
    cores = [shape[rank:] for shape in plan.aligned]
    every = set.intersection(*map(set, repeated))
    repeated = tuple(tuple(axis for axis in axes if axis not in every) for axes in repeated)
    spread = [
        tuple(shape[axis] != 1 and rank - axis not in axes for axis in range(rank))
        for shape, axes in zip(plan.aligned, repeated, strict=True)
    ]
    wide = [tuple(plan.aligned[i][axis] != 1 for axis in range(rank)) for i in targets]
    groups: list[tuple[Any, list[int]]] = []
    for axis in range(rank):
        if plan.batch[axis] == 1:
            continue
        has = tuple(s[axis] for s in spread), tuple(w[axis] for w in wide)
        if not groups or groups[-1][0] != has:
            groups.append((has, []))
        groups[-1][1].append(plan.batch[axis])
    sizes = [math.prod(group) for _, group in groups]
    return Layout(
        shapes=tuple(
            tuple(n if has[0][i] else 1 for (has, _), n in zip(groups, sizes, strict=True)) + core
            for i, core in enumerate(cores)
        ),
        repeated=tuple(
            tuple(-len(core) - axis for axis in axes)
            for core, axes in zip(cores, repeated, strict=True)
        ),
        targets=tuple(
            tuple(has[0].index(True) if has[1][i] else None for has, _ in groups)
            for i in range(len(targets))
        ),
        outputs=() if targets else plan.outputs,
        pattern=(
            tuple(has for has, _ in groups),
            tuple(tuple(n == 1 for n in core) for core in cores),
        ),
    )


def repeats(x: Any, core: int) -> tuple[int, ...]:
    """The batch dimensions, counted as in `layout`, along which a tensor has stride 0."""
    pairs = itertools.islice(zip(x.shape, x.stride(), strict=True), x.dim() - core)
    return tuple(
        x.dim() - core - axis for axis, (n, step) in enumerate(pairs) if step == 0 and n > 1
    )
