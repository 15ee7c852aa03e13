"""The samples of a batch, one after the other or through an executor, and who is told of them."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, as_completed
from typing import Any

from twingrad.interop.op.samples.executors import Sent, check_fork

Function = Callable[..., Any]


def run(
    op: Any, one: Function, by_value: Function, samples: list[list[Any]], static: Any
) -> list[Any]:
    """What ``one(*args, **static)`` returns for each sample; `by_value`: see `Sent`."""
    executor = op.host.executor
    if executor is None:
        return _in_order(op, one, samples, static)
    check_fork(op.label, executor)
    return _side_by_side(op, executor, Sent(op.label, one, by_value, executor), samples, static)


def _in_order(op: Any, one: Function, samples: list[list[Any]], static: Any) -> list[Any]:
    found = []
    with _telling(op, len(samples)) as progress:
        for i, args in enumerate(samples):
            with _naming(op, i, len(samples)):
                found.append(one(*args, **static))
            progress(i + 1, len(samples))
    return found


def _side_by_side(
    op: Any, executor: Executor, one: Function, samples: list[list[Any]], static: Any
) -> list[Any]:
    futures: dict[Future[Any], int] = {}
    try:
        for i, args in enumerate(samples):
            futures[executor.submit(one, *args, **static)] = i
        with _telling(op, len(samples)) as progress:
            for done, future in enumerate(as_completed(futures), start=1):
                with _naming(op, futures[future], len(samples)):
                    future.result()
                progress(done, len(samples))
    finally:
        for future in futures:
            future.cancel()  # what is done stays done
    return [future.result() for future in futures]


@contextlib.contextmanager
def _telling(op: Any, total: int) -> Iterator[Callable[[int, int], Any]]:
    """What is called after each sample."""
    progress = op.host.progress
    if progress is not True:
        yield progress or _silent
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield functools.partial(_line, op.name)
        return
    with tqdm(total=total, desc=op.name) as bar:
        yield lambda done, total: bar.update(done - bar.n)


def _silent(done: int, total: int) -> None: ...


def _line(name: str, done: int, total: int) -> None:
    print(f"\r{name}: {done} of {total}", end="\n" * (done == total), file=sys.stderr, flush=True)


@contextlib.contextmanager
def _naming(op: Any, index: int, size: int) -> Iterator[None]:
    """Say in an exception which sample raised it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised for sample {index} of {size}")
        raise
