"""Calls that only an op has: one argument batched, no samples at all, one gradient wanted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import moves, random_like
from twingrad.interop.check.compare.calls import off, verdict
from twingrad.interop.check.compare.first_order import Setting, relative
from twingrad.interop.check.report import Finding
from twingrad.interop.check.subjects.subject import Arrays, Subject
from twingrad.interop.numpy import bind
from twingrad.interop.op.definition import Op
from twingrad.interop.op.samples.host import asks


def broadcasting(side: Subject, op: Op, setting: Setting) -> Iterator[Finding]:
    """Each argument in turn with a batch of its own: gradients of the others are summed."""
    near = [p for p in setting.points if _cores(p) == _cores(setting.points[0])][:2]
    base = setting.points[0]
    if len(near) < 2 or any(
        np.ndim(x) != len(core) for x, core in zip(base, op.signature.inputs, strict=True)
    ):
        return
    worst, name = 0.0, None
    for i, argument in enumerate(setting.names):
        both = tuple(np.stack([p[i] for p in near]) if j == i else x for j, x in enumerate(base))
        each = [(*base[:i], p[i], *base[i + 1 :]) for p in near]
        cts = [random_like(setting.rng, side.value(*x)) for x in each]
        found = side.vjp(tuple(np.stack(c) for c in zip(*cts, strict=True)), *both)
        alone = [side.vjp(ct, *x) for ct, x in zip(cts, each, strict=True)]
        want = [
            None
            if g is None
            else np.stack([a[j] for a in alone])
            if j == i
            else alone[0][j] + alone[1][j]
            for j, g in enumerate(alone[0])
        ]
        share = off(found, want)
        if share > worst:
            worst, name = share, argument
    yield verdict(
        "broadcast arguments",
        side,
        worst <= 1e3 * relative(base),
        f"with a batch of {name} alone, gradients are off by {worst:.0e}",
        "broadcast not summed",
        name,
    )


def _cores(inputs: Arrays) -> list[tuple[int, ...]]:
    return [np.shape(x) for x in inputs]


def zero_batch(side: Subject, op: Op, setting: Setting) -> Iterator[Finding]:
    """A batch of no samples gives empty results, and gradients of the inputs' shapes."""
    empty: list[Any] = []
    for x, core in zip(setting.points[0], op.signature.inputs, strict=True):
        x = np.asarray(x)
        empty.append(np.zeros((0, *x.shape[x.ndim - len(core) :]), x.dtype))
    outputs = side.value(*empty)
    found = side.vjp(tuple(np.zeros_like(y) for y in outputs), *empty)
    fine = all(np.shape(y)[0] == 0 for y in outputs) and all(
        g is None or np.shape(g) == x.shape for g, x in zip(found, empty, strict=True) if moves(x)
    )
    yield verdict("batch of none", side, fine, "a batch of 0 samples gives other shapes", "shape")


def alone(side: Subject, op: Op, setting: Setting) -> Iterator[Finding]:
    """A rule that asks for `needs` gives each gradient alone as it gives them together."""
    if op.vjp is None or not asks(op.written.get("vjp"), "needs"):
        return
    vjp, static = bind(op).vjp, getattr(side, "static", {})
    inputs = setting.points[0]
    cts = random_like(setting.rng, side.value(*inputs))
    together = vjp(cts, *inputs, **static)
    worst, name = 0.0, None
    for i, argument in enumerate(setting.names):
        found = vjp(cts, *inputs, wanted=[op.names[i]], **static)[i]
        share = off([found], [together[i]])
        if share > worst:
            worst, name = share, argument
    yield verdict(
        "each gradient alone",
        side,
        worst <= max(1e-6, 1e3 * relative(inputs)),  # numeric rules round otherwise
        f"the gradient of {name} is off by {worst:.0e} where no other is wanted: the rule "
        f"must give it whenever needs.{name} is true",
        "not what is wanted",
        name,
    )
