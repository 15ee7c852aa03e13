"""The signature of an op, in NumPy's generalised-ufunc notation.

``"(n),()->()"`` says: the first argument has one core dimension n, the second is a
scalar, the result is a scalar.  Integers are fixed sizes, as in ``"(3)->(3,3)"``.
Dimensions in front of the core ones are batch dimensions; they broadcast as in NumPy.

Everything that needs shapes asks a `Plan`: the one made for a tuple of argument shapes
is kept, so that a second call with the same shapes costs one look-up.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from twingrad.interop.errors import ShapeError, SignatureError

Shape = tuple[int, ...]
Core = tuple[str | int, ...]

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SEVERAL = (tuple, list)

_DIM = r"(?:[A-Za-z_]\w*|\d+)"
_CORE = rf"\(\s*(?:{_DIM}\s*(?:,\s*{_DIM}\s*)*)?\)"
_SIDE = rf"{_CORE}(?:\s*,\s*{_CORE})*"
_GRAMMAR = re.compile(rf"\s*({_SIDE})\s*->\s*({_SIDE})\s*")


@dataclass(frozen=True, eq=False)
class Plan:
    """What follows from one tuple of argument shapes.

    Attributes:
        batch: the broadcast batch shape.
        aligned: per argument, its shape padded with ones to the common batch rank.
        padded: whether any argument differs from its aligned shape.
        full: per argument, batch + core: the shape a rule may return a gradient in.
        summed: per argument, the axes of `full` along which the argument was broadcast.
        outputs: per output, batch + core.
    """

    batch: Shape
    aligned: tuple[Shape, ...]
    padded: bool
    full: tuple[Shape, ...]
    summed: tuple[tuple[int, ...], ...]
    outputs: tuple[Shape, ...]


@dataclass(frozen=True, eq=False)
class Signature:
    """A parsed signature: the core dimensions of each input and each output."""

    inputs: tuple[Core, ...]
    outputs: tuple[Core, ...]

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def parse(text: str) -> Signature:
        """Read ``"(n),()->()"``; raise `SignatureError` where it is not one."""
        match = _GRAMMAR.fullmatch(text)
        if match is None:
            raise SignatureError(
                f"{text!r} is not a signature; write the core dimensions of each argument "
                'and result in brackets, as in "(n),()->()" or "(3)->(3,3)"'
            )
        signature = Signature(*(_cores(side) for side in match.groups()))
        known = {dim for core in signature.inputs for dim in core}
        for dim in (dim for core in signature.outputs for dim in core):
            if isinstance(dim, str) and dim not in known:
                raise SignatureError(
                    f"{text!r}: the result's dimension {dim} is in no argument; "
                    "write its size as a number, or give an argument that dimension"
                )
        return signature

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def of(inputs: tuple[Core, ...], outputs: tuple[Core, ...]) -> Signature:
        """The same object for the same cores, so that ops made anew share their plans."""
        return Signature(inputs, outputs)

    def __str__(self) -> str:
        return "->".join(
            ",".join("(" + ",".join(map(str, core)) + ")" for core in side)
            for side in (self.inputs, self.outputs)
        )

    def plan(self, shapes: tuple[Shape, ...]) -> Plan:
        """The `Plan` for these argument shapes; raise `ShapeError` where they do not fit."""
        try:
            return _cached_plan(self, shapes)
        except TypeError:  # symbolic sizes of a compiler, which have no hash
            return _make_plan(self, shapes)

    def explain(self, shapes: Sequence[Shape], names: Sequence[str]) -> str:
        """Say in words which argument does not fit, with names, shapes and sizes."""
        seen: dict[str, tuple[str, int, Shape]] = {}
        for core, name, shape in zip(self.inputs, names, shapes, strict=True):
            if len(shape) < len(core):
                return (
                    f"{name} has shape {_show(shape)}, but needs at least {len(core)} "
                    f"dimension{'s' * (len(core) > 1)}, {_show_core(core)}; "
                    "dimensions before these are batch"
                )
            for dim, size in zip(core, shape[len(shape) - len(core) :], strict=True):
                if isinstance(dim, int):
                    if size != dim:
                        return (
                            f"{name} has shape {_show(shape)}, but its core dimensions are "
                            f"{_show_core(core)}: found size {size} where {dim} is fixed"
                        )
                elif seen.setdefault(dim, (name, size, shape))[1] != size:
                    other, expected, where = seen[dim]
                    return (
                        f"dimension {dim} is {expected} in {other} (shape {_show(where)}) but "
                        f"{size} in {name} (shape {_show(shape)}); they must be equal"
                    )
        listed = ", ".join(
            f"{name} {_show(shape[: len(shape) - len(core)])}"
            for core, name, shape in zip(self.inputs, names, shapes, strict=True)
        )
        return f"the batch shapes do not broadcast: {listed}"


def as_tuple(value: Any) -> tuple[Any, ...]:
    """What a function or rule returned, as a tuple: several outputs, or the only one."""
    return tuple(value) if isinstance(value, _SEVERAL) else (value,)


def check_arity(
    signature: Signature, label: str, function: Callable[..., Any], before: int, what: str
) -> None:
    """`function` must take `before` parameters and then one per input.

    Raises:
        SignatureError: it takes another number.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) and before == 3:
        return
    count = sum(p.kind in POSITIONAL for p in parameters)
    if count != before + len(signature.inputs):
        first = "xp" if before == 1 else "xp, its ct or tangents, out"
        raise SignatureError(
            f"{label}: {what} takes {count} positional parameters; expected {first} "
            f"and {len(signature.inputs)} inputs"
        )


def _cores(side: str) -> tuple[Core, ...]:
    dims = (re.findall(r"\w+", core) for core in re.findall(r"\(([^)]*)\)", side))
    return tuple(tuple(int(d) if d.isdigit() else d for d in core) for core in dims)


def _show(shape: Sequence[int]) -> str:
    return str(tuple(shape))


def _show_core(core: Core) -> str:
    return "(" + ", ".join(map(str, core)) + ("," if len(core) == 1 else "") + ")"


def _make_plan(signature: Signature, shapes: tuple[Shape, ...]) -> Plan:
    sizes: dict[str | int, Any] = {}
    batches: list[Shape] = []
    for core, shape in zip(signature.inputs, shapes, strict=True):
        split = len(shape) - len(core)
        if split < 0:
            raise ShapeError
        batches.append(tuple(shape[:split]))
        for dim, size in zip(core, shape[split:], strict=True):
            if (dim if isinstance(dim, int) else sizes.setdefault(dim, size)) != size:
                raise ShapeError
    rank = max(map(len, batches))
    padded = [(1,) * (rank - len(b)) + b for b in batches]
    batch = tuple(_broadcast([b[axis] for b in padded]) for axis in range(rank))

    def core_shape(core: Core) -> Shape:
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in core)

    cores = [core_shape(core) for core in signature.inputs]
    return Plan(
        batch=batch,
        aligned=tuple(b + core for b, core in zip(padded, cores, strict=True)),
        padded=any(len(b) != rank for b in batches),
        full=tuple(batch + core for core in cores),
        summed=tuple(tuple(axis for axis in range(rank) if batch[axis] != b[axis]) for b in padded),
        outputs=tuple(batch + core_shape(core) for core in signature.outputs),
    )


def _broadcast(sizes: list[int]) -> int:
    size = next((s for s in sizes if s != 1), 1)
    if any(s != 1 and s != size for s in sizes):
        raise ShapeError
    return size


_cached_plan = functools.lru_cache(maxsize=2048)(_make_plan)
