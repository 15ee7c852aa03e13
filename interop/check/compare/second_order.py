"""The second derivative against differences of the rule, in all four nestings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import flat_all, moves, random_like
from twingrad.interop.check.compare.differences import directional
from twingrad.interop.check.compare.first_order import SAFETY, Setting, relative, rounding
from twingrad.interop.check.report import FAILED, PASSED, UNSUPPORTED, Finding
from twingrad.interop.check.subjects.subject import NESTINGS, Arrays, Subject, Unsupported


def check_second(subject: Subject, setting: Setting) -> Iterator[Finding]:
    """One finding for each nesting; the rules' first derivatives are right."""
    rng, inputs = setting.rng, setting.points[0]
    outputs = subject.value(*inputs)
    if any(np.asarray(x).dtype.kind == "c" for x in (*inputs, *outputs)):
        return  # the nestings conjugate differently; first order is checked
    ct = random_like(rng, outputs)
    v, w = (_small(random_like(rng, inputs), inputs) for _ in range(2))
    for nesting in NESTINGS:
        test = f"second order, {nesting}"
        try:
            found = flat_all(subject.second(nesting, ct, v, w, *inputs))
            want, error = _wanted(subject, nesting, ct, v, w, inputs)
        except Unsupported as why:
            yield Finding(test, subject.name, UNSUPPORTED, str(why).splitlines()[0])
            continue
        except Exception as why:  # the framework's own way to say that it cannot
            yield Finding(test, subject.name, UNSUPPORTED, f"{type(why).__name__}: {why}"[:200])
            continue
        yield _compare(test, subject, nesting, found, want, error, relative(inputs))


def _small(directions: Arrays, inputs: Arrays) -> Arrays:
    """Directions in the size of what they move."""
    return tuple(
        np.asarray(d * np.maximum(np.abs(x), 1e-3), np.asarray(x).dtype) if moves(x) else d
        for d, x in zip(directions, inputs, strict=True)
    )


def _wanted(
    subject: Subject, nesting: str, ct: Arrays, v: Arrays, w: Arrays, inputs: Arrays
) -> tuple[Any, Any]:
    def vjp(*x: Any) -> Arrays:
        return tuple(g for g in subject.vjp(ct, *x) if g is not None)

    def jvp(*x: Any) -> Arrays:
        return subject.jvp(w, *x)

    rule = jvp if nesting == "fwd over fwd" else vjp
    return directional(rule, inputs, v, rounding(inputs))


def _compare(
    test: str, subject: Subject, nesting: str, found: Any, want: Any, error: Any, share: float
) -> Finding:
    known = np.isfinite(want) & np.isfinite(error)
    size = float(np.abs(np.where(known, want, 0)).max(initial=0.0))
    limit = 100 * share * size + SAFETY * np.where(known, error, np.inf) + 1e-300
    wrong = known & ~(np.abs(found - want) <= limit)
    if not wrong.any():
        return Finding(test, subject.name, PASSED)
    place = int(np.argmax(np.where(wrong, np.abs(found - want), -1)))
    if not found.any():
        said = "it is zero"
    else:
        said = f"off by {np.abs(found - want)[wrong].max() / max(size, 1e-300):.0e} of its size"
    return Finding(
        test,
        subject.name,
        FAILED,
        f"{said}: entry {place} along a random direction is {found[place]:.10g}, should be "
        f"{want[place]:.10g} (good to {error[place]:.0e}). The first derivative is right; "
        "something in the rule is held constant: an intermediate that was saved, detached or "
        "computed outside of the framework",
        "second order only",
    )
