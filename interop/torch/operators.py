"""The two operators of `torch.library` that stand for ops in the graphs of compilers.

``twingrad::host(Tensor[] inputs, str name) -> Tensor[]`` is the NumPy function of a host op:
opaque, with a fake implementation that promises shapes and dtypes.  Eager calls, torch.func,
torch.compile, torch.export and meta tensors all see one ordinary operator.  It has no
derivative of its own: the Function around it supplies the rules.

``twingrad::op(Tensor[] inputs, str name) -> Tensor[]`` is a whole op with its rules, in the
graph of ``torch.export``; the op's constants stand after its inputs.  Exported as its forward
code, an op would be differentiated by autodiff of that code.  It is a composite operator: torch
keeps it in the exported program and takes it apart in ``run_decompositions``, where only the
forward pass is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from twingrad.interop.numpy.binder import call_host as call_numpy
from twingrad.interop.op.framework import Arrays
from twingrad.interop.op.kernel import Kernel
from twingrad.interop.op.promises import promised
from twingrad.interop.torch.batched import on_first_vmap, on_vmap
from twingrad.interop.torch.constants import given_by_export
from twingrad.interop.torch.graphs.names import find, hold, name_of
from twingrad.interop.torch.graphs.traced import take_apart
from twingrad.interop.torch.memory import call_with_arrays
from twingrad.interop.torch.sharded import is_sharded, on_local_batches


def call_host(kernel: Kernel, inputs: Arrays) -> Arrays:
    """Call a host op's function once on the whole batch; inputs have one batch rank."""
    if is_sharded(inputs):
        return on_local_batches(lambda *x: call_host(kernel, x), inputs, kernel.plan(inputs))
    return tuple(torch.ops.twingrad.host(list(inputs), name_of(kernel)))


def _real(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    kernel = find(name).kernel
    device = inputs[0].device

    def call(*arrays: Any) -> Arrays:
        dtypes = promised(kernel.op.dtypes, arrays)
        return call_numpy(kernel, arrays, kernel.plan(arrays), dtypes)

    outs = call_with_arrays(call, inputs)
    return [torch.from_numpy(y).to(device) for y in outs]


def _fake(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    function = find(name)
    hold(function)
    kernel = function.kernel
    shapes, dtypes = kernel.plan(inputs).outputs, promised(kernel.op.dtypes, tuple(inputs))
    pairs = zip(shapes, dtypes, strict=True)
    return [inputs[0].new_empty(shape, dtype=getattr(torch, name)) for shape, name in pairs]


def _on_first_vmap(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    return on_first_vmap(lambda x: torch.ops.twingrad.host(x, name), inputs)


def _on_vmap(info: Any, dims: Any, inputs: Sequence[torch.Tensor], name: str) -> Any:
    return on_vmap(lambda x: torch.ops.twingrad.host(x, name), dims[0], inputs)


def _apply(inputs: Sequence[torch.Tensor], name: str) -> list[torch.Tensor]:
    function = find(name)
    count = len(function.kernel.op.names)
    arrays, constants = tuple(inputs[:count]), tuple(inputs[count:])
    with given_by_export(function.kernel.op, arrays, constants):
        outs = take_apart(function, arrays)
    return list(outs) if isinstance(outs, tuple) else [outs]


_LIBRARY = torch.library.Library("twingrad", "FRAGMENT")
_LIBRARY.define("host(Tensor[] inputs, str name) -> Tensor[]")
_LIBRARY.impl("host", _real, "CompositeExplicitAutograd")
torch.library.register_fake("twingrad::host", _fake, lib=_LIBRARY)
_LIBRARY.impl("host", _on_first_vmap, "Batched")
torch.library.register_vmap("twingrad::host", _on_vmap, lib=_LIBRARY)
_LIBRARY.define("op(Tensor[] inputs, str name) -> Tensor[]")
_LIBRARY.impl("op", _apply, "CompositeImplicitAutograd")
# under torch.func, in a program and around one, the Function goes through the transforms
_LIBRARY.impl("op", _apply, "FuncTorchDynamicLayerFrontMode")
