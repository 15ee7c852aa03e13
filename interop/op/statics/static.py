"""Static parameters: keyword-only, hashable, fixed before a framework is entered."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twingrad.interop.errors import ArgumentError, SignatureError
from twingrad.interop.op.signature import Signature
from twingrad.interop.op.statics.hidden import is_array

# How many values of the static parameters an op keeps what it made for them, in a framework;
# beyond that the least recently used goes, and with it all that it held.
KEPT = 64

# as tuples, which compilers that trace this can read
_SEVERAL, _CHANGING, _INEXACT = (tuple, frozenset), (list, dict, set), (float, complex)
_SIMPLE = frozenset((bool, int, float, complex, str))


@dataclass(frozen=True)
class Static:
    """Static parameters by name.  Equal values of different types, 1 and True, differ.

    `low` is the dtype of 16 bits that a host op's results are rounded to in the end, if it is one.
    """

    items: tuple[tuple[str, Any], ...] = field(compare=False)
    key: Any
    low: str = ""

    @staticmethod
    def of(
        label: str, names: tuple[str, ...], defaults: dict[str, Any], given: dict[str, Any]
    ) -> Static:
        """The given values and the defaults of the others.

        Raises:
            ArgumentError: a name is unknown or missing, or a value is an array or not hashable.
        """
        refuse_unknown(label, names, defaults, given)
        items = tuple([(name, plain(value)) for name, value in {**defaults, **given}.items()])
        for name, value in items:
            if value is inspect.Parameter.empty:
                raise ArgumentError(f"{label}: the keyword argument {name!r} is missing")
            if not hashable(value):
                raise ArgumentError(
                    f"{label}: {name!r} is a static parameter: it must be hashable, and no "
                    f"array; found {type(value).__name__}. Give a number, string or tuple, or "
                    "make it an argument of the signature; a grid or mask that is part of the op "
                    "is declared with constants="
                )
        return Static(items, tuple([(name, typed(value)) for name, value in items]))


def refuse_unknown(
    label: str, names: tuple[str, ...], defaults: dict[str, Any], given: dict[str, Any]
) -> None:
    """Raise where something is given that is neither an argument nor a static parameter.

    Raises:
        ArgumentError: it names that.
    """
    for name in given:
        if name not in defaults:
            known = ", ".join((*names, *defaults))
            raise ArgumentError(f"{label}: unknown argument {name!r}; it takes {known}")


def check_sizes(label: str, signature: Signature, statics: dict[str, Any]) -> tuple[str, ...]:
    """The names of the static parameters that are sizes of the signature.

    Raises:
        SignatureError: another size that is in no argument, or a default that is no size.
    """
    names = signature.check_known(label, statics)
    for name in names:
        if statics[name] is not inspect.Parameter.empty and not _is_size(plain(statics[name])):
            raise SignatureError(f"{label}: {_no_size(name, statics[name])}, as the default")
    return names


def sizes_of(label: str, names: tuple[str, ...], static: Static) -> dict[str, int]:
    """The values of the static parameters that are sizes.

    Raises:
        ArgumentError: one is no whole number, or negative.
    """
    values = {name: value for name, value in static.items if name in names}
    for name, value in values.items():
        if not _is_size(value):
            raise ArgumentError(f"{label}: {_no_size(name, value)}")
    return values


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _no_size(name: str, value: Any) -> str:
    return (
        f"the static parameter {name!r} is a size of the signature: expected an int that is not "
        f"negative, found {value!r}"
    )


def plain(value: Any) -> Any:
    """Python's number for one of NumPy's, also in a tuple."""
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, tuple):
        return tuple(map(plain, value)) if type(value) is tuple else value
    return value.item() if isinstance(value, np.generic) else value


def typed(value: Any) -> Any:
    """A key that tells 1, 1.0 and True apart, and 0.0 and -0.0; NaN is equal to itself."""
    if type(value) is float:  # the usual ones first
        return float, repr(value)
    if isinstance(value, _SEVERAL):
        several = tuple if isinstance(value, tuple) else frozenset
        return type(value), several(map(typed, value))
    return type(value), repr(value) if isinstance(value, _INEXACT) else value


def written(static: Static) -> str | None:
    """The parameters as text that reads back as the same values, or None; "" for none."""
    low = {"_low": static.low} if static.low else {}
    text = repr(dict(static.items) | low)
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    same = typed(tuple(found.items())) == typed((*static.items, *low.items()))
    return (text if found else "") if same else None


def hashable(value: Any) -> bool:
    """Arrays and tracers of arrays are not: their hash is their identity, if any."""
    if type(value) in _SIMPLE:
        return True
    if isinstance(value, _SEVERAL):
        return all(map(hashable, value))
    if isinstance(value, _CHANGING):  # those of compilers have a hash, too
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return not is_array(value)
