"""The operator of host ops under vmap: one call for the whole batch.

`torch.func` reaches it only where a graph holds the bare operator, as an exported program does;
elsewhere the Function around it has batched its arguments.  ``is_grads_batched=True``, and with
it ``torch.autograd.functional.jacobian(vectorize=True)``, still run on torch's first vmap, which
knows no Functions: its tensors arrive here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import _add_batch_dim, _remove_batch_dim  # pyright: ignore[reportPrivateImportUsage]

Tensors = Sequence[torch.Tensor]


def on_first_vmap(call: Callable[[Tensors], Tensors], inputs: Tensors) -> list[torch.Tensor]:
    """The call on tensors of torch's first vmap, which have one batch rank.

    Each of its levels becomes one more batch dimension in front, of size 1 for a tensor that is
    not batched there.
    """
    depth = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    for level in range(depth, 0, -1):
        inputs = [_remove_batch_dim(x, level, 1, 0) for x in inputs]
    outs = list(call(inputs))
    for level in range(1, depth + 1):
        outs = [y[0] if y.shape[0] == 1 else _add_batch_dim(y, 0, level) for y in outs]
    return outs


def on_vmap(call: Callable[[Tensors], Tensors], dims: Any, inputs: Tensors) -> Any:
    """The call on the tensors of `torch.func.vmap`, with the dimensions of the results."""
    lifted = [
        x[None] if dim is None else x.movedim(dim, 0) for x, dim in zip(inputs, dims, strict=True)
    ]
    outs = list(call(lifted))
    return outs, [0] * len(outs)
