"""What ``bind(op, fused=True)`` returns: the op with kernels, the plain op for who traces it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.binding import describe
from twingrad.interop.op.definition import Op
from twingrad.interop.op.framework import Framework
from twingrad.interop.op.structure.family import Family
from twingrad.interop.torch import family
from twingrad.interop.torch.function import make_function
from twingrad.interop.torch.fused.compiled import Budget
from twingrad.interop.torch.fused.kernel import FusedKernel
from twingrad.interop.torch.graphs.traced import own_code

# Numbers in the largest array of a call.  Two kernels, of value and gradient, cost 90 us more than
# they compute.  An op of few operations, log1mexp, is faster with them from 30,000 numbers on, and
# from here on no more than a tenth slower; the larger ops of the package are faster from 2 on.
LEAST = 16384


def least_of(fused: bool | int) -> int:
    """From how many numbers on kernels are used."""
    return LEAST if fused is True else max(int(fused), 1)


def bind_fused(
    op: Op, fw: Framework, least: int, bind: Callable[..., Any], make: Callable[..., Any]
) -> Any:
    """The op as a function of tensors, from the binder of plain ones and what it is made of.

    Raises:
        ArgumentError: it is a host op.
    """
    if op.host:
        raise ArgumentError(
            f"{op.label}: fused=True is for ops of xp calls; the function of this one runs "
            "outside of torch, and there is nothing to fuse. Bind it without"
        )
    if isinstance(op, Family):
        bound = family.make(op, functools.partial(bind, fused=least))
    else:
        bound = _choice(op, bind(op), make(op, _fusing(op, fw, least)))
    name = f"for_torch_fused_{least}"
    bound.__qualname__ = f"{op.__qualname__}.{name}"  # by which pickle finds it
    bound.__dict__[name] = bound
    return bound


def _fusing(op: Op, fw: Framework, least: int) -> Callable[[Any], Any]:
    """The function that makes the op's Function for a value of the static parameters."""
    budget = Budget(op.label, least)

    def make(static: Any) -> Any:
        kernel = FusedKernel(op, static, fw, budget)
        return make_function(kernel, fw, kernel.fuse)

    return make


def _choice(op: Op, plain: Callable[..., Any], eager: Callable[..., Any]) -> Any:
    """The fused function, that compilers, exports and other traces see as the plain one."""

    def bound(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
            return plain(*args, **kwargs)
        return eager(*args, **kwargs)

    own_code(bound, op)
    kept = {key: value for key, value in vars(eager).items() if key not in ("op", "for_torch")}
    return describe(bound, op, "torch", **kept)
