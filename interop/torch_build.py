"""The `torch.autograd.Function` class: what it saves, how it is batched, what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from twingrad.interop.framework import Arrays, inexact
from twingrad.interop.signature import Signature


def build(
    name: str,
    signature: Signature,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    jvp: Callable[..., Any],
    keep: Callable[[str], tuple[bool, ...]],
    **attributes: Any,
) -> Any:
    """The Function class itself, with a vmap rule that follows from the signature.

    `keep` says for its vjp and its jvp which of the inputs and outputs they read.  For the
    others they find something of the same shape and dtype that takes no memory; outputs that it
    does not mention they do not find.
    """

    function: Any

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        outs = output if isinstance(output, tuple) else (output,)
        fixed = [y for y in outs if not inexact(y)]
        if fixed:
            ctx.mark_non_differentiable(*fixed)
        arrays = (*inputs, *outs)
        ctx.save_for_backward(*_saved(arrays, keep("vjp")))
        ctx.save_for_forward(*_saved(arrays, keep("jvp")))
        ctx.set_materialize_grads(False)

    def batched(function: Any, in_dims: Any, inputs: Arrays) -> Any:
        outs = function.apply(*_lift(signature, in_dims, inputs))
        return outs, (0,) * len(outs) if isinstance(outs, tuple) else 0

    rules: dict[str, Callable[..., Any]] = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "jvp": jvp,
        "vmap": lambda info, in_dims, *inputs: batched(function, in_dims, inputs),
        "batched": batched,
    }
    vars(forward)["__signature__"] = _AsGiven()
    members: dict[str, Any] = {key: staticmethod(rule) for key, rule in rules.items()}
    function = type(name, (torch.autograd.Function,), {**members, **attributes})
    return function


def _saved(arrays: Arrays, keep: tuple[bool, ...]) -> list[torch.Tensor]:
    pairs = zip(arrays, keep, strict=False)
    return [x if kept else x.new_empty_strided(x.shape, (0,) * x.dim()) for x, kept in pairs]


class _AsGiven(inspect.Signature):
    """The signature of a forward that takes its arguments as they come.

    `Function.apply` binds its arguments to the signature of forward at every call, which
    costs more than the rest of a small op; there are no defaults here that it could find.
    """

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        return _Arguments(args, kwargs)


class _Arguments(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def apply_defaults(self) -> None: ...


def _lift(signature: Signature, in_dims: Any, inputs: Arrays) -> list[torch.Tensor]:
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
