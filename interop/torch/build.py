"""The `torch.autograd.Function` class: what it saves, how it is batched, what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._functorch import unwrap_if_dead
from torch._functorch.autograd_function import custom_function_call

from twingrad.interop.op.framework import Arrays, inexact
from twingrad.interop.op.signature import Signature


def build(
    name: str,
    signature: Signature,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    jvp: Callable[..., Any],
    keep: Callable[[], tuple[tuple[bool, ...], tuple[bool, ...]]],
    shaped: Sequence[int] = (),
    **attributes: Any,
) -> Any:
    """The Function class itself, with a vmap rule that follows from the signature.

    `keep` says for its vjp and its jvp which of the inputs and outputs they read.  For the
    others they find something of the same shape and dtype that takes no memory; outputs that it
    does not mention they do not find.  The results have the shapes of the `shaped` inputs, if there
    are any, and otherwise those that the signature says.
    """

    function: Any

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        outs = output if isinstance(output, tuple) else (output,)
        fixed = [y for y in outs if not inexact(y)]
        if fixed:
            ctx.mark_non_differentiable(*fixed)
        arrays, (for_vjp, for_jvp) = (*inputs, *outs), keep()
        saved = _saved(arrays, for_vjp)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*(saved if for_jvp == for_vjp else _saved(arrays, for_jvp)))
        ctx.set_materialize_grads(False)

    def batched(function: Any, in_dims: Any, inputs: Arrays) -> Any:
        outs = function.apply(*_lift(signature, in_dims, inputs, shaped))
        return outs, (0,) * len(outs) if isinstance(outs, tuple) else 0

    rules: dict[str, Callable[..., Any]] = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "jvp": jvp,
        "vmap": lambda info, in_dims, *inputs: batched(function, in_dims, inputs),
        "batched": batched,
    }
    members: dict[str, Any] = {key: staticmethod(rule) for key, rule in rules.items()}
    members["apply"] = classmethod(_apply)
    function = type(name, (torch.autograd.Function,), {**members, **attributes})
    return function


def _apply(cls: Any, *inputs: torch.Tensor) -> Any:
    """`Function.apply` for tensors as they come.

    torch's own binds its arguments to the signature of forward at every call, which costs more
    than the rest of a small op.
    """
    if torch._C._are_functorch_transforms_active():
        return custom_function_call(cls, *inputs)  # pyright: ignore[reportCallIssue]
    plain: Any = super(torch.autograd.Function, cls)
    return plain.apply(*map(unwrap_if_dead, inputs))


def _saved(arrays: Arrays, keep: tuple[bool, ...]) -> Sequence[torch.Tensor]:
    if all(keep):
        return arrays[: len(keep)]
    pairs = zip(arrays, keep, strict=False)
    return [x if kept else x.new_empty_strided(x.shape, (0,) * x.dim()) for x, kept in pairs]


def _lift(
    signature: Signature, in_dims: Any, inputs: Arrays, shaped: Sequence[int]
) -> list[torch.Tensor]:
    """Put the vmapped dimension in front, as one more batch dimension of each input."""
    shapes = tuple(
        x.shape if dim is None else x.shape[:dim] + x.shape[dim + 1 :]
        for x, dim in zip(inputs, in_dims, strict=True)
    )
    aligned = signature.plan(shapes).aligned
    lifted = []
    for x, dim, shape in zip(inputs, in_dims, aligned, strict=True):
        if dim is not None:
            x = x.movedim(dim, 0)
            if x.dim() <= len(shape):
                x = x.reshape((x.shape[0], *shape))
        lifted.append(x)
    if shaped:
        sizes = [x.shape[d] for x, d in zip(inputs, in_dims, strict=True) if d is not None]
        for i in shaped:
            if in_dims[i] is None:
                lifted[i] = lifted[i].expand(sizes[0], *lifted[i].shape)
    return lifted


def fresh(outs: Arrays, inputs: Arrays) -> Any:
    """The outputs as a Function must return them: with memory of their own.

    torch treats a Function that returns a view of an input as a view operation, and forward
    mode writes tangents in the layout of their primals, which an expanded one cannot take.
    """
    fresh = tuple([resolved(y.clone() if _borrowed(y, inputs) else y) for y in outs])
    return fresh[0] if len(fresh) == 1 else fresh


def resolved(y: torch.Tensor) -> torch.Tensor:
    """The tensor with its numbers in memory: with a lazy conjugate `y.numpy()` fails."""
    return y.resolve_conj().resolve_neg() if y.is_conj() or y.is_neg() else y


def _borrowed(y: torch.Tensor, inputs: Arrays) -> bool:
    if not y._is_view():
        return any(y is x for x in inputs)
    bases = [x if x._base is None else x._base for x in inputs]
    return 0 in y.stride() or not y.numel() or any(y._base is base for base in bases)
