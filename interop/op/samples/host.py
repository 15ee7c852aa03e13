"""How host functions are called: on a batch, or one sample after the other or side by side.

Any `concurrent.futures.Executor` will do: threads, processes, and the executors of Dask, Ray
and MPI, which run the samples on other machines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twingrad.interop.errors import ArgumentError, RuleError
from twingrad.interop.op.missing import unknown
from twingrad.interop.op.samples.executors import check_executor
from twingrad.interop.op.samples.forks import Turns
from twingrad.interop.op.samples.running import run
from twingrad.interop.op.signature import as_tuple

Function = Callable[..., Any]


@dataclass(frozen=True)
class Host:
    """How a host op's functions are called.

    Attributes:
        vectorize: the functions take one sample, and are called for each of a batch.
        executor: what runs the samples; None: one after the other, in this thread.
        progress: called as ``progress(done, total)`` after each sample of a batch; True: a bar
            by tqdm, or a line on stderr where that is not installed.
        finite: a result that is not finite raises.
        serial: one call at a time, from any thread, for code that has global state: of the
            function and the rules of every op that has this very `Host`.

    Raises:
        ArgumentError: an executor that is none, a progress that cannot be called, either of
            them without ``vectorize=True``, or an executor with ``serial=True``.
    """

    vectorize: bool = False
    executor: Executor | None = None
    progress: Callable[[int, int], Any] | bool | None = None
    finite: bool = False
    serial: bool = False
    turns: Turns | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check what was given."""
        check_executor(self.executor)
        if not (
            self.progress is None or isinstance(self.progress, bool) or callable(self.progress)
        ):
            raise ArgumentError(
                f"Host: progress is a {type(self.progress).__name__}; expected True or a "
                "function progress(done, total)"
            )
        for name in ("executor", "progress"):
            if getattr(self, name) and not self.vectorize:
                raise ArgumentError(
                    f"Host: {name} is for functions that take one sample; found it without "
                    "vectorize=True: add that, or leave it out for a function of a whole batch"
                )
        if self.serial and self.executor:
            raise ArgumentError(
                "Host: serial=True makes one call at a time, an executor several; give one of them"
            )
        if self.serial:
            object.__setattr__(self, "turns", Turns())


def as_host(what: str, host: Any) -> Host:
    """The `Host` that was given, or the usual one for True.

    Raises:
        ArgumentError: it is something else, such as an executor.
    """
    if isinstance(host, Host):
        return host
    if host is True:
        return Host()
    found = host if isinstance(host, bool) else f"a {type(host).__name__}"
    raise ArgumentError(
        f"{what}: host is {found}; expected True or a Host, such as "
        "Host(vectorize=True, executor=ProcessPoolExecutor(4))"
    )


@dataclass(frozen=True)
class WithNumPy:
    """A function that takes `xp`, as one that does not."""

    function: Function

    def __call__(self, *args: Any, **static: Any) -> Any:
        """What the function returns."""
        return self.function(np, *args, **static)


@dataclass(frozen=True)
class RuleOf:
    """The function or a rule of an op, by name: pickled where the op itself is."""

    op: Any
    kind: str

    def __call__(self, *args: Any, **static: Any) -> Any:
        """The result for one sample."""
        return self.op.written[self.kind](np, *args, **static)


@dataclass(frozen=True)
class PlainFunction:
    """A function that takes no `xp` (and a rule that takes no `out`), in the place of one.

    With `sees_out` the rule gets it by its name.
    """

    function: Function
    rule: bool = False
    sees_out: bool = False

    def __call__(self, *args: Any, **static: Any) -> Any:
        """What the function returns."""
        if self.sees_out:
            static["out"] = args[1]
        kept = (args[0], *args[2:]) if self.rule else args
        return self.function(*kept, **static)


@dataclass(frozen=True)
class OnBatches:
    """A rule that takes a batch, also where the op's own function takes one sample."""

    rule: Function

    def __call__(self, *args: Any, **static: Any) -> Any:
        """What the rule returns."""
        return self.rule(*args, **static)


def asks(rule: Any, name: str) -> bool:
    """Whether a rule has a keyword-only parameter of this name."""
    if isinstance(rule, OnBatches):
        return asks(rule.rule, name)
    if isinstance(rule, PlainFunction):
        return asks(rule.function, name)
    try:
        found = inspect.signature(rule).parameters.get(name)
    except (TypeError, ValueError):  # built in: nothing is known
        return False
    return found is not None and found.kind is found.KEYWORD_ONLY


def on_batches(op: Any, kind: str) -> Function:
    """The function or a rule of an op, as it was written, as one that takes `xp` and a batch."""
    if not op.host:
        return op.written[kind]  # type: ignore[no-any-return]
    whole = _with_constants(op, kind, _on_whole_batches(op, kind))
    if not op.host.serial:
        return whole

    def in_turn(xp: Any, *args: Any, **static: Any) -> Any:
        with op.host.turns.lock:
            return whole(xp, *args, **static)

    return in_turn


def _with_constants(op: Any, kind: str, rule: Function) -> Function:
    """The function or rule, given the constants of the op that it asks for."""
    asked = [name for name in op.constants if asks(op.written[kind], name)]
    if not asked:
        return rule

    def given(xp: Any, *args: Any, **static: Any) -> Any:
        constants = {name: op.constants[name].array for name in asked}
        return rule(xp, *args, **static, **constants)

    return given


def _on_whole_batches(op: Any, kind: str) -> Function:
    written = op.written[kind]
    plain = isinstance(written, PlainFunction)
    if not op.host.vectorize or isinstance(written, OnBatches):
        if not plain:
            return written  # type: ignore[no-any-return]
        return lambda xp, *args, **static: written(*args, **static)
    by_value = written if plain else WithNumPy(written)
    one = written if plain else RuleOf(op, kind)

    def batched(xp: Any, *args: Any, **static: Any) -> Any:
        found = run(op, one, by_value, _split(args), static)
        return _stack(op.label, [as_tuple(y) for y in found])

    return batched


def _split(args: Sequence[Any]) -> list[list[Any]]:
    """The arguments of each sample; a tuple of arrays (several outputs) is split, too."""
    arrays = [x for arg in args for x in as_tuple(arg) if x is not None]
    size = max(len(x) for x in arrays)

    def pick(arg: Any, i: int) -> Any:
        if isinstance(arg, tuple):
            return tuple(pick(x, i) for x in arg)
        if arg is None:  # nobody reads it
            return None
        return arg[i if len(arg) > 1 else 0]

    return [[pick(arg, i) for arg in args] for i in range(size)]


def _stack(label: str, found: list[tuple[Any, ...]]) -> Any:
    outs: list[Any] = []
    for parts in zip(*found, strict=True):
        for absent in (None, unknown):
            if any(part is absent for part in parts):
                outs.append(absent)
                break
        else:
            outs.append(_stacked(label, parts))
    return tuple(outs)


def _stacked(label: str, parts: tuple[Any, ...]) -> np.ndarray:
    shapes = [np.shape(part) for part in parts]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise RuleError(
                f"{label}: its host function returned shape {shapes[0]} for sample 0 but "
                f"{shape} for sample {i}; where a length depends on the numbers, return "
                "the longest there can be, and a mask or a count"
            )
    return np.stack(parts)
