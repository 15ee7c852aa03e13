"""Tests of one rule as a piece of code: purity, shapes, dtypes, layouts, digits, batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import flat_all, moves, random_like
from twingrad.interop.check.compare.first_order import Setting, relative
from twingrad.interop.check.report import FAILED, PASSED, UNSUPPORTED, Finding
from twingrad.interop.check.subjects.subject import Arrays, Subject, Unsupported

FACTOR = 3.0  # of rules that show that they ran


def off(found: Any, want: Any) -> float:
    """The largest difference, over the largest entry."""
    a, b = (
        flat_all([x for x in found if x is not None]),
        flat_all([x for x in want if x is not None]),
    )
    if a.shape != b.shape:
        return np.inf
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return np.inf
    with np.errstate(invalid="ignore"):
        difference = np.where((a == b) | np.isnan(a), 0.0, np.abs(a - b))
    return float(difference.max(initial=0.0) / max(np.nanmax(np.abs(b), initial=0.0), 1e-300))


def guarded(test: str, subject: Subject, run: Any) -> Iterator[Finding]:
    """The findings of a test; an error that says what is not there is one of them."""
    try:
        yield from run()
    except Unsupported as why:
        yield Finding(test, subject.name, UNSUPPORTED, str(why).splitlines()[0])


def verdict(
    test: str, subject: Subject, fine: bool, message: str, pattern: str, name: str | None = None
) -> Finding:
    """A finding that passes where `fine`, and otherwise says why not."""
    if fine:
        return Finding(test, subject.name, PASSED)
    return Finding(test, subject.name, FAILED, message, pattern, name)


def purity(subject: Subject, setting: Setting) -> Iterator[Finding]:
    """Same inputs, same result; and the inputs are as they were."""
    inputs = setting.points[0]
    eager: Any = getattr(subject, "eager", lambda: subject)()
    ct = random_like(setting.rng, eager.value(*inputs))
    runs = [(eager.value(*inputs), eager.vjp(ct, *inputs)) for _ in range(3)]
    fine = all(off(a, b) == 0 for later in runs[1:] for a, b in zip(later, runs[0], strict=True))
    yield verdict(
        "same inputs, same result",
        subject,
        fine,
        "three calls with the same inputs gave different results: the value or the rule draws "
        "random numbers, or keeps something between calls. Nothing else can be told; give it its "
        "draws or its generator as an input",
        "not pure",
    )
    yield from _unchanged(eager, setting, ct)


def _unchanged(subject: Subject, setting: Setting, ct: Arrays) -> Iterator[Finding]:
    probe: Any = getattr(subject, "changed", None)
    if probe is None:
        return
    names = probe(ct, *setting.points[0])
    said = ", ".join(setting.names[i] if isinstance(i, int) else i for i in names)
    yield verdict(
        "inputs unchanged",
        subject,
        not names,
        f"{said} changed during the call: work on a copy",
        "inputs changed",
    )


def shapes_and_dtypes(subject: Subject, setting: Setting) -> Iterator[Finding]:
    """Each gradient has the shape and dtype of its input, in float64 and in float32."""
    for dtype in ("float64", "float32"):
        inputs = tuple(cast(x, dtype) for x in setting.points[0])
        test = f"shape and dtype, {dtype}"
        try:
            outputs = subject.value(*inputs)
            found = subject.raw(random_like(setting.rng, outputs), *inputs)
        except Unsupported:
            return
        except Exception as error:
            message = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            if dtype == "float64" or "shape" in message:
                yield Finding(test, subject.name, FAILED, message, "shape")
            else:
                yield Finding(test, subject.name, UNSUPPORTED, message)
            continue
        bad = None
        for x, g, name in zip(inputs, found, setting.names, strict=True):
            want = np.asarray(x).shape, np.asarray(x).dtype.name
            if g is not None and moves(x) and g != want:
                part = "shape" if g[0] != want[0] else "dtype"
                bad = bad or (
                    part,
                    name,
                    f"the gradient of {name} has {part} {g[part == 'dtype']}"
                    f", the input {want[part == 'dtype']}",
                )
        yield verdict(
            test,
            subject,
            bad is None,
            bad[2] if bad else "",
            bad[0] if bad else "",
            bad[1] if bad else None,
        )


def cast(x: Any, dtype: str) -> Any:
    """The array in another precision; integers stay."""
    x = np.asarray(x)
    if x.dtype.kind == "c":
        return x.astype({"float64": "complex128", "float32": "complex64"}[dtype])
    return x.astype(dtype) if moves(x) else x


def digits(subject: Subject, setting: Setting) -> Iterator[Finding]:
    """float32 gradients are float64 ones up to the conditioning of the gradient."""
    low = tuple(cast(x, "float32") for x in setting.points[0])
    high = tuple(cast(x, "float64") for x in low)
    rng = setting.rng
    outputs = subject.value(*high)
    ct = tuple(cast(c, "float32") for c in random_like(rng, outputs))
    try:
        found = subject.vjp(tuple(cast(c, "float32") for c in ct), *low)
    except Exception as error:
        message = f"float32 fails: {type(error).__name__}: {str(error).splitlines()[0]}"
        yield Finding("digits in float32", subject.name, UNSUPPORTED, message)
        return
    ct = tuple(cast(c, "float64") for c in ct)
    want = subject.vjp(ct, *high)
    moved = []
    for _ in range(4):
        near = tuple(
            x * (1 + 1.2e-7 * rng.choice([-1.0, 1.0], np.shape(x))) if moves(x) else x for x in high
        )
        moved.append(off(subject.vjp(ct, *near), want))
    lost, condition = off(found, want), max(moved)
    yield verdict(
        "digits in float32",
        subject,
        lost <= 100 * (1.2e-7 + condition),
        f"the float32 gradient is off by {lost:.0e}; rounding the inputs to float32 changes it by "
        f"{condition:.0e} only: the rule subtracts nearly equal numbers, or over- or underflows",
        "lost digits",
    )


def layouts(subject: Any, setting: Setting) -> Iterator[Finding]:
    """torch: cotangents of stride 0, as sum() makes them, and sliced ones."""
    pull = getattr(subject, "pull_in_layout", None)
    inputs = setting.points[0]
    outputs = subject.value(*inputs)
    if pull is None or not any(np.size(y) > 1 for y in outputs):
        return
    ct = random_like(setting.rng, outputs)
    for kind in ("expanded", "sliced"):
        found, want = pull(kind, ct, *inputs)
        yield verdict(
            f"{kind} cotangent",
            subject,
            off(found, want) < 1e-12,
            f"a cotangent of other strides ({kind}) gives another gradient: the rule reads its "
            "memory without regard to strides; call contiguous() first",
            "raw memory",
        )


def batches(subject: Subject, setting: Setting) -> Iterator[Finding]:
    """vmap over points against the loop over them."""
    points = [p for p in setting.points if _alike(p, setting.points[0])][:3]
    stacked = tuple(np.stack(a) for a in zip(*points, strict=True))
    cts = [random_like(setting.rng, subject.value(*p)) for p in points]
    ct = tuple(np.stack(a) for a in zip(*cts, strict=True))
    values, found = subject.mapped(ct, *stacked)
    loop = [subject.value(*p) for p in points]
    pulls = [subject.vjp(c, *p) for c, p in zip(cts, points, strict=True)]
    want = tuple(np.stack(a) for a in zip(*loop, strict=True))
    gradients = [
        None if parts[0] is None else np.stack(parts) for parts in zip(*pulls, strict=True)
    ]
    share = max(off(values, want), off(found, gradients))
    yield verdict(
        "vmap against the loop",
        subject,
        share <= 1e3 * relative(setting.points[0]),
        f"vmap over {len(points)} inputs gives other results than one after the other: off by "
        f"{share:.0e}",
        "batch",
    )


def _alike(a: Arrays, b: Arrays) -> bool:
    return all(np.shape(x) == np.shape(y) for x, y in zip(a, b, strict=True))


def own_rule(subject: Subject, setting: Setting, compiled: bool) -> Iterator[Finding]:
    """Rules made three times as large must give three times the gradient, wherever it is taken."""
    marked = subject.marked(FACTOR)
    if marked is None:
        return
    inputs = setting.points[0]
    ct = random_like(setting.rng, subject.value(*inputs))
    want = subject.vjp(ct, *inputs)
    ways = {"eager": marked.vjp, "vmap": lambda c, *x: _first(marked, c, x)}
    if compiled:
        ways["compiled"] = marked.compiled
    for name, way in ways.items():
        test = f"own rule runs, {name}"

        def run(test: str = test, way: Any = way) -> Iterator[Finding]:
            found = [None if g is None else np.asarray(g) / FACTOR for g in way(ct, *inputs)]
            yield verdict(
                test,
                subject,
                off(found, want) <= 1e3 * relative(inputs),
                "a rule made three times as large does not give three times the gradient: the "
                "framework differentiates the function itself",
                "rule not used",
            )

        yield from guarded(test, subject, run)


def _first(subject: Subject, ct: Arrays, inputs: tuple[Any, ...]) -> Arrays:
    """The gradient by vmap over one sample."""
    _, found = subject.mapped(
        tuple(np.asarray(c)[None] for c in ct), *(np.asarray(x)[None] for x in inputs)
    )
    return tuple(None if g is None else np.asarray(g)[0] for g in found)


def compiled_is_eager(subject: Subject, setting: Setting) -> Iterator[Finding]:
    """The gradient by the functional transform, compiled, against the eager one."""
    inputs = setting.points[0]
    ct = random_like(setting.rng, subject.value(*inputs))
    share = off(subject.compiled(ct, *inputs), subject.vjp(ct, *inputs))
    yield verdict(
        "compiled against eager",
        subject,
        share <= 1e3 * relative(inputs),
        f"the compiled gradient is off by {share:.0e}",
        "rule not used",
    )
