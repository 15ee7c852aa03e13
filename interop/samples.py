"""Host functions that take one sample: a batch of them, in order or through an executor.

Any `concurrent.futures.Executor` will do: threads, processes, and the executors of Dask, Ray
and MPI, which run the samples on other machines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np

from twingrad.interop.errors import RuleError
from twingrad.interop.signature import as_tuple

Function = Callable[..., Any]


@dataclass(frozen=True)
class Host:
    """How a host op's functions are called.

    Attributes:
        vectorize: the functions take one sample, and are called for each of a batch.
        executor: what runs the samples; None: one after the other, in this thread.
        progress: called as ``progress(done, total)`` after each sample of a batch.
        finite: a result that is not finite raises.
    """

    vectorize: bool = False
    executor: Executor | None = None
    progress: Callable[[int, int], Any] | None = None
    finite: bool = False


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
    """A function that takes no `xp` (and a rule that takes no `out`), in the place of one."""

    function: Function
    rule: bool = False

    def __call__(self, *args: Any, **static: Any) -> Any:
        """What the function returns."""
        kept = (args[0], *args[2:]) if self.rule else args
        return self.function(*kept, **static)


@dataclass(frozen=True)
class OnBatches:
    """A rule that takes a batch, also where the op's own function takes one sample."""

    rule: Function

    def __call__(self, *args: Any, **static: Any) -> Any:
        """What the rule returns."""
        return self.rule(*args, **static)


def on_batches(op: Any, kind: str) -> Function:
    """The function or a rule of an op, as it was written, as one that takes `xp` and a batch."""
    written = op.written[kind]
    plain = isinstance(written, PlainFunction)
    if not (op.host and op.host.vectorize) or isinstance(written, OnBatches):
        if not plain:
            return written  # type: ignore[no-any-return]
        return lambda xp, *args, **static: written(*args, **static)
    one = written if plain else RuleOf(op, kind)

    def batched(xp: Any, *args: Any, **static: Any) -> Any:
        found = _run(op, one, _split(args), static)
        return _stack(op.label, [as_tuple(y) for y in found])

    return batched


def _split(args: Sequence[Any]) -> list[list[Any]]:
    """The arguments of each sample; a tuple of arrays (several outputs) is split, too."""
    arrays = [x for arg in args for x in as_tuple(arg)]
    size = max(len(x) for x in arrays)

    def pick(arg: Any, i: int) -> Any:
        if isinstance(arg, tuple):
            return tuple(pick(x, i) for x in arg)
        return arg[i if len(arg) > 1 else 0]

    return [[pick(arg, i) for arg in args] for i in range(size)]


def _run(op: Any, one: Function, samples: list[list[Any]], static: Any) -> list[Any]:
    executor, progress = op.host.executor, op.host.progress or _silent
    if executor is None:
        found = []
        for i, args in enumerate(samples):
            with _naming(op, i, len(samples)):
                found.append(one(*args, **static))
            progress(i + 1, len(samples))
        return found
    futures: dict[Future[Any], int] = {}
    try:
        for i, args in enumerate(samples):
            futures[executor.submit(one, *args, **static)] = i
        for done, future in enumerate(as_completed(futures), start=1):
            with _naming(op, futures[future], len(samples)):
                future.result()
            progress(done, len(samples))
    finally:
        for future in futures:
            future.cancel()  # what is done stays done
    return [future.result() for future in futures]


def _silent(done: int, total: int) -> None: ...


@contextlib.contextmanager
def _naming(op: Any, index: int, size: int) -> Iterator[None]:
    """Say in an exception which sample raised it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised for sample {index} of {size}")
        raise


def _stack(label: str, found: list[tuple[Any, ...]]) -> Any:
    outs: list[np.ndarray | None] = []
    for parts in zip(*found, strict=True):
        if any(part is None for part in parts):
            outs.append(None)
            continue
        shapes = [np.shape(part) for part in parts]
        for i, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise RuleError(
                    f"{label}: its host function returned shape {shapes[0]} for sample 0 but "
                    f"{shape} for sample {i}"
                )
        outs.append(np.stack(parts))
    return tuple(outs)
