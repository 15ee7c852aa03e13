"""The `linalg` of the namespace `twingrad.interop.xp.torch`."""

# ruff: noqa: F403, F405
from __future__ import annotations

from typing import Any

import array_api_compat.torch as compat
import torch
from array_api_compat.torch.linalg import *  # pyright: ignore[reportWildcardImportFromLibrary]

__all__ = ["matrix_transpose", "solve", "vecdot", "vector_norm"]


def matrix_transpose(x: torch.Tensor, /) -> torch.Tensor:  # type: ignore[no-redef]
    """The last two axes exchanged."""
    return torch.transpose(x, -2, -1)


def solve(  # type: ignore[no-redef]
    a: torch.Tensor, b: torch.Tensor, /
) -> torch.Tensor:
    """A^-1 b: of a vector where b has one dimension, else of the matrices in its last two.

    torch guesses which from the shapes, and guesses anew from those of a batch under vmap.
    """
    dtype = compat.result_type(a, b)
    a, b = a.to(dtype), b.to(dtype)
    columns = b[:, None] if b.dim() == 1 else b
    batch = torch.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    columns = columns.expand(*batch, *columns.shape[-2:])
    found: torch.Tensor = torch.linalg.solve(a.expand(*batch, *a.shape[-2:]), columns)
    if b.dim() == 1:
        found = found[..., 0]
    return found


def conj(x: torch.Tensor, /) -> torch.Tensor:
    """The complex conjugate."""
    return x.conj().resolve_conj()


def vecdot(  # type: ignore[no-redef]
    x1: torch.Tensor, x2: torch.Tensor, /, *, axis: int = -1
) -> torch.Tensor:
    """The sum of conj(x1) x2 along an axis."""
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: sizes {x1.shape[axis]} and {x2.shape[axis]} along axis {axis}")
    dtype = compat.result_type(x1, x2)
    x1 = torch.movedim(x1.to(dtype), axis, -1)
    x2 = torch.movedim(x2.to(dtype), axis, -1)
    return (conj(x1)[..., None, :] @ x2[..., :, None])[..., 0, 0]


def vector_norm(  # type: ignore[no-redef]
    x: torch.Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> torch.Tensor:
    """The norm of the vectors along an axis, or of several axes taken together."""
    if axis == ():
        size = torch.abs(x)
        return (size != 0).to(size.dtype) if ord == 0 else size
    found: torch.Tensor = torch.linalg.vector_norm(x, ord=ord, dim=axis, keepdim=keepdims)
    return found
