"""The array-API namespace of torch: array-api-compat's, without what a rule must not meet.

A rule runs under vmap, forward mode, `torch.func.linearize` and compilers.  There

- a write in place into a constant is dropped without an error: `linearize` folds what follows
  from constants before it writes (``eye``);
- writes through a boolean mask (``sign``) and `aten::moveaxis.int` (``moveaxis``, ``unstack``,
  ``vecdot``) have no batching rule;
- on torch's first vmap, that of ``is_grads_batched=True``, `aten::swapaxes` (``matrix_transpose``),
  `aten::concat` (``concat``, ``cumulative_sum``) and `aten::broadcast_to` have none;
- for `aten::_conj_physical` (``conj``, ``vecdot``) vmap loops over the samples, and for
  `aten::_neg_view`, which is ``imag`` of a lazy conjugate, it has no rule;
- ``argmax`` and ``argmin`` of the whole array with ``keepdims=True``, and `linalg.solve` of a
  vector, have a batching rule that is wrong;
- `torch.take_along_dim` fixes every size of its arguments in an exported program
  (``take_along_axis``).

Every function here has the arguments and results of the array API (2024.12).
"""

# The names below are those of the standard, and so are their arguments.
# ruff: noqa: A001, F403, F405
from __future__ import annotations

from typing import Any

import torch
from array_api_compat.torch import *  # pyright: ignore[reportWildcardImportFromLibrary]

from twingrad.interop.xp import torch_linalg as linalg
from twingrad.interop.xp.torch_linalg import conj, matrix_transpose, vecdot

__all__ = [
    "argmax",
    "argmin",
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "conj",
    "count_nonzero",
    "cumulative_sum",
    "eye",
    "imag",
    "linalg",
    "matrix_transpose",
    "moveaxis",
    "sign",
    "std",
    "take_along_axis",
    "unstack",
    "vecdot",
]


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> torch.Tensor:
    """Ones on the k-th diagonal."""
    rows = torch.arange(n_rows, device=device)
    columns = torch.arange(n_rows if n_cols is None else n_cols, device=device)
    return (rows[:, None] + k == columns).to(dtype or torch.get_default_dtype())


def sign(x: torch.Tensor, /) -> torch.Tensor:
    """x / abs(x), and 0 at 0; NaN at NaN."""
    if x.is_complex():
        return torch.sgn(x)
    found = torch.sign(x)
    return torch.where(torch.isnan(x), torch.nan, found) if x.is_floating_point() else found


def moveaxis(x: torch.Tensor, source: Any, destination: Any, /) -> torch.Tensor:
    """The array with axes at other places."""
    return torch.movedim(x, source, destination)


def unstack(x: torch.Tensor, /, *, axis: int = 0) -> tuple[torch.Tensor, ...]:
    """The slices along an axis."""
    return torch.unbind(x, axis)


def concat(
    arrays: list[torch.Tensor] | tuple[torch.Tensor, ...], /, *, axis: int | None = 0
) -> torch.Tensor:
    """The arrays one after the other along an axis; None: all their entries in one row."""
    if axis is None:
        arrays, axis = [x.reshape(-1) for x in arrays], 0
    return torch.cat(tuple(arrays), axis)


def imag(x: torch.Tensor, /) -> torch.Tensor:
    """The imaginary part."""
    return torch.imag(x.resolve_conj())


def broadcast_to(x: torch.Tensor, /, shape: tuple[int, ...]) -> torch.Tensor:
    """The array at a shape that it broadcasts to."""
    return x.expand(tuple(shape))


def broadcast_arrays(*arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The arrays at the shape that all of them broadcast to."""
    shape = torch.broadcast_shapes(*[x.shape for x in arrays])
    return tuple([x.expand(shape) for x in arrays])


def cumulative_sum(
    x: torch.Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> torch.Tensor:
    """The running sums along an axis, after a 0 where that is included."""
    if axis is None:  # as the standard has it: of one axis
        if x.dim() != 1:
            raise ValueError("cumulative_sum: axis must be given for an array of several axes")
        axis = 0
    found = torch.cumsum(x, axis, dtype=dtype)
    if not include_initial:
        return found
    return torch.cat((torch.zeros_like(found.sum(axis, keepdim=True)), found), axis)


def argmax(x: torch.Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> torch.Tensor:
    """Where the largest entry is."""
    return _place(torch.argmax, x, axis, keepdims)


def argmin(x: torch.Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> torch.Tensor:
    """Where the smallest entry is."""
    return _place(torch.argmin, x, axis, keepdims)


def _place(function: Any, x: torch.Tensor, axis: int | None, keepdims: bool) -> torch.Tensor:
    if axis is not None:
        return function(x, axis, keepdim=keepdims)  # type: ignore[no-any-return]
    found: torch.Tensor = function(x.reshape(-1), 0)
    return found.reshape((1,) * x.dim()) if keepdims else found


def count_nonzero(x: torch.Tensor, /, *, axis: Any = None, keepdims: bool = False) -> torch.Tensor:
    """How many entries are not 0."""
    hot = x != 0
    return hot.to(torch.int64) if axis == () else torch.sum(hot, axis, keepdim=keepdims)


def std(
    x: torch.Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
) -> torch.Tensor:
    """The standard deviation, with n - correction in the denominator."""
    if axis == ():
        return torch.zeros_like(x)
    return torch.std(x, axis, correction=correction, keepdim=keepdims)


def take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """The entries at `indices` along an axis; the other axes broadcast."""
    indices = torch.where(indices < 0, indices + x.shape[axis], indices)
    return torch.gather(_spread(x, indices, axis), axis, _spread(indices, x, axis))


def _spread(x: torch.Tensor, like: torch.Tensor, axis: int) -> torch.Tensor:
    shape = list(like.shape)
    shape[axis] = 1
    return x.expand(torch.broadcast_shapes(x.shape, shape))
