"""One op with different constants: the same object for the same content.

So nothing is compiled again for a grid that is made anew in each call.  The latest few are kept
though nobody holds them; the others live as long as somebody does.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from typing import Any
from weakref import WeakValueDictionary

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.pickling import rebuilt
from twingrad.interop.op.samples.forks import Turns
from twingrad.interop.op.statics.constants import Given, read_constant

Op = Any  # that of `op.definition`, which imports this file

_LATEST = 8  # meshes can be large


class Variants:
    """Those of one op, by the content of their constants; they share this object."""

    def __init__(self, base: Op) -> None:
        self.base = base
        self.alive: WeakValueDictionary[Any, Op] = WeakValueDictionary()
        self.latest: OrderedDict[Any, Op] = OrderedDict()
        self.turns = Turns()

    def find(self, op: Op, values: dict[str, Any]) -> Op:
        """The op with these constants.

        Raises:
            ArgumentError: a name is no constant of the op, or a value cannot be one.
        """
        for name in values:
            if name not in op.constants:
                known = ", ".join(op.constants) or "none"
                raise ArgumentError(
                    f"{op.label}: {name!r} is no constant of the op; it has {known}. Declare it: "
                    f"define(..., constants=({name!r},))"
                )
        given = {name: read_constant(op.label, name, value) for name, value in values.items()}
        constants = {**op.constants, **given}
        key = _key(constants)
        if key == _key(self.base.constants):
            return self.base
        with self.turns.lock:
            found = self.alive.get(key)
            if found is None:
                found = _make(self.base, constants)
                found.variants = self
            self.alive[key] = self.latest[key] = found
            self.latest.move_to_end(key)
            while len(self.latest) > _LATEST:
                self.latest.popitem(last=False)
        return found

    def follow(self, op: Op, change: Any) -> None:
        """Give the variants a rule that the op got after they were made."""
        if op is self.base:
            name, *given = change
            for made in list(self.alive.values()):
                getattr(made, name)(*given)


def _key(constants: Given) -> Any:
    return tuple([None if c is None else c.key for c in constants.values()])


def with_those_of(op: Op, other: Op) -> Op:
    """Another op, with the constants of `op` that have the same names and no value there."""
    values = {n: c for n, c in op.constants.items() if c and other.constants.get(n, c) is None}
    return other.with_constants(**values) if values else other


def copied(op: Op, constants: Given) -> Op:
    """An op of the same function, without rules."""
    if hasattr(op, "copied"):
        return op.copied(constants)
    made = type(op)(
        op.written["function"],
        op.signature,
        name=op.name,
        names=op.names,
        statics={**op.statics, **dict.fromkeys(op.constants, inspect.Parameter.empty)},
        host=op.host,
        hidden=op.hidden,
        dtypes=op.dtypes,
        linear=op.linear,
        constants=constants,
        defaults=op.defaults,
    )
    made.__doc__, made.__module__, made.__qualname__ = op.__doc__, op.__module__, op.__qualname__
    return made


def _make(op: Op, constants: Given) -> Op:
    if op.recipe is not None:
        make, args, options = op.recipe
        return rebuilt(make, args, {**options, "constants": constants}, op.host, op.changes)
    made = copied(op, constants)
    for name, *given in op.changes.values():
        getattr(made, name)(*given)
    made.recipe = _again, (op, constants), {}
    return made


def _again(op: Op, constants: Given, host: Any) -> Op:
    """What another process makes of a variant; the host is that of its own op."""
    return op.with_constants(**{name: c for name, c in constants.items() if c is not None})
