"""The two operators of `torch.library` that stand for ops in the graphs of compilers.

``twingrad::host(Tensor[] inputs, str name) -> Tensor[]`` is the NumPy function of a host op:
opaque, with a fake implementation that promises shapes and dtypes.  Eager calls, torch.func,
torch.compile, torch.export and meta tensors all see one ordinary operator.  It has no
derivative of its own: the Function around it supplies the rules.

``twingrad::op(Tensor[] inputs, str name) -> Tensor[]`` is a whole op with its rules, in the
graph of ``torch.export``.  Exported as its forward code, an op would be differentiated by
autodiff of that code.  It is a composite operator: torch keeps it in the exported program and
takes it apart in ``run_decompositions``, where only the forward pass is wanted.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from twingrad.interop.errors import ArgumentError
from twingrad.interop.framework import Arrays
from twingrad.interop.numpy import call_host as call_numpy
from twingrad.interop.promises import promised
from twingrad.interop.rules import Kernel
from twingrad.interop.torch_batched import on_first_vmap, on_vmap
from twingrad.interop.torch_memory import call_with_arrays
from twingrad.interop.torch_sharded import is_sharded, on_local_batches

# Functions by a name that is the same in every process: compiled and exported graphs hold it
# and may outlive the process.  Those that a graph may still call are kept for good.
_FUNCTIONS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_KEPT: set[Any] = set()
_NAMES: dict[Kernel, str] = {}


def register(function: Any) -> None:
    """Give the Function of an op a name by which graphs can call it."""
    kernel = function.kernel
    op = kernel.op
    stem = f"{op.__module__}.{op.label}{kernel.static.items or ''}"
    for number in itertools.count(1):
        name = stem if number == 1 else f"{stem} #{number}"
        if _FUNCTIONS.setdefault(name, function) is function:
            break
    function.name = name
    if op.host:
        _KEPT.add(function)
        _NAMES[kernel] = name


def call_exported(function: Any, inputs: Arrays) -> Any:
    """The op as one node of an exported graph."""
    _KEPT.add(function)
    outs = torch.ops.twingrad.op(list(inputs), function.name)
    return outs[0] if len(outs) == 1 else tuple(outs)


def call_host(kernel: Kernel, inputs: Arrays) -> Arrays:
    """Call a host op's function once on the whole batch; inputs have one batch rank."""
    if is_sharded(inputs):
        return on_local_batches(lambda *x: call_host(kernel, x), inputs, kernel.plan(inputs))
    return tuple(torch.ops.twingrad.host(list(inputs), _NAMES[kernel]))


def _find(name: str) -> Any:
    found = _FUNCTIONS.get(name)
    if found is None:
        raise ArgumentError(
            f"{name}: this graph calls an op that is not bound in this process; import the module "
            "that defines it, bind it with twingrad.interop.torch.bind, and call it once if it "
            "has static parameters other than the default ones"
        )
    return found


def _real(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    kernel = _find(name).kernel
    device = inputs[0].device

    def call(*arrays: Any) -> Arrays:
        dtypes = promised(kernel.op.dtypes, arrays)
        return call_numpy(kernel, arrays, kernel.plan(arrays), dtypes)

    outs = call_with_arrays(call, inputs)
    return [torch.from_numpy(y).to(device) for y in outs]


def _fake(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    kernel = _find(name).kernel
    shapes, dtypes = kernel.plan(inputs).outputs, promised(kernel.op.dtypes, tuple(inputs))
    pairs = zip(shapes, dtypes, strict=True)
    return [inputs[0].new_empty(shape, dtype=getattr(torch, name)) for shape, name in pairs]


def _on_first_vmap(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    return on_first_vmap(lambda x: torch.ops.twingrad.host(x, name), inputs)


def _on_vmap(info: Any, dims: Any, inputs: Sequence[torch.Tensor], name: str) -> Any:
    return on_vmap(lambda x: torch.ops.twingrad.host(x, name), dims[0], inputs)


def _apply(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    outs = _find(name).apply(*inputs)
    return list(outs) if isinstance(outs, tuple) else [outs]


_LIBRARY = torch.library.Library("twingrad", "FRAGMENT")
_LIBRARY.define("host(Tensor[] inputs, str name) -> Tensor[]")
_LIBRARY.impl("host", _real, "CompositeExplicitAutograd")
torch.library.register_fake("twingrad::host", _fake, lib=_LIBRARY)
_LIBRARY.impl("host", _on_first_vmap, "Batched")
torch.library.register_vmap("twingrad::host", _on_vmap, lib=_LIBRARY)
_LIBRARY.define("op(Tensor[] inputs, str name) -> Tensor[]")
_LIBRARY.impl("op", _apply, "CompositeImplicitAutograd")
