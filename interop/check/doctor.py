"""`check`: run every test on a target, in each framework, and collect what they find."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import moves, random_like
from twingrad.interop.check.compare import calls
from twingrad.interop.check.compare.batching import alone, broadcasting, zero_batch
from twingrad.interop.check.compare.first_order import Setting, check_products, check_rule, relative
from twingrad.interop.check.compare.second_order import check_second
from twingrad.interop.check.report import FAILED, PASSED, UNSUPPORTED, Finding, Report
from twingrad.interop.check.subjects.inputs import Draw, fixed_sizes, points, shrinks
from twingrad.interop.check.subjects.structured import flattened
from twingrad.interop.check.subjects.subject import Subject, Unsupported, frameworks_of, subject
from twingrad.interop.errors import ArgumentError, RuleError
from twingrad.interop.op.definition import Op
from twingrad.interop.op.structure.family import Family

SILENT_S = 3.0  # a check that takes longer says where it is


def check(
    target: Any,
    *inputs: Any,
    draw: Draw | None = None,
    shapes: dict[str, int] | None = None,
    framework: str | None = None,
    static: dict[str, Any] | None = None,
    names: tuple[str, ...] | None = None,
    seed: int = 0,
    second_order: bool = True,
    compiled: bool = False,
    progress: bool | None = None,
) -> Report:
    """Check a hand-written gradient, and say what is wrong with it.

    Both rules are compared with differences (Ridders' method, float64, with an error estimate
    for every entry) at random inputs of several sizes; then linearity, purity, shapes, dtypes,
    layouts, digits in float32, batches, the second derivative in all nestings, and that torch
    and JAX agree.

    Args:
        target: an `Op`; a `torch.autograd.Function` or function of tensors; or a function of
            JAX arrays, such as a `custom_vjp`.
        inputs: where to check it, as NumPy arrays, tensors, JAX arrays or numbers; those of a
            structured op in their structure.  Small ones: the Jacobian is computed entry by entry.
        draw: or a function of a `numpy.random.Generator` that returns a tuple of inputs.
        shapes: or sizes for the dimensions of an op's signature, ``{"n": 5}``, to draw from.
        framework: torch, jax or both; needed where the target does not tell.
        static: static parameters of the call.
        names: of the inputs, for the report.
        seed: of all random numbers.
        second_order: whether to look at second derivatives.
        compiled: whether to compile (slow in torch), and see that the rule runs there, too.
        progress: say on stderr what is being done; by default where it takes long.

    Returns:
        A `Report`: prints as a table; `passed`, `failures`, `raise_if_failed()`, `to_json()`.

    Raises:
        ArgumentError: no inputs and no way to draw them, or a target of an unknown framework.
    """
    if isinstance(target, Family):
        target, inputs, draw = flattened(target, inputs, draw, seed)
    sides = [subject(target, f, static or {}) for f in frameworks_of(target, inputs, framework)]
    say = _Progress(progress)
    sizes = fixed_sizes(target, static or {}) | (shapes or {})
    where, scaled = points(target, inputs, draw, sizes, seed, _finite(sides[0]))
    setting = Setting(_label(target), _names(target, names, where[0]), where, scaled, seed)
    report = Report(setting.label, seed)
    for side in sides:
        # what the rule's own code does is the same in both frameworks
        tests = _tests(target, side, setting, second_order, compiled, report, side is sides[0])
        for test, run in tests:
            say(f"check {setting.label}: {side.name}, {test}")
            report.findings += _guarded(test, side, run)
    if len(sides) == 2 and "not pure" not in report.patterns:
        report.findings += _guarded("torch and JAX agree", sides[0], lambda: _agree(sides, setting))
    say(None)
    return report


def assert_gradients(target: Any, *inputs: Any, **options: Any) -> None:
    """For tests: `check`, and an AssertionError with the report where something is wrong."""
    check(target, *inputs, **options).raise_if_failed()


Test = tuple[str, Callable[[], Iterator[Finding]]]


def _tests(
    target: Any,
    side: Subject,
    setting: Setting,
    second: bool,
    compiled: bool,
    report: Report,
    first_side: bool,
) -> Iterator[Test]:
    steps = tuple(shrinks(target))
    if first_side:
        yield "purity", lambda: calls.purity(side, setting)
    yield "shape and dtype", lambda: calls.shapes_and_dtypes(side, setting)
    if any(f.pattern == "not pure" for f in report.failures):
        return  # nothing can be compared with a value that changes
    yield "vjp against differences", lambda: check_rule(side, "vjp", setting, steps)
    yield "jvp against differences", lambda: check_rule(side, "jvp", setting, steps)
    yield "linearity", lambda: check_products(side, setting)
    first = not any(
        f.status == FAILED and f.framework == side.name and "differences" in f.test
        for f in report.findings
    )
    if first:  # a wrong gradient has wrong digits and derivatives, too
        yield "digits in float32", lambda: calls.digits(side, setting)
        if second:
            yield "second order", lambda: check_second(side, setting)
    yield "layouts", lambda: calls.layouts(side, setting)
    yield "vmap against the loop", lambda: calls.batches(side, setting)
    if isinstance(target, Op) and first_side:
        yield "broadcasting", lambda: broadcasting(side, target, setting)
        yield "zero batch", lambda: zero_batch(side, target, setting)
        yield "each gradient alone", lambda: alone(side, target, setting)
    if compiled:
        yield "compiled against eager", lambda: calls.compiled_is_eager(side, setting)
    yield "own rule runs", lambda: calls.own_rule(side, setting, compiled)


def _guarded(test: str, side: Subject, run: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """The findings; an error that nobody expected is one, too."""
    found: list[Finding] = []
    try:
        found.extend(run())
    except Unsupported as why:
        found.append(Finding(test, side.name, UNSUPPORTED, str(why).splitlines()[0]))
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        shape = isinstance(error, RuleError) and "shape" in str(error)
        text = f"{type(error).__name__}: {str(error).strip()[:300]}"
        found.append(Finding(test, side.name, FAILED, text, "shape" if shape else "fails"))
    return found


def _agree(sides: list[Subject], setting: Setting) -> Iterator[Finding]:
    worst = 0.0
    for inputs in setting.points:
        values = [side.value(*inputs) for side in sides]
        ct = random_like(setting.rng, values[0])
        pulls = [side.vjp(ct, *inputs) for side in sides]
        worst = max(worst, calls.off(*values), calls.off(*pulls))
    fine = worst <= 100 * relative(setting.points[0])
    message = f"value or gradient differ by {worst:.0e} between torch and JAX"
    status, pattern = (PASSED, None) if fine else (FAILED, "frameworks differ")
    yield Finding("torch and JAX agree", "both", status, "" if fine else message, pattern)


def _finite(side: Subject) -> Callable[[tuple[Any, ...]], bool]:
    def finite(inputs: tuple[Any, ...]) -> bool:
        try:
            with np.errstate(all="ignore"):
                outputs = side.value(*inputs)
        except ArgumentError:
            raise
        except Exception:  # outside of the domain
            return False
        return all(np.isfinite(np.asarray(y)).all() for y in outputs if moves(y))

    return finite


def _label(target: Any) -> str:
    if isinstance(target, Op):
        return target.label
    return str(getattr(target, "__name__", None) or repr(target))


def _names(target: Any, names: tuple[str, ...] | None, inputs: tuple[Any, ...]) -> tuple[str, ...]:
    found = names or (target.names if isinstance(target, Op) else None)
    found = found or tuple(f"x{i}" for i in range(len(inputs)))
    if len(found) != len(inputs):
        raise ArgumentError(
            f"check {_label(target)}: found {len(inputs)} inputs for {len(found)} names "
            f"({', '.join(found)})"
        )
    return tuple(found)


class _Progress:
    """Says on stderr what runs, once a check has taken a while."""

    def __init__(self, wanted: bool | None) -> None:
        self.start, self.wanted, self.shown = time.monotonic(), wanted, False

    def __call__(self, text: str | None) -> None:
        late = time.monotonic() - self.start > SILENT_S and sys.stderr.isatty()
        if self.wanted or (self.wanted is None and (late or self.shown)):
            print(f"\r\x1b[K{text or ''}", end="", file=sys.stderr, flush=True)
            self.shown = True
