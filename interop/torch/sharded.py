"""Host ops on `torch.distributed.tensor.DTensor`: each process calls the function on its part.

Array ops need nothing here: their forward and rules are made of torch operations, which know
how to work on DTensors.  A host function is opaque, but independent along its batch: where
the batch is sharded each process calls it on its own samples, and a sharded core dimension
is gathered first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from twingrad.interop.op.framework import Arrays
from twingrad.interop.op.signature import Plan


def is_sharded(inputs: Arrays) -> bool:
    """Whether an input is a DTensor; it does not import torch.distributed."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(isinstance(x, module.DTensor) for x in inputs)


def on_local_batches(function: Callable[..., Arrays], inputs: Arrays, plan: Plan) -> Arrays:
    """Apply a function of tensors with one batch rank to the local parts of DTensors.

    All inputs are sharded alike along the batch dimensions, as the first sharded one among
    them is; one that has size 1 there is replicated, and so is every core dimension.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard

    sharded: list[Any] = [x for x in inputs if isinstance(x, DTensor)]
    mesh = sharded[0].device_mesh
    dims = [_batch_dim(sharded, i, plan) for i in range(mesh.ndim)]

    def placed(x: Any) -> Any:
        places = [Replicate() if dim is None or x.shape[dim] == 1 else Shard(dim) for dim in dims]
        if not isinstance(x, DTensor):
            x = DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return x.redistribute(mesh, places).to_local()

    outs = function(*map(placed, inputs))
    places = [Replicate() if dim is None else Shard(dim) for dim in dims]
    return tuple(
        DTensor.from_local(y, mesh, places, run_check=False, shape=size, stride=_strides(size))
        for y, size in zip(outs, map(torch.Size, plan.outputs), strict=True)
    )


def _batch_dim(sharded: list[Any], mesh_dim: int, plan: Plan) -> int | None:
    """The batch dimension that is sharded along a dimension of the mesh, if one is."""
    found = (x.placements[mesh_dim] for x in sharded)
    dims = [place.dim for place in found if place.is_shard()]
    return next((dim for dim in dims if dim < len(plan.batch) and plan.batch[dim] > 1), None)


def _strides(shape: Any) -> Any:
    strides, size = [], 1
    for n in reversed(shape):
        strides.append(size)
        size *= n
    return tuple(reversed(strides))


def replicated(x: torch.Tensor, like: Any) -> Any:
    """A tensor that every process has, as a DTensor on the mesh of another one."""
    from torch.distributed.tensor import DTensor, Replicate

    places = [Replicate()] * like.device_mesh.ndim
    return DTensor.from_local(x, like.device_mesh, places, run_check=False)
