"""A cache for what a host function computes once and its rules want again: a factorisation.

Nothing is handed from the forward function to the rules, so that there is nothing to leak and
nothing to go stale when a framework runs a rule later, elsewhere, twice or never.  The rule
asks for the factorisation of the same numbers again, and finds it here by their content::

    FACTORS = Cache(64)

    def solve(matrix, b):
        return FACTORS.get(scipy.linalg.lu_factor, matrix) ...

``from_numpy(kept=...)`` does so for the functions of one op.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any

import numpy as np

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.samples.forks import renew_after_fork
from twingrad.interop.op.statics.constants import content


class Cache:
    """The latest results of functions, by the content of their arguments.

    Threads share it.  Two that want the same result at once compute it once, and the second
    waits.  A function that raises leaves nothing behind.  A forked process has the results that
    were there, and computes for itself what a thread of its parent was computing.

    Attributes:
        size: how many results are kept; beyond that the least recently used goes.
        computed: how many were computed so far, because they were not there.
    """

    def __init__(self, size: int) -> None:
        if size < 0:
            raise ArgumentError(f"Cache: the size is {size}; expected 0 or more")
        self.size, self.computed = size, 0
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget what is being computed: a forked process has no thread that does."""
        self._pending: dict[Any, Future[Any]] = {}
        self._lock = Lock()

    def __reduce__(self) -> Any:
        return Cache, (self.size,)  # what is in it stays in this process

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, computed or kept; nobody may change what is returned.

        Args:
            function: its result must follow from the arguments alone.  It gets copies of the
                arrays: a result that refers to them stays what it was when they are changed.
            args: NumPy arrays, known by dtype, shape and bytes, or hashable values.
        """
        key = (function, *map(content, args))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            found = self._pending.get(key)
            mine = found is None
            if found is None:
                found = self._pending[key] = Future()
                self.computed += 1
        if mine:
            self._compute(key, found, function, args)
        return found.result()

    def clear(self) -> None:
        """Drop every result."""
        with self._lock:
            self._kept.clear()
            self._pending.clear()

    def _compute(self, key: Any, found: Future[Any], function: Any, args: Any) -> None:
        try:
            result = function(*map(_unshared, args))
        except BaseException as error:
            self._finish(key, found)
            found.set_exception(error)
        else:
            self._finish(key, found, result)
            found.set_result(result)

    def _finish(self, key: Any, found: Future[Any], *result: Any) -> None:
        """Keep the result, if there is one, unless the cache was cleared meanwhile."""
        with self._lock:
            if self._pending.get(key) is not found:
                return
            del self._pending[key]
            for value in result:
                self._kept[key] = value
            while len(self._kept) > self.size:
                self._kept.popitem(last=False)


def _unshared(value: Any) -> Any:
    """A read-only copy of an array: others may change the memory of the one that was given."""
    if not isinstance(value, np.ndarray):
        return value
    value = value.copy()
    value.flags.writeable = False
    return value
