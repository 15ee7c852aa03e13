"""Arrays as plain real vectors: how the gradient check counts entries, also of complex arrays.

A complex array is a pair of real ones.  A value or tangent z is (Re z, Im z); a cotangent is
(Re z, -Im z), so that the sum of the products is Re(ct * tangent): the plain-transpose
convention of the rules.  With it a Jacobian is a real matrix, whatever the function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Arrays = tuple[Any, ...]


def moves(x: Any) -> bool:
    """Whether an input has a gradient: floating or complex."""
    return bool(np.asarray(x).dtype.kind in "fc" or _is_low(np.asarray(x).dtype))


def _is_low(dtype: Any) -> bool:
    return dtype.name in ("bfloat16",)


def flat(x: Any, dual: bool = False) -> np.ndarray:
    """The entries as real numbers; of a cotangent where `dual`."""
    x = np.asarray(x)
    if x.dtype.kind == "c":
        return np.concatenate([x.real.ravel(), (-x.imag if dual else x.imag).ravel()])
    found: np.ndarray = x.ravel().astype(float)
    return found


def count(x: Any) -> int:
    """How many real numbers `flat` makes of it."""
    x = np.asarray(x)
    return int(x.size) * (2 if x.dtype.kind == "c" else 1)


def unflat(v: np.ndarray, like: Any, dual: bool = False) -> np.ndarray:
    """The inverse of `flat`, in the shape and dtype of `like`."""
    like = np.asarray(like)
    if like.dtype.kind == "c":
        re, im = np.split(v, 2)
        return (re + 1j * (-im if dual else im)).reshape(like.shape).astype(like.dtype)
    return v.reshape(like.shape).astype(like.dtype)


def flat_all(xs: Sequence[Any], dual: bool = False) -> np.ndarray:
    """`flat` of several, one after the other."""
    return np.concatenate([np.zeros(0), *(flat(x, dual) for x in xs)])


def unflat_all(v: np.ndarray, like: Sequence[Any], dual: bool = False) -> Arrays:
    """The inverse of `flat_all`."""
    ends = np.cumsum([count(x) for x in like])
    parts = np.split(v, ends[:-1]) if len(like) else []
    return tuple(unflat(part, x, dual) for part, x in zip(parts, like, strict=True))


def units(like: Sequence[Any], dual: bool = False) -> Iterator[Arrays]:
    """Every unit vector, as arrays like those."""
    size = sum(count(x) for x in like)
    for i in range(size):
        yield unflat_all(np.eye(1, size, i)[0], like, dual)


def random_like(rng: np.random.Generator, like: Sequence[Any]) -> Arrays:
    """Random directions or cotangents, no entry near 0; zeros for what does not move."""
    found = []
    for x in map(np.asarray, like):
        size = (x.size * (1 + (x.dtype.kind == "c")),)
        drawn = rng.uniform(0.4, 1.6, size) * rng.choice([-1.0, 1.0], size)
        found.append(unflat(drawn, x) if moves(x) else np.zeros(x.shape, x.dtype))
    return tuple(found)


def entry_name(position: int, x: Any) -> str:
    """Where in an array an entry of `flat` stands: ``[1, 2]``, and which part if complex."""
    x = np.asarray(x)
    part = "" if x.dtype.kind != "c" else (".real" if position < x.size else ".imag")
    if x.size == 0 or x.ndim == 0:
        return part
    index = np.unravel_index(position % x.size, x.shape)
    return f"[{', '.join(str(int(i)) for i in index)}]{part}"
