"""Executors that run the samples of a batch: what is one, whether it works here, what it is sent.

Other processes get the user's function pickled, once for all samples of a batch: by its name
where its module can be imported there, and by value (with cloudpickle) where it cannot, as from a
notebook.
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import Any
from weakref import WeakSet

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.pickling import by_value
from twingrad.interop.op.samples.forks import renew_after_fork

Function = Callable[..., Any]

_HERE = os.getpid()
_WANTED = "a concurrent.futures.Executor"


def check_executor(executor: Any) -> None:
    """Raise ArgumentError, with what to give instead, where it is no executor."""
    if executor is None or isinstance(executor, Executor):
        return
    found = type(executor).__name__
    if isinstance(executor, type):
        raise ArgumentError(f"Host: executor is the class {executor.__name__}; make one of it")
    if callable(getattr(executor, "get_executor", None)):
        raise ArgumentError(
            f"Host: executor is a {found}; expected {_WANTED}: give its get_executor()"
        )
    count = executor if isinstance(executor, int) and not isinstance(executor, bool) else 4
    raise ArgumentError(
        f"Host: executor is a {found}; expected {_WANTED}, such as "
        f"ProcessPoolExecutor({count}) or ThreadPoolExecutor({count})"
    )


class _Started:
    """The executors that have run samples, and those whose threads a fork left behind."""

    def __init__(self) -> None:
        self.here: WeakSet[Executor] = WeakSet()
        self.behind: WeakSet[Executor] = WeakSet()
        renew_after_fork(self)

    def renew(self) -> None:
        self.behind.update(self.here)
        self.here = WeakSet()


_STARTED = _Started()


def check_fork(label: str, executor: Executor) -> None:
    """Raise ArgumentError where the executor's threads are in the process that forked this one.

    A sample that is submitted then would never be run.
    """
    if executor in _STARTED.behind or (os.getpid() != _HERE and _threads_are_gone(executor)):
        raise ArgumentError(
            f"{label}: its executor was used before this process was forked, and its threads "
            "stayed in the other one; make the executor in this process (in the worker's "
            "initialiser), or start the process with the method 'spawn'"
        )
    _STARTED.here.add(executor)


def _threads_are_gone(executor: Any) -> bool:
    """Whether it was used by others; CPython's executors keep their threads in these."""
    manager = getattr(executor, "_executor_manager_thread", None)
    threads = [*getattr(executor, "_threads", ()), *([manager] if manager else [])]
    return any(isinstance(t, threading.Thread) and not t.is_alive() for t in threads)


class Sent:
    """A function for one sample on its way to an executor; pickled only where that is needed.

    Args:
        label: of the op, for messages.
        function: what is called.
        by_value: the same for another process that cannot import it.
        executor: where it goes.
    """

    def __init__(
        self, label: str, function: Function, by_value: Function, executor: Executor
    ) -> None:
        self.label, self.function, self.by_value = label, function, by_value
        # The processes of such a pool have or import the script that runs here as __main__.
        self.same_main = isinstance(executor, ProcessPoolExecutor) and _main_is_a_script()

    def __call__(self, *args: Any, **static: Any) -> Any:
        """The result, where the executor runs it in this process."""
        return self.function(*args, **static)

    def __reduce__(self) -> Any:
        return pickle.loads, (self.pickled,)

    @functools.cached_property
    def pickled(self) -> bytes:
        """The function for other processes."""
        try:
            found = pickle.dumps(self.function)
            if self.same_main or b"__main__" not in found:
                return found
            why = "it is of __main__, which they do not have"
        except Exception as error:
            why = str(error)
        return by_value(self.label, self.by_value, why)


def _main_is_a_script() -> bool:
    return hasattr(sys.modules.get("__main__"), "__file__")
