"""The first derivative against differences: both rules, entry by entry, at several points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import (
    count,
    flat,
    flat_all,
    moves,
    random_like,
    units,
)
from twingrad.interop.check.compare.differences import jacobian
from twingrad.interop.check.patterns.evidence import Evidence, Point, entry_of, worst_entry
from twingrad.interop.check.patterns.named import diagnose
from twingrad.interop.check.report import FAILED, PASSED, UNSUPPORTED, Example, Finding
from twingrad.interop.check.subjects.subject import Arrays, Subject, Unsupported

# How far a right rule may be off, relative to the largest entry: by the dtype of the inputs.
RELATIVE = {"float64": 1e-10, "complex128": 1e-10, "float32": 2e-4, "complex64": 2e-4}
LOW = 5e-2  # float16 and bfloat16
SAFETY = 30.0  # times the estimated error of the differences


Shrinks = Sequence[Callable[[Arrays], Arrays | None]]  # to smaller or rounder inputs


@dataclass(frozen=True)
class Setting:
    """What is checked: names and points of the inputs, and the random numbers.

    `scaled` are points far away, very small and very large ones.  `kept` is what was computed
    already: Jacobians by differences, and examples.
    """

    label: str
    names: tuple[str, ...]
    points: list[Arrays]
    scaled: list[Arrays]
    seed: int
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def rng(self) -> np.random.Generator:
        """A new generator from the seed."""
        return np.random.default_rng(self.seed)


def relative(inputs: Arrays) -> float:
    """How far a right rule may be off, for the coarsest input."""
    found = [RELATIVE.get(np.asarray(x).dtype.name, LOW) for x in inputs if moves(x)]
    return max(found, default=RELATIVE["float64"])


def rounding(inputs: Arrays) -> float:
    """The relative rounding error of values: of the coarsest input."""
    names = [np.asarray(x).dtype.name for x in inputs if moves(x)]
    known = {"float64": 2e-16, "complex128": 2e-16, "float32": 1e-7, "complex64": 1e-7}
    return max([known.get(name, 4e-3) for name in names], default=2e-16)


def by_hand(subject: Subject, kind: str, inputs: Arrays, outputs: Arrays) -> list[Any]:
    """The Jacobian in each input by the rule: from the vjp row by row, or the jvp by columns."""
    if kind == "vjp":
        rows = [subject.vjp(ct, *inputs) for ct in units(outputs, dual=True)]
        return [
            np.reshape([flat(row[i], dual=True) for row in rows], (len(rows), count(x)))
            if moves(x)
            else None
            for i, x in enumerate(inputs)
        ]
    found: list[Any] = []
    zeros = tuple(np.zeros_like(x) for x in inputs)
    for i, x in enumerate(inputs):
        columns = [
            flat_all(subject.jvp((*zeros[:i], *unit, *zeros[i + 1 :]), *inputs))
            for unit in units([x])
        ]
        size = len(flat_all(outputs))
        stacked = np.stack(columns, 1) if columns else np.zeros((size, 0))
        found.append(stacked if moves(x) else None)
    return found


def truth(subject: Subject, inputs: Arrays) -> list[Any]:
    """The Jacobian in each input and its errors, by differences."""
    return jacobian(subject.value, inputs, rounding(inputs))


def allowed(true: Any, error: Any, share: float) -> np.ndarray:
    """A right rule's distance from `true`: by rows, as each output has a scale of its own."""
    sizes = np.abs(np.where(np.isfinite(true), true, 0.0))
    rows = sizes.max(1, initial=0.0)
    rows = np.maximum(rows, 1e-3 * rows.max(initial=0.0))
    found: np.ndarray = share * rows[:, None] + SAFETY * np.where(np.isfinite(error), error, np.inf)
    return found + 1e-300


