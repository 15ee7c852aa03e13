"""The inputs of a check: given, drawn by a function, or drawn from the signature."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from twingrad.interop.check.arrays import moves
from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.definition import Op
from twingrad.interop.op.signature import Signature
from twingrad.interop.op.sizes import Size, value_of

Arrays = tuple[Any, ...]
Draw = Callable[[np.random.Generator], Arrays]
SIZES = (3, 4, 2, 5)  # of the dimensions of a signature, in turn: no matrix is square
SCALES = (0.01, 30.0)
DRAWS: tuple[Callable[[np.random.Generator, Any], Any], ...] = (
    lambda rng, shape: rng.normal(size=shape),
    lambda rng, shape: rng.uniform(0.5, 1.5, shape),
    lambda rng, shape: rng.uniform(0.1, 0.9, shape),
    lambda rng, shape: -rng.uniform(0.2, 1.5, shape),
)


def plain(x: Any) -> Any:
    """A NumPy array of a tensor, a JAX array or a number; whole numbers stay integers."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = x.float() if "bfloat16" in str(x.dtype) else x
        x = x.resolve_conj().numpy()
    return np.asarray(x)


def shapes_of(signature: Signature, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """The shape of each input, with the sizes given and others for the rest.

    A size that is computed from others is the one that follows from these.

    Raises:
        ArgumentError: a size for a dimension that the signature does not have.
    """
    dims = [d for core in signature.inputs for d in core if isinstance(d, str)]
    letters = list(dict.fromkeys(dims))
    unknown = [name for name in sizes if name not in letters]
    if unknown:
        raise ArgumentError(
            f"check {signature}: it has no dimension {unknown[0]}; it has {', '.join(letters)}"
        )
    chosen = {name: SIZES[i % len(SIZES)] for i, name in enumerate(letters)} | sizes
    return [tuple(value_of(d, chosen) for d in core) for core in signature.inputs]


def fixed_sizes(target: Any, static: dict[str, Any]) -> dict[str, int]:
    """The sizes of arguments that are static parameters, with their values."""
    if not isinstance(target, Op):
        return {}
    dims = {d for core in target.signature.inputs for d in core}
    given = target.static(static).items if dims.intersection(target.sizes) else ()
    return {name: value for name, value in given if name in dims and name in target.sizes}


def points(
    target: Any,
    inputs: Arrays,
    draw: Draw | None,
    sizes: dict[str, int],
    seed: int,
    finite: Callable[[Arrays], bool],
) -> tuple[list[Arrays], list[Arrays]]:
    """Several inputs: the given ones or a draw, others near by or drawn; and scaled ones.

    Raises:
        ArgumentError: there are no inputs and no signature to draw them from, or the value is
            finite at no draw.
    """
    rng = np.random.default_rng(seed)
    if inputs:
        first = [tuple(plain(x) for x in inputs)]
        first += [_jitter(rng, first[0]) for _ in range(2)]
    elif draw is not None:
        first = [tuple(map(np.asarray, draw(rng))) for _ in range(3)]
    else:
        first = _from_signature(target, sizes, rng, finite)
    scaled = [tuple(_times(x, s) for x in first[0]) for s in SCALES]
    return [first[0], *filter(finite, first[1:])], list(filter(finite, scaled))


def _from_signature(
    target: Any, sizes: dict[str, int], rng: np.random.Generator, finite: Callable[[Arrays], bool]
) -> list[Arrays]:
    if not isinstance(target, Op):
        raise ArgumentError("check: give the inputs, or draw=; a function has no signature")
    shapes = shapes_of(target.signature, sizes)
    for one in DRAWS:
        found = [tuple(np.asarray(one(rng, shape)) for shape in shapes) for _ in range(3)]
        if all(map(finite, found)):
            return found
    raise ArgumentError(
        f"check {target.label}: the value is not finite at random inputs; give inputs, or draw="
    )


def _jitter(rng: np.random.Generator, inputs: Arrays) -> Arrays:
    return tuple(
        np.asarray(x * rng.uniform(0.9, 1.1, np.shape(x)), x.dtype) if moves(x) else x
        for x in inputs
    )


def _times(x: Any, factor: float) -> Any:
    return np.asarray(x * factor, x.dtype) if moves(x) else x


def shrinks(target: Any) -> Iterator[Callable[[Arrays], Arrays | None]]:
    """Steps to a smaller example: fewer digits, fewer entries of each dimension, one digit."""
    yield lambda inputs: tuple(_rounded(x, 2) for x in inputs)
    if isinstance(target, Op) and _free(target):
        for size in (2, 1):
            yield lambda inputs, size=size: _sliced(target.signature, inputs, size)  # type: ignore[misc]
    yield lambda inputs: tuple(_rounded(x, 1) for x in inputs)


def _free(op: Op) -> bool:
    """Whether no size of an argument follows from others or from a static parameter."""
    dims = (d for core in op.signature.inputs for d in core)
    return not any(isinstance(d, Size) or d in op.sizes for d in dims)


def _rounded(x: Any, digits: int) -> Any:
    x = np.asarray(x)
    if x.dtype.kind != "f" or not x.size:
        return x
    with np.errstate(all="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.where(x == 0, 1.0, np.abs(x)))) - digits + 1)
    return np.where(x == 0, x, np.round(x / unit) * unit).astype(x.dtype)


def _sliced(signature: Signature, inputs: Arrays, size: int) -> Arrays | None:
    """The first entries along every named dimension, of the first sample."""
    found = []
    for x, core in zip(inputs, signature.inputs, strict=True):
        x = np.asarray(x)
        if x.dtype.kind not in "fc":
            return None  # indices would point elsewhere
        x = x[(0,) * (x.ndim - len(core))]
        found.append(x[tuple(slice(size) if isinstance(d, str) else slice(None) for d in core)])
    return tuple(found)
