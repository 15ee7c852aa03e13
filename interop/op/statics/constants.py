"""Constants: arrays that are part of an op, such as a grid, a mesh or a mask.

They are known by their content: the op with a grid that was made anew is the same op.  An op of
NumPy code sees the array itself; a formula sees an array of its framework, which the binder makes
once for each device and precision.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import weakref
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from twingrad.interop.errors import ArgumentError, SignatureError

_FRAMEWORKS = {"torch": "torch", "jax": "jax", "jaxlib": "jax"}
_WAY = "an array whose gradient may be wanted is an argument: write it into the signature"


class Constant:
    """A read-only copy of an array, that of the same content if there is one.

    Attributes:
        array: the copy, of NumPy.
        key: see `content`.
        made: the arrays that binders made of it, by device and precision.
    """

    def __init__(self, array: np.ndarray, key: Hashable) -> None:
        self.array, self.key = array.copy(), key
        self.array.flags.writeable = False
        self.hand(self.array)
        self.made: dict[Any, Any] = {}

    @staticmethod
    def of(value: Any) -> Constant:
        """The constant for an array of any framework.

        Raises:
            ValueError: it is none, or no constant: traced, or with a gradient.
        """
        found = value if isinstance(value, Constant) else _handed(value)
        if found is None:
            array = _read(value)
            key = content(array)
            found = _KNOWN.get(key) or _KNOWN.setdefault(key, Constant(array, key))
        return found

    def __reduce__(self) -> Any:
        return Constant.of, (self.array,)

    def hand(self, array: Any) -> Any:
        """The array that a binder made of it, which a rule may hand on to another op."""
        place = id(array)
        gone = weakref.ref(array, lambda _: _HANDED.pop(place, None))
        _HANDED[place] = gone, weakref.ref(self)
        return array


Given = Mapping[str, Constant | None]  # None: not yet
_KNOWN: weakref.WeakValueDictionary[Hashable, Constant] = weakref.WeakValueDictionary()
_HANDED: dict[int, tuple[weakref.ref[Any], weakref.ref[Constant]]] = {}


def content(value: Any) -> Hashable:
    """A key that is equal for arrays of the same dtype, shape and bytes, and only for those."""
    if isinstance(value, np.ndarray):
        digest = hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=20).digest()
        return value.dtype.str, value.shape, digest
    return type(value), value


def declare_constants(
    label: str, given: Any, parameters: dict[str, Any]
) -> tuple[dict[str, Constant | None], dict[str, Any]]:
    """The constants that are declared, and the keyword-only parameters that are left.

    Raises:
        SignatureError: a constant is no keyword-only parameter.
        ArgumentError: a value cannot be a constant.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    found: dict[str, Constant | None] = {}
    for name in names:
        if name not in parameters:
            raise SignatureError(
                f"{label}: the constant {name!r} is no parameter of its function; give it a "
                f"keyword-only one, `*, {name}`"
            )
        value = given[name] if isinstance(given, Mapping) else parameters[name]
        absent = value is None or value is inspect.Parameter.empty
        found[name] = None if absent else read_constant(label, name, value)
    return found, {name: value for name, value in parameters.items() if name not in found}


def read_constant(label: str, name: str, value: Any) -> Constant:
    """The constant that was given.

    Raises:
        ArgumentError: it is no array, or has or may have a gradient.
    """
    try:
        return Constant.of(value)
    except ValueError as error:
        raise ArgumentError(f"{label}: the constant {name!r} {error}") from None


def check_constants(label: str, constants: Given, keywords: Iterable[str]) -> None:
    """Raise where a call cannot be made: a constant is among its keywords, or was never given.

    Raises:
        ArgumentError: it says what to do.
    """
    for name in keywords:
        if name in constants:
            raise ArgumentError(
                f"{label}: {name!r} is a constant of the op, no argument of a call; "
                f"use op.with_constants({name}=...)"
            )
    for name, value in constants.items():
        if value is None:
            raise ArgumentError(
                f"{label}: the constant {name!r} has no value; "
                f"call op.with_constants({name}=...), which returns the op with it"
            )


def _handed(value: Any) -> Constant | None:
    array, found = _HANDED.get(id(value), (None, None))
    return found() if found is not None and array is not None and array() is value else None


def _read(value: Any) -> np.ndarray:
    """A NumPy array with the numbers; the caller may not keep it.

    Raises:
        ValueError: there is none, in words that follow on the name.
    """
    what = type(value)
    modules = (base.__module__.partition(".")[0] for base in what.__mro__)
    framework = next((_FRAMEWORKS[name] for name in modules if name in _FRAMEWORKS), None)
    if framework is not None:
        read = importlib.import_module(f"twingrad.interop.{framework}.constants").read
        try:
            value = read(value)
        except ValueError as error:
            raise ValueError(f"{error}; {_WAY}") from None
    if isinstance(value, np.ma.MaskedArray) or not isinstance(value, np.ndarray | np.generic):
        raise ValueError(
            f"is a {what.__name__}; expected an array of NumPy, torch or JAX, or a number of NumPy"
        )
    array = np.asarray(value)
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 8 * (
        1 + (array.dtype.kind == "c")
    ):
        raise ValueError(f"has dtype {array.dtype}; expected numbers of up to 64 bits, or booleans")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
