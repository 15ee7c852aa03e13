"""Arrays that hide inside a static value: in a closure, a partial, an attribute, a layer.

A static value is a constant to the frameworks.  An array in it would have no gradient, and
nothing would say so.  NumPy arrays never have one, and may stay where they are.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from twingrad.interop.errors import ArgumentError

_LOOKED_AT = 10_000  # objects; a static value is small
_LEAVES = (types.ModuleType, type, str, bytes, int, float, complex, np.ndarray, np.generic)


def refuse_hidden(label: str, items: tuple[tuple[str, Any], ...]) -> None:
    """Look through the static parameters, once for each new value.

    Raises:
        ArgumentError: one holds an array of torch or JAX, or a tracer.
    """
    for name, value in items:
        found = hidden_array(value)
        if found is not None:
            where, array = found
            raise ArgumentError(
                f"{label}: the static parameter {name!r}, a {type(value).__name__}, holds a "
                f"{type(array).__name__} ({where}), which would have no gradient. "
                "Make the array an argument of the signature"
            )


def hidden_array(value: Any) -> tuple[str, Any] | None:
    """The nearest array of a framework inside a value, and the way to it; or None."""
    queue, seen = deque([("", value)]), {id(value)}
    while queue and len(seen) < _LOOKED_AT:
        where, outer = queue.popleft()
        for step, inner in _inside(outer):
            if isinstance(inner, _LEAVES) or id(inner) in seen:
                continue
            seen.add(id(inner))
            there = f"{where}.{step}" if where else step
            if is_array(inner):
                return there, inner
            queue.append((there, inner))
    return None


def is_array(value: Any) -> bool:
    """Whether it is an array or a tracer of any framework."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((str(key), x) for key, x in list(value.items()))
    elif isinstance(value, tuple | list | set | frozenset):
        yield from ((f"[{i}]", x) for i, x in enumerate(value))
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from (("__self__", value.__self__), ("__func__", value.__func__))
    else:
        yield "__wrapped__", getattr(value, "__wrapped__", None)
    yield from list(getattr(value, "__dict__", {}).items())


def _of_function(value: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What the code of a function can see: its closure, its defaults, the globals it names."""
    code, known = value.__code__, value.__globals__
    for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    yield "__defaults__", value.__defaults__
    yield "__kwdefaults__", value.__kwdefaults__
    for name in code.co_names:
        found = known.get(name)
        if is_array(found) or getattr(found, "__globals__", None) is known:
            yield name, found
