"""The memory of tensors as NumPy arrays, without a copy and without pinning it.

`Tensor.numpy()` makes the storage one that can never be resized again, and FSDP2, `resize_`
and ``out=`` resize storages.  Memory taken by DLPack stays resizable; so an array that
somebody kept must not outlive the numbers it shows: its storage is pinned then, as before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]


def call_with_arrays(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
    """``function(*arrays)`` with the tensors' memory, or that of copies on the CPU."""
    held = [_on_cpu(x) for x in tensors]
    arrays = [np.from_dlpack(_Lent(x)) for x in held]
    alive = [weakref.ref(x) for x in arrays]
    try:
        return function(*arrays)
    finally:
        del arrays
        for x, array in zip(held, alive, strict=True):
            if array() is not None:
                x.numpy()


class _Lent:
    """A tensor for `np.from_dlpack`: what `Tensor.__dlpack__` asks first takes most of the time."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __dlpack__(self, **_: Any) -> Any:
        """The memory."""
        return to_dlpack(self.x)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU."""
        return 1, 0


def _on_cpu(x: torch.Tensor) -> torch.Tensor:
    x = x.detach().resolve_conj().resolve_neg().cpu()
    return x.float() if x.dtype is torch.bfloat16 else x
