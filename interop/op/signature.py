"""The signature of an op, in NumPy's generalised-ufunc notation.

``"(n),()->()"`` says: the first argument has one core dimension n, the second is a
scalar, the result is a scalar.  Integers are fixed sizes, as in ``"(3)->(3,3)"``; a size can
follow from others, as in ``"(n)->(n//2+1)"``, and be that of a static parameter.
Dimensions in front of the core ones are batch dimensions; they broadcast as in NumPy.

Everything that needs shapes asks a `Plan`: the one made for a tuple of argument shapes
is kept, so that a second call with the same shapes costs one look-up.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twingrad.interop.errors import ShapeError, SignatureError
from twingrad.interop.op.sizes import Dim, Size, names_in, read_side, value_of, with_values

Shape = tuple[int, ...]
Core = tuple[Dim, ...]

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SEVERAL = (tuple, list)


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
    def parse(text: str | Signature) -> Signature:
        """Read ``"(n),()->()"``; raise `SignatureError` where it is not one."""
        if isinstance(text, Signature):
            return text
        sides = text.split("->")
        try:
            inputs, outputs = map(read_side, sides)
        except ValueError:
            raise SignatureError(
                f"{text!r} is not a signature; write the core dimensions of each argument "
                'and result in brackets, as in "(n),()->()", "(3)->(3,3)" or "(n)->(n//2+1)"'
            ) from None
        return Signature(inputs, outputs)

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

    def check_known(self, label: str, statics: Mapping[str, Any]) -> tuple[str, ...]:
        """The static parameters among the sizes; every other name must be that of an argument.

        Raises:
            SignatureError: a size that follows from neither.
        """
        free = {dim for core in self.inputs for dim in core if isinstance(dim, str)}
        for dim in self.dims():
            for name in names_in(dim):
                if name not in free and name not in statics:
                    raise SignatureError(
                        f"{label}: the size {name} is in no argument. Write it as an expression of "
                        "sizes that are, such as n//2+1, or as a number; or give the function a "
                        f"keyword-only parameter {name}, which is then the size. A size that "
                        "depends on the numbers in an array cannot be promised: return the "
                        "largest, and a mask or a count"
                    )
        used = {name for dim in self.dims() for name in names_in(dim)}
        return tuple(name for name in statics if name in used)

    def dims(self) -> Iterator[Dim]:
        """Every size, as it is written."""
        return (dim for core in (*self.inputs, *self.outputs) for dim in core)

    def at(self, values: Mapping[str, int]) -> Signature:
        """The signature with numbers in the place of these names."""
        sides = (
            tuple(tuple(with_values(dim, values) for dim in core) for core in side)
            for side in (self.inputs, self.outputs)
        )
        return Signature.of(*sides)

    def computed(self, core: Core, shape: Sequence[int]) -> str:
        """For a message: the sizes of a result that no argument has, with their values."""
        free = {dim for core in self.inputs for dim in core}
        pairs = zip(core, shape[len(shape) - len(core) :], strict=True)
        return "".join(
            f", {dim} = {size}"
            for dim, size in pairs
            if not isinstance(dim, int) and dim not in free
        )

    def plan(self, shapes: tuple[Shape, ...]) -> Plan:
        """The `Plan` for these argument shapes; raise `ShapeError` where they do not fit."""
        try:
            return _cached_plan(self, shapes)
        except TypeError:  # symbolic sizes of a compiler, which have no hash
            return _make_plan(self, shapes)

    def explain(
        self, shapes: Sequence[Shape], names: Sequence[str], values: Mapping[str, int] | None = None
    ) -> str:
        """Say in words what does not fit, with names, shapes and sizes.

        `values` are those of the static parameters among the sizes.
        """
        seen = {dim: (f"the parameter {dim}", size) for dim, size in (values or {}).items()}
        computed: list[tuple[Size, int, str]] = []
        for core, name, shape in zip(self.inputs, names, shapes, strict=True):
            where = f"{name} (shape {_show(shape)})"
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
                elif isinstance(dim, Size):
                    computed.append((dim, size, where))
                elif seen.setdefault(dim, (where, size))[1] != size:
                    other, expected = seen[dim]
                    return (
                        f"dimension {dim} is {expected} in {other} but {size} in {where}; "
                        "they must be equal"
                    )
        sizes = {dim: size for dim, (_, size) in seen.items()}
        results = ((dim, None, "") for core in self.outputs for dim in core)
        texts = (_explain_size(*each, sizes) for each in (*computed, *results))
        for text in filter(None, texts):
            return text
        listed = ", ".join(
            f"{name} {_show(shape[: len(shape) - len(core)])}"
            for core, name, shape in zip(self.inputs, names, shapes, strict=True)
        )
        return f"the batch shapes do not broadcast: {listed}"


def _explain_size(dim: Dim, found: int | None, where: str, sizes: Mapping[str, int]) -> str:
    """What is wrong with a computed size, of an argument or of a result; "" for nothing."""
    given = " and ".join(f"{name} = {sizes[name]}" for name in dict.fromkeys(names_in(dim)))
    try:
        size = value_of(dim, sizes)
    except ZeroDivisionError:
        return f"the size {dim} divides by zero at {given}"
    if found is not None and found != size:
        return f"dimension {dim} is {found} in {where}; expected {size}, as {given}"
    return f"the size {dim} is {size} at {given}; it must not be negative" if size < 0 else ""


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


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The positional parameters that may be left out, as a number stands in for them."""
    return {
        p.name: p.default
        for p in inspect.signature(function).parameters.values()
        if p.kind in POSITIONAL and isinstance(p.default, numbers.Number)
    }


