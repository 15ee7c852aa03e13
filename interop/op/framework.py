"""What the rules must know of a framework: its namespace, its dtypes, and five abilities.

One object per binder implements `Framework`; everything else here works on the arrays of
any of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.signature import Plan, Shape
from twingrad.interop.op.statics.constants import Constant

Kernel = Any  # that of `op.kernel`, which imports this file
Array = Any
Arrays = tuple[Array, ...]

# The dtype of each kind at each precision (bits of the real part).
DTYPES = {
    ("real", 16): "float16",
    ("real", 32): "float32",
    ("real", 64): "float64",
    ("complex", 32): "complex64",
    ("complex", 64): "complex128",
}
KINDS = {name: key for key, name in DTYPES.items()} | {"bfloat16": ("real", 16)}


@functools.cache
def kind(dtype: Any) -> tuple[str, int]:
    """``("real", 32)`` for float32 of any framework; ``("", 0)`` for integers and booleans."""
    return KINDS.get(str(dtype).rpartition(".")[2], ("", 0))


def inexact(array: Array) -> bool:
    """Whether an array can have a gradient."""
    return bool(kind(array.dtype)[0])


class Framework(Protocol):
    """What a binder must know of its framework."""

    @property
    def xp(self) -> Any:
        """The array-API namespace that rules are written against."""

    def call(
        self,
        label: str,
        what: str,
        rule: Callable[..., Any],
        arrays: Arrays,
        args: Any,
        keywords: dict[str, Any],
    ) -> Any:
        """``rule(*args, **keywords)``; raise `RuleError` where it changes one of the arrays."""
        ...

    def constant(self, constant: Constant, like: Array, bits: int) -> Array:
        """A constant where `like` is, in this precision, or the usual one for 0; made once."""
        ...

    def host(self, kernel: Kernel, inputs: Arrays, plan: Plan) -> Arrays:
        """Call a host op's NumPy function, in a way that the framework's compiler takes."""
        ...

    def transpose(
        self, linear: Callable[..., Arrays], like: Sequence[tuple[Shape, Array]], seeds: Arrays
    ) -> Arrays:
        """Apply the transpose of a linear function of arrays with these shapes and dtypes."""
        ...

    def from_framework(self, cotangent: Array) -> Array:
        """A cotangent in the plain-transpose convention of the rules."""

    def to_framework(self, gradient: Array) -> Array:
        """A gradient in the framework's own convention."""


def align(fw: Framework, arrays: Sequence[Array], plan: Plan) -> Arrays:
    """The arrays with their batch ranks made equal."""
    if not plan.padded:
        return tuple(arrays)
    return tuple(
        [
            x if x.shape == shape else fw.xp.reshape(x, shape)
            for x, shape in zip(arrays, plan.aligned, strict=False)
        ]
    )


def precision(arrays: Sequence[Array]) -> int:
    """Bits of the real part of the first array that can have a gradient; 0 if none can."""
    return next((bits for name, bits in (kind(x.dtype) for x in arrays) if name), 0)


def call_with_constants(op: Any, fw: Framework) -> Callable[..., Any]:
    """`fw.call`, with the constants that the function or rule asks for, beside the arrays."""

    def call(
        label: str, what: str, rule: Any, arrays: Arrays, args: Any, keywords: dict[str, Any]
    ) -> Any:
        names = op.takes.get(what.removeprefix("its "), ())
        given, bits = {}, precision(arrays)
        for name in names:
            try:
                given[name] = fw.constant(op.constants[name], arrays[0], bits)
            except OverflowError as error:
                raise ArgumentError(f"{label}: the constant {name!r} {error}") from None
        try:
            found = (*arrays, *given.values())
            return fw.call(label, what, rule, found, args, {**keywords, **given})
        except Exception:
            for name in names:  # it may have been written to
                op.constants[name].made.clear()
            raise

    return call


def cast(fw: Framework, y: Array, bits: int) -> Array:
    """The output in the given precision; integers and booleans stay as they are."""
    name, found = kind(y.dtype)
    if not name or not bits or found == bits:
        return y
    return fw.xp.astype(y, getattr(fw.xp, DTYPES[name, bits]))


def cast_like(fw: Framework, g: Array, x: Array) -> Array:
    """A gradient in its input's dtype: the real part where that is real."""
    if kind(x.dtype)[0] == "real" and kind(g.dtype)[0] == "complex":
        g = fw.xp.real(g)
    return g if g.dtype == x.dtype else fw.xp.astype(g, x.dtype)


def scatter(where: Sequence[int], values: Sequence[Any], length: int) -> Arrays:
    """A tuple with the values at the given places and None elsewhere."""
    found: list[Any] = [None] * length
    for i, value in zip(where, values, strict=True):
        found[i] = value
    return tuple(found)
