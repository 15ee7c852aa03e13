"""Ops with structured arguments on tensors: how compilers find the op of a structure.

Dynamo traces how the arguments are taken apart, as it traces all Python.  What remains are tensors
and a key of classes and constants, for which it gets a number while it traces.  The graph calls one
function with the number and the tensors.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from twingrad.interop.op.binding import bind_family
from twingrad.interop.op.definition import Op
from twingrad.interop.op.samples.forks import Turns
from twingrad.interop.op.structure.family import Family
from twingrad.interop.torch.graphs.traced import fits, gone, outside, own_code

_KEPT = 1024  # structures that graphs have numbers of, for each op


class _Numbers:
    """The latest keys by number, and the other way round; with their ops, which no graph holds."""

    def __init__(self) -> None:
        self.keys: OrderedDict[int, Any] = OrderedDict()
        self.numbers: dict[Any, int] = {}
        self.ops: dict[int, Op] = {}
        self.following, self.turns = itertools.count(), Turns()

    def of(self, key: Any) -> int:
        with self.turns.lock:
            number = self.numbers.get(key)
            if number is None:
                number = self.numbers[key] = next(self.following)
                self.keys[number] = key
                if len(self.keys) > _KEPT:
                    oldest, old = self.keys.popitem(last=False)
                    self.numbers.pop(old)
                    self.ops.pop(oldest, None)
            return number


def make(op: Family, bind: Callable[[Op], Any]) -> Any:
    """The function of such an op, with the binder of ordinary ops."""
    take, flat, numbers, label = op.take, op.flat, _Numbers(), op.label

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def number(*key: Any) -> int:
        return numbers.of(key)

    def call(which: int, args: Any, kwargs: dict[str, Any]) -> Any:
        key = numbers.keys.get(which)
        if key is None:
            return gone(label)()
        numbers.ops[which] = found = flat(key)
        return bind(found)(*args, **kwargs)

    # Compiled graphs hold this function; what it calls is held by the op.
    alive, none = weakref.ref(call), gone(label)

    def evaluate(which: int, *args: Any, **kwargs: Any) -> Any:
        return (alive() or none)(which, args, kwargs)

    torch.compiler.allow_in_graph(evaluate)

    def bound(*args: Any, **kwargs: Any) -> Any:
        leaves, key, static = take(args, kwargs)
        if not torch.compiler.is_dynamo_compiling():
            return bind(flat(tuple(key)))(*leaves, **static)
        which = number(*key)
        if static and not fits(label, static):
            return outside(evaluate, (which, *leaves), static)  # pyright: ignore[reportCallIssue]
        return evaluate(which, *leaves, **static)

    for function in (bound, evaluate, number):
        own_code(function, op)
    return bind_family(op, "torch", bind, bound, compiled=call)
