"""Loops of calls of every sort of op: what a call keeps for good, and whether calls slow down.

A side gives `call(op, *inputs, **static)`, which binds the op and runs it in one mode; `grow`
calls it many times.  An array op, a host op, one with a cache; the same op with other static
parameters in each call; an op that is made in the loop.
"""

import gc
import resource
import statistics
import sys
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests import sample_ops
from twingrad import ops
from twingrad.interop import from_numpy

KEPT = 1000  # numbers that an op of the loop closes over: 8 kB


def array():
    op = sample_ops.cube()
    return lambda i: (op, (1.0 + i % 7,), {})


def host():
    op = from_numpy(np.sin, signature="()->()", vjp=lambda ct, x: ct * np.cos(x))
    return lambda i: (op, (1.0 + i % 7,), {})


def cached():
    """Other matrices in each call: the cache is full soon."""
    A, B, C = np.eye(2), np.eye(2), np.ones((2, 2))
    return lambda i: (ops.solve_sylvester, (A * (1 + i), B, C), {})


def static():
    op = sample_ops.power()
    return lambda i: (op, (2.0,), {"p": 2.0 + i / 1000})


def not_a_number():
    op = sample_ops.power()
    return lambda i: (op, (2.0,), {"p": float("nan")})


def new_op():
    return lambda i: (sample_ops.cube(1.0 + i), (2.0,), {})


def new_host_op():
    def make(i):
        kept = np.full(KEPT, float(i))
        f = lambda x: x * kept[0]  # noqa: E731
        return from_numpy(f, signature="()->()", vjp=lambda ct, x: ct * kept[0])

    return lambda i: (make(i), (2.0,), {})


# name -> function that makes i -> (op, inputs, static parameters)
SORTS = {
    "array": array,
    "host": host,
    "cached": cached,
    "static": static,
    "not a number": not_a_number,
    "new op": new_op,
    "new host op": new_host_op,
}


@dataclass(frozen=True)
class Growth:
    """What one call left behind, in the mean, and how much slower the calls became.

    Attributes:
        traced: bytes of Python memory; 0 where they were not traced.
        resident: bytes of the process.
        slower: the processor time of a call among the last tenth over that among the first.
        call: the median processor time of a call, in seconds.
    """

    traced: float
    resident: float
    slower: float
    call: float


def grow(call, sort, count, warm, trace=True):
    """The `Growth` over that many calls, after `warm` others that fill what is bounded.

    `sort` is a name in `SORTS`, or a function i -> (op, inputs, static parameters).
    """
    case = sort if callable(sort) else SORTS[sort]()

    def step(i):
        op, inputs, static = case(i)
        start = time.process_time()
        call(op, *inputs, **static)
        return time.process_time() - start

    collect()
    gc.freeze()  # what is there already is looked at once, and not at each collection
    if trace:
        tracemalloc.start()
    try:
        for i in range(warm):
            step(i)
        before = _memory(trace)
        times = [step(i) for i in range(warm, warm + count)]
        traced, resident = (b - a for a, b in zip(before, _memory(trace), strict=True))
    finally:
        tracemalloc.stop()
    tenth = max(count // 10, 1)
    first, last = statistics.median(times[:tenth]), statistics.median(times[-tenth:])
    return Growth(traced / count, resident / count, last / first, statistics.median(times))


def collect():
    """Free what nobody holds: what a finaliser lets go is found by the next collection."""
    for _ in range(3):
        gc.collect()


def _memory(trace):
    collect()
    return (tracemalloc.get_traced_memory()[0] if trace else 0), _resident()


def _resident():
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
