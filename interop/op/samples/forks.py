"""What a forked process must make anew: locks that a thread held which it does not have.

PyTorch's `DataLoader` forks its workers, and so does `multiprocessing` on Linux.  Only the thread
that forks goes on in the child, so that a lock held by another one is never released there.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import Any, Protocol
from weakref import WeakSet


class Renewed(Protocol):
    """An object that forked processes repair."""

    def renew(self) -> None:
        """Called in the child, before anything else of it runs."""


_KNOWN: WeakSet[Any] = WeakSet()


def renew_after_fork(thing: Renewed) -> None:
    """Call ``thing.renew()`` in every process that is forked while the thing lives."""
    _KNOWN.add(thing)


def _forked() -> None:
    for thing in list(_KNOWN):
        thing.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_forked)


class Turns:
    """A lock that a thread may take again, free in every forked or unpickled copy."""

    def __init__(self) -> None:
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Free it."""
        self.lock: AbstractContextManager[Any] = threading.RLock()

    def __reduce__(self) -> Any:
        return Turns, ()