def points_of(subject: Subject, kind: str, setting: Setting) -> Iterator[Point]:
    """Both Jacobians at every point where the value is finite."""
    for inputs in (*setting.points, *setting.scaled):
        outputs = subject.value(*inputs)
        if not all(np.isfinite(np.asarray(y)).all() for y in outputs):
            continue
        key = subject.name, id(inputs)
        found = setting.kept[key] = setting.kept.get(key) or truth(subject, inputs)
        hand = by_hand(subject, kind, inputs, outputs)
        share = relative(inputs)
        yield Point(
            inputs,
            outputs,
            [None if f is None else h for f, h in zip(found, hand, strict=True)],
            [None if f is None else f[0] for f in found],
            [None if f is None else f[1] for f in found],
            [None if f is None else allowed(f[0], f[1], share) for f in found],
        )


def check_rule(
    subject: Subject, kind: str, setting: Setting, shrinks: Shrinks
) -> Iterator[Finding]:
    """The findings for one rule: one that passes, or one for each wrong input."""
    test = f"{kind} against differences"
    try:
        points = list(points_of(subject, kind, setting))
    except Unsupported as why:
        yield Finding(test, subject.name, UNSUPPORTED, str(why))
        return
    if not points:
        yield Finding(test, subject.name, UNSUPPORTED, "the value is finite at no point")
        return
    wrong = [i for i in range(len(setting.names)) if any(p.wrong(i).any() for p in points)]
    for i in wrong:
        right = [
            n for j, n in enumerate(setting.names) if j not in wrong and moves(points[0].inputs[j])
        ]
        yield _failure(subject, kind, setting, i, points, right, shrinks)
    if not wrong:
        known = all(np.isfinite(e).all() for p in points for e in p.error if e is not None)
        note = "" if known else "differences could not decide some entries"
        yield Finding(test, subject.name, PASSED, note)


def _failure(
    subject: Subject,
    kind: str,
    setting: Setting,
    i: int,
    points: list[Point],
    right: list[str],
    shrinks: Shrinks,
) -> Finding:
    """What is wrong with the Jacobian in input i."""
    wrong = [p for p in points if p.wrong(i).any()]
    evidence = Evidence(
        setting.names,
        i,
        [p for p in wrong if _near(p, setting)] or wrong,
        wrong,
        lambda x: [None if f is None else f[0] for f in truth(subject, x)],
    )
    pattern, said = diagnose(evidence)
    said += f"; right for {', '.join(right)}" if right else ""
    said += f"; wrong at {len(wrong)} of {len(points)} points" if len(wrong) < len(points) else ""
    key = subject.name, i, said
    if key not in setting.kept:
        setting.kept[key] = smallest(subject, kind, setting.names, i, wrong[0], shrinks)
    test, name = f"{kind} against differences", setting.names[i]
    return Finding(test, subject.name, FAILED, said, pattern, name, setting.kept[key])


def _near(point: Point, setting: Setting) -> bool:
    return any(point.inputs is inputs for inputs in setting.points)


def smallest(
    subject: Subject,
    kind: str,
    names: tuple[str, ...],
    i: int,
    point: Point,
    shrinks: Shrinks,
) -> Example:
    """An example from smaller and rounder inputs, as long as they show the fault too."""

    least = 0.1 * _worst(point, i)

    def at(inputs: Arrays) -> Point | None:
        try:
            found = list(points_of(subject, kind, Setting("", names, [inputs], [], 0)))
        except Exception:  # a smaller input may be none
            return None
        shows = found and found[0].wrong(i).any() and _worst(found[0], i) >= least
        return found[0] if shows else None

    for smaller in shrinks:
        inputs = smaller(point.inputs)
        point = (at(inputs) if inputs is not None else None) or point
    row, column = worst_entry(point, i)
    return Example(
        {name: np.asarray(x).astype(_plain(x)).tolist() for name, x in _named(names, point)},
        entry_of(point, names, i, row, column),
        float(point.hand[i][row, column]),
        float(point.true[i][row, column]),
        float(point.error[i][row, column]),
    )