def _show(shape: Sequence[int]) -> str:
    return str(tuple(shape))


def _show_core(core: Core) -> str:
    return "(" + ", ".join(map(str, core)) + ("," if len(core) == 1 else "") + ")"


def _make_plan(signature: Signature, shapes: tuple[Shape, ...]) -> Plan:
    sizes: dict[str, Any] = {}
    batches: list[Shape] = []
    computed: list[tuple[Size, Any]] = []
    for core, shape in zip(signature.inputs, shapes, strict=True):
        split = len(shape) - len(core)
        if split < 0:
            raise ShapeError
        batches.append(tuple(shape[:split]))
        for dim, size in zip(core, shape[split:], strict=True):
            if isinstance(dim, Size):
                computed.append((dim, size))
            elif (dim if isinstance(dim, int) else sizes.setdefault(dim, size)) != size:
                raise ShapeError
    if any(_size(dim, sizes) != size for dim, size in computed):
        raise ShapeError
    rank = max(map(len, batches))
    padded = [(1,) * (rank - len(b)) + b for b in batches]
    batch = tuple(_broadcast([b[axis] for b in padded]) for axis in range(rank))

    def core_shape(core: Core) -> Shape:
        return tuple(sizes[dim] if isinstance(dim, str) else _size(dim, sizes) for dim in core)

    cores = [core_shape(core) for core in signature.inputs]
    return Plan(
        batch=batch,
        aligned=tuple(b + core for b, core in zip(padded, cores, strict=True)),
        padded=any(len(b) != rank for b in batches),
        full=tuple(batch + core for core in cores),
        summed=tuple(tuple(axis for axis in range(rank) if batch[axis] != b[axis]) for b in padded),
        outputs=tuple(batch + core_shape(core) for core in signature.outputs),
    )


def _size(dim: Size | int, sizes: Mapping[str, Any]) -> Any:
    try:
        size = value_of(dim, sizes)
    except ZeroDivisionError:
        raise ShapeError from None
    if size < 0:
        raise ShapeError
    return size


def _broadcast(sizes: list[int]) -> int:
    size = next((s for s in sizes if s != 1), 1)
    if any(s != 1 and s != size for s in sizes):
        raise ShapeError
    return size


_cached_plan = functools.lru_cache(maxsize=2048)(_make_plan)
