"""Values that have structure: what is in them, and what of it is a constant."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from typing import Any

from twingrad.interop.op.statics.hidden import is_array
from twingrad.interop.op.statics.static import hashable, plain, typed

_SEQUENCES = (list, tuple)  # which compilers that trace this can read


_AS_THEY_ARE = (str, bool)


class Misfit(Exception):  # noqa: N818
    """A value that has another structure than its signature: where in it, and what was found."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path, text)
        self.path, self.text = path, text


def is_sequence(x: Any) -> bool:
    """Whether it is a list or a tuple."""
    return isinstance(x, _SEQUENCES)


def contents(x: Any) -> Mapping[Any, Any] | None:
    """The entries of a dict or the fields of an object by name; None for what has neither."""
    if isinstance(x, Mapping):
        return x
    if isinstance(x, tuple):
        named: Any = x
        return named._asdict() if hasattr(x, "_fields") else None
    held: Mapping[Any, Any] | None = getattr(x, "__dict__", None)
    if getattr(type(x), "__slots__", None) is None:
        return held
    found = dict(held or {})
    for cls in type(x).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(x, name):
                found.setdefault(name, getattr(x, name))
    return found


def _concrete(value: Any) -> Any:
    """A number in place of the symbol that a compiler puts there where a field changes."""
    if type(value) is int:
        return operator.index(value)
    if type(value) is float:
        return math.nextafter(value, value)  # itself
    return tuple(map(_concrete, value)) if type(value) is tuple else value


def fixed(cls: type, name: Any, value: Any) -> tuple[Any, ...]:
    """A field that is no argument as part of a key: its name, what tells it apart, its value.

    Nothing for what an object keeps for itself: private names of Python, cached properties.

    Raises:
        Misfit: it is an array, or not hashable.
    """
    kept = isinstance(getattr(cls, str(name), None), functools.cached_property)
    if kept or str(name).startswith("__"):
        return ()
    if value is None or type(value) in _AS_THEY_ARE:
        return ((name, type(value), value),)
    value = _concrete(plain(value))
    if not hashable(value):
        what = "an array" if is_array(value) else f"a {type(value).__name__}"
        raise Misfit(
            f".{name}",
            f"is {what} that the signature does not name, and what it does not name must be a "
            "constant (a number, a string, a tuple or another hashable value); name it in the "
            "signature, or leave it out",
        )
    return ((name, typed(value), value),)
