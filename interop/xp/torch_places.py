"""The array-API namespace of torch for one device: what is made of no array is made there.

A rule writes ``xp.arange(n)``, also where its arrays are on a GPU: under the tracers of JAX an
array has no ``device`` that could be handed on.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from array_api_compat.torch import fft

from twingrad.interop.xp import torch as xp

MAKERS = ("arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros")
FREQUENCIES = ("fftfreq", "rfftfreq")


class Place:
    """A module whose functions of these names have another default for `device`."""

    def __init__(self, module: ModuleType, names: tuple[str, ...], device: torch.device) -> None:
        self._module, self.__name__ = module, module.__name__
        for name in names:
            setattr(self, name, functools.partial(getattr(module, name), device=device))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@functools.cache
def on(device: torch.device) -> Any:
    """The namespace for arrays on this device."""
    found: Any = Place(xp, MAKERS, device)
    found.fft = Place(fft, FREQUENCIES, device)
    return found
