"""How ops and their functions travel to other processes: by name, by recipe, or by value.

By name where the module that holds them can be imported there; an op that was made from functions
by the call that made it; and a function that has no such name by value, by cloudpickle.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Op = Any  # that of `op.definition`, which imports this file
P = ParamSpec("P")
Made = TypeVar("Made")  # an op
_SENDING = threading.local()


def remembered(make: Callable[P, Made]) -> Callable[P, Made]:
    """A function that makes ops which are pickled as the call that made them."""

    @functools.wraps(make)
    def made(*args: P.args, **options: P.kwargs) -> Made:
        found = make(*args, **options)
        op: Op = found
        kept = {**options, "constants": op.constants}  # not as they will be, but as they were
        op.recipe = (made, args, {k: v for k, v in kept.items() if k in options and k != "host"})
        op.changes.clear()
        return found

    return made


def rebuilt(make: Callable[..., Op], args: Any, options: Any, host: Any, rules: Any) -> Op:
    """The op that a recipe makes, with the rules that were set afterwards."""
    op = make(*args, **options, host=host)
    for name, *given in rules.values():
        getattr(op, name)(*given)
    return op


def _of_family(family: Op, key: Any) -> Op:
    return family.flat(key)


def reduced(op: Op) -> Any:
    """What `Op.__reduce__` returns.

    Raises:
        PicklingError: the op is at no name of its module and has no recipe, or that holds a
            function that cannot be pickled.
    """
    if op.origin is not None:
        return _of_family, op.origin
    name = _name_of(op)
    if name is not None:
        if op.__module__ == "__main__" and getattr(_SENDING, "by_value", False):
            raise pickle.PicklingError(f"it uses {op.label} of __main__")
        return name
    if op.recipe is None:
        raise pickle.PicklingError(
            f"{op.label}: an op is pickled by its name, and {op.__module__}.{op.__qualname__} is "
            f"not this op; define it at the top of a module that can be imported, and let its "
            f"name there be {op.__qualname__!r}, that of its function"
        )
    if op.host and op.host.executor is not None:
        raise pickle.PicklingError(
            f"{op.label}: its executor, a {type(op.host.executor).__name__}, belongs to this "
            "process; pickle the op with a host without one, and give it one there (op.host = ...)"
        )
    base = op.variants.base  # whose rules a variant has, where that is known by its name
    recipe = (*op.recipe, op.host, {} if base is not op and base.recipe is None else op.changes)
    try:
        pickle.dumps(recipe)
    except Exception as error:
        return pickle.loads, (by_value(op.label, (rebuilt, recipe), str(error), call=True),)
    return rebuilt, recipe


def _name_of(op: Op) -> str | None:
    """The path in its module by which pickle finds the op, or None."""
    found: Any = sys.modules.get(op.__module__)
    for part in op.__qualname__.split("."):
        found = getattr(found, part, None)
    path = op.__qualname__ if found is op else f"{op.__qualname__}.op"
    return path if found is op or getattr(found, "op", None) is op else None


class _Call:
    """A call that is made when it is unpickled."""

    def __init__(self, function: Callable[..., Any], args: Any) -> None:
        self.parts = function, args

    def __reduce__(self) -> Any:
        return self.parts


def by_value(label: str, thing: Any, why: str, *, call: bool = False) -> bytes:
    """`thing`, or the result of the call that it stands for, pickled by value.

    Raises:
        PicklingError: there is no cloudpickle, or it cannot pickle this either.
    """
    way = "define what it is made of at the top of a module that they can import"
    try:
        _SENDING.by_value = True
        dumps = importlib.import_module("cloudpickle").dumps
        return dumps(_Call(*thing) if call else thing)  # type: ignore[no-any-return]
    except ImportError:
        way += ", or install cloudpickle"
    except Exception as error:
        why = str(error)
    finally:
        _SENDING.by_value = False
    raise pickle.PicklingError(f"{label}: it cannot be sent to other processes: {why}; {way}")
