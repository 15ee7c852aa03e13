"""What dtype each output of an op has: as declared, else that of the inputs.

Compilers must know a result before the function has run.  So an op promises its dtypes, and a
host function that returns what does not fit raises: nothing is dropped or rounded unseen.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from twingrad.interop.errors import RuleError, SignatureError
from twingrad.interop.op.framework import DTYPES, Arrays, Framework, cast, kind

RELATIVE = ("real", "complex")  # in the precision of the inputs
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
FIXED = ("bool", *INTEGERS, "float32", "float64", "complex64", "complex128")
_EXACT = {"float16": 2**11, "bfloat16": 2**8}  # integers up to here
_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


class Like(int):
    """The dtype of the argument in that place, as a gradient has; only its real part where real."""


Declared = str | Like | None


def declare(label: str, dtypes: Any, count: int) -> tuple[Declared, ...]:
    """The declaration of each output, from one for all or a sequence.

    Raises:
        SignatureError: another number of them than outputs, or a name that is none.
    """
    given = (dtypes,) * count if dtypes is None or isinstance(dtypes, str) else tuple(dtypes)
    if len(given) != count:
        raise SignatureError(f"{label}: dtypes has {len(given)} entries for {count} outputs")
    names = [name if name is None or isinstance(name, Like) else _name(name) for name in given]
    for name in names:
        if isinstance(name, str) and name not in (*RELATIVE, *FIXED):
            raise SignatureError(
                f"{label}: dtypes has {name!r}; expected {', '.join((*RELATIVE, *FIXED))}, or None "
                "for the dtype of the inputs"
            )
    return tuple(names)


def _name(given: Any) -> str:
    """A name for `np.int64`, `int` and the like."""
    return given if isinstance(given, str) else np.dtype(given).name


def promised(declared: Sequence[Declared], inputs: Arrays) -> tuple[str, ...]:
    """The dtype of each output of a host op, by name.

    Undeclared: the precision of the inputs; complex where an input is complex; float64 where
    no input is inexact.
    """
    return _promised(tuple(declared), tuple([kind(x.dtype) for x in inputs]))


@functools.lru_cache(1024)
def _promised(
    declared: tuple[Declared, ...], kinds: tuple[tuple[str, int], ...]
) -> tuple[str, ...]:
    found = [(name, bits) for name, bits in kinds if name]
    bits = max((b for _, b in found), default=64)
    own = "complex" if any(name == "complex" for name, _ in found) else "real"
    names: list[str] = []
    for entry in declared:
        name: Any = entry
        if isinstance(entry, Like):
            name = DTYPES.get(kinds[entry])
        names.append(name if name in FIXED else DTYPES[name or own, bits])
    return tuple(names)


def cast_output(fw: Framework, label: str, y: Any, bits: int, declared: Declared) -> Any:
    """The output of an array op in the dtype that was declared, or in the given precision.

    Raises:
        RuleError: it does not fit, as far as its dtype tells.
    """
    if not isinstance(declared, str):
        return cast(fw, y, bits)
    name = declared
    if declared in RELATIVE:
        name = DTYPES[declared, bits or kind(y.dtype)[1] or 64]
    found, wanted = np.dtype(str(y.dtype).rpartition(".")[2]), np.dtype(name)
    if _RANKS[found.kind] > _RANKS[wanted.kind]:
        raise RuleError(
            f"{label}: its function returned {found} where {wanted} is promised; "
            f"{_way(declared, found)}"
        )
    return y if found == wanted else fw.xp.astype(y, getattr(fw.xp, name))


def follows(declared: Declared) -> bool:
    """Whether an output has the precision of the inputs, also where that is a low one."""
    return declared not in FIXED


def fit(label: str, y: np.ndarray, dtype: str, declared: Declared, low: str = "") -> np.ndarray:
    """What a host function returned in the dtype that was promised, contiguous.

    A float32 result that follows the inputs is rounded to `low` in the end, if that is given.

    Raises:
        RuleError: it does not fit: complex for real, a float for an integer, an integer that
            would be rounded or is out of range.
    """
    wanted = np.dtype(dtype)
    if y.dtype.kind not in _RANKS:
        raise RuleError(f"{label}: its host function returned dtype {y.dtype}")
    if isinstance(declared, Like):
        y = np.real(y) if wanted.kind == "f" else y
    elif _RANKS[y.dtype.kind] > _RANKS[wanted.kind]:
        raise RuleError(
            f"{label}: its host function returned {y.dtype} where {wanted} is promised; "
            f"{_way(declared, y.dtype)}"
        )
    elif y.dtype.kind in "iu" and wanted.kind != "b" and y.size:
        rounded = low if dtype == "float32" and follows(declared) else ""
        _check_integers(label, y, wanted, declared, rounded)
    return np.array(y, dtype=wanted, order="C")


def _check_integers(
    label: str, y: np.ndarray, wanted: np.dtype[Any], declared: Declared, rounded: str
) -> None:
    """Integers must be in the range of the promised dtype where it counts one by one."""
    if wanted.kind in "iu":
        low, high = int(np.iinfo(wanted).min), int(np.iinfo(wanted).max)
    else:
        high = _EXACT[rounded] if rounded else 2 ** (np.finfo(wanted).nmant + 1)
        low = -high
    for extreme in (int(y.min()), int(y.max())):
        if not low <= extreme <= high:
            raise RuleError(
                f"{label}: its host function returned the integer {extreme}, which "
                f"{rounded or wanted} cannot hold; {_way(declared, y.dtype)}"
            )


def _way(declared: Declared, found: Any) -> str:
    name = "complex" if found.kind == "c" else "real" if found.kind == "f" else found.name
    if declared == name:
        return "JAX has 64-bit numbers with jax_enable_x64 only"
    said = "" if declared is None else f", not {declared!r}"
    return f"declare dtypes={name!r}{said}: a keyword of define, from_numpy and from_jacobian"
