"""Host functions in torch: one operator, which every host op of every user goes through.

``twingrad::host(Tensor[] inputs, str kernel) -> Tensor[]`` has a real implementation, which
calls NumPy, and a fake one, which promises shapes and dtypes.  Eager calls, torch.func,
torch.compile, torch.export and meta tensors all see one ordinary operator.  It has no
derivative of its own: the Function around it supplies the rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from twingrad.interop.errors import ArgumentError
from twingrad.interop.framework import Arrays
from twingrad.interop.numpy import call_host as call_numpy
from twingrad.interop.numpy import host_dtype
from twingrad.interop.rules import Kernel

# Kernels by a name that is the same in every process: compiled and exported graphs hold it
# and may outlive the process.  They are kept for good, since a graph may still call them.
_KERNELS: dict[str, Kernel] = {}
_NAMES: dict[Kernel, str] = {}


def call_host(kernel: Kernel, inputs: Arrays) -> Arrays:
    """Call a host op's function once on the whole batch; inputs have one batch rank."""
    return tuple(torch.ops.twingrad.host(list(inputs), _NAMES[kernel]))


def register(kernel: Kernel) -> None:
    """Make a host kernel known to the operator."""
    op = kernel.op
    stem = f"{op.__module__}.{op.label}{kernel.static.items or ''}"
    for number in itertools.count(1):
        name = stem if number == 1 else f"{stem} #{number}"
        if _KERNELS.setdefault(name, kernel) is kernel:
            break
    _NAMES[kernel] = name


def _find(name: str) -> Kernel:
    if name not in _KERNELS:
        raise ArgumentError(
            f"{name}: this graph calls a host op that is not bound in this process; import the "
            "module that defines it and bind it with twingrad.interop.torch.bind first"
        )
    return _KERNELS[name]


def _real(inputs: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    found = _find(kernel)
    device = inputs[0].device
    arrays = tuple(x.detach().resolve_conj().resolve_neg().cpu().numpy() for x in inputs)
    outs = call_numpy(found, arrays, found.plan(arrays))
    return [torch.from_numpy(y).to(device) for y in outs]


def _fake(inputs: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    found = _find(kernel)
    dtype = getattr(torch, host_dtype(tuple(inputs)))
    return [inputs[0].new_empty(shape, dtype=dtype) for shape in found.plan(inputs).outputs]


_LIBRARY = torch.library.Library("twingrad", "FRAGMENT")
_LIBRARY.define("host(Tensor[] inputs, str kernel) -> Tensor[]")
_LIBRARY.impl("host", _real, "CompositeExplicitAutograd")
torch.library.register_fake("twingrad::host", _fake, lib=_LIBRARY)