def _worst(point: Point, i: int) -> float:
    """How wrong the Jacobian is, as a share of its own largest entry or of the right one's."""
    hand, true = np.abs(point.hand[i]), np.abs(point.true[i])
    off = np.abs(point.hand[i] - point.true[i])[point.wrong(i)].max(initial=0.0)
    return float(off / max(hand.max(initial=0.0), true.max(initial=0.0), 1e-300))


def _named(names: tuple[str, ...], point: Point) -> Iterator[tuple[str, Any]]:
    return zip(names, point.inputs, strict=True)


def _plain(x: Any) -> Any:
    return str if np.asarray(x).dtype.kind == "c" else np.asarray(x).dtype


def check_products(subject: Subject, setting: Setting) -> Iterator[Finding]:
    """The dot-product identity, and linearity, at random cotangents and tangents."""
    rng, inputs = setting.rng, setting.points[0]
    outputs = subject.value(*inputs)
    pairs = (
        [random_like(rng, outputs) for _ in range(2)],
        [random_like(rng, inputs) for _ in range(2)],
    )
    share = 1e3 * relative(inputs) if relative(inputs) < 1e-6 else relative(inputs)
    found: dict[str, Any] = {}
    for kind, (a, b) in (("vjp", pairs[0]), ("jvp", pairs[1])):
        test = f"{kind} is linear"
        rule = getattr(subject, kind)
        try:
            first, second = _vector(rule(a, *inputs), kind), _vector(rule(b, *inputs), kind)
            mixed = tuple(_mix(x, y) for x, y in zip(a, b, strict=True))
            both = _vector(rule(mixed, *inputs), kind)
        except Unsupported as why:
            yield Finding(test, subject.name, UNSUPPORTED, str(why))
            continue
        found[kind] = first
        want = 2.5 * first - 1000.0 * second
        scale = 2.5 * np.abs(first).max(initial=0.0) + 1000 * np.abs(second).max(initial=0.0)
        off = np.abs(both - want).max(initial=0.0)
        if off <= share * scale + 1e-300:
            yield Finding(test, subject.name, PASSED)
        else:
            what = "cotangent" if kind == "vjp" else "tangent"
            yield Finding(
                test,
                subject.name,
                FAILED,
                f"{kind}(2.5 a - 1000 b) differs from 2.5 {kind}(a) - 1000 {kind}(b) by "
                f"{off / max(scale, 1e-300):.0e} of its size: the rule is not linear in the {what}",
                "not linear",
            )
    if len(found) == 2:
        yield _identity(subject, found, pairs, inputs, share)


def _vector(found: Arrays, kind: str) -> np.ndarray:
    return flat_all([g for g in found if g is not None and moves(g)], dual=kind == "vjp")


def _mix(x: Any, y: Any) -> Any:
    return np.asarray(2.5 * x - 1000.0 * y, np.asarray(x).dtype)


def _identity(subject: Subject, found: Any, pairs: Any, inputs: Arrays, share: float) -> Finding:
    """ct . (J v) = (J^T ct) . v"""
    ct, v = pairs[0][0], pairs[1][0]
    moving = [t for t, x in zip(v, inputs, strict=True) if moves(x)]
    outs = [c for c in ct if moves(c)]
    left = flat_all(outs, dual=True) * found["jvp"]
    right = found["vjp"] * flat_all(moving)
    scale = np.abs(left).sum() + np.abs(right).sum()
    off = abs(left.sum() - right.sum())
    test = "vjp and jvp are transposes"
    if off <= share * scale + 1e-300:
        return Finding(test, subject.name, PASSED)
    return Finding(
        test,
        subject.name,
        FAILED,
        f"ct . jvp(v) is {left.sum():.10g}, vjp(ct) . v is {right.sum():.10g}: one of the two "
        "rules is wrong",
    )
