"""Constants as tensors: one real tensor for each device and precision, also while torch traces.

A tensor that is made under a mode or a transform of torch belongs to it.  So it is made outside of
them all, and what traces gets it as torch's own constants, such as ``torch.tensor(1.0)``, come in.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from twingrad.interop.op.framework import DTYPES, Arrays, kind, precision
from twingrad.interop.op.statics.constants import Constant
from twingrad.interop.torch.memory import call_with_arrays
from twingrad.interop.torch.sharded import is_sharded, replicated

_PROGRAM = threading.local()
_NO_DEVICE = (RuntimeError, AssertionError, NotImplementedError)


def constant(constant: Constant, like: torch.Tensor, bits: int) -> torch.Tensor:
    """See `Framework.constant`."""
    bits = bits or max(kind(torch.get_default_dtype())[1], 32)
    found = constant.made.get((like.device, bits))
    if found is None:
        found = _make(constant, like.device, bits)
    traced = torch._C._len_torch_dispatch_stack()
    if not traced and type(like) is torch.Tensor and found.device == like.device:
        return found
    if traced:
        known = getattr(_PROGRAM, "constants", {}).get((constant, bits))
        found = torch.ops.aten.lift_fresh(found) if known is None else known
        found = found.to(like.device)
    if is_sharded((like,)):
        found = replicated(found, like)
    return constant.hand(found)  # type: ignore[no-any-return]


def for_export(op: Any, inputs: Arrays) -> list[torch.Tensor]:
    """The constants that the op's function takes, for the node of an exported program.

    torch loses those that it first meets where it takes the node apart.
    """
    names, bits = op.takes.get("function", ()), precision(inputs)
    return [constant(op.constants[name], inputs[0], bits) for name in names]


@contextlib.contextmanager
def given_by_export(op: Any, inputs: Arrays, constants: Arrays) -> Iterator[None]:
    """While a program is traced, the op's constants are those that were given with its node."""
    names, bits = op.takes.get("function", ()), precision(inputs)
    pairs = zip(names, constants, strict=False)  # none in a program of before
    before = getattr(_PROGRAM, "constants", {})
    _PROGRAM.constants = {(op.constants[name], bits): x for name, x in pairs}
    try:
        yield
    finally:
        _PROGRAM.constants = before


def _make(constant: Constant, device: torch.device, bits: int) -> torch.Tensor:
    """The tensor, on the CPU where there is no such device, as in a program for another machine."""
    name, _ = kind(constant.array.dtype)
    dtype = getattr(torch, DTYPES[name, bits]) if name else None
    with (
        _disable_current_modes(),
        temporarily_clear_interpreter_stack(),
        torch.inference_mode(False),
    ):
        made = torch.from_numpy(constant.array.copy()).to(dtype)
        try:
            made = made.to(device)
        except _NO_DEVICE:
            return made
        constant.made[device, bits] = constant.hand(made)
    return made


def tensors_of(op: Any) -> list[torch.Tensor]:
    """What was made of an op's constants: nobody else may get it."""
    made = [x for c in op.constants.values() if c for x in c.made.values()]
    return [x for x in made if isinstance(x, torch.Tensor)]


def read(value: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor.

    Raises:
        ValueError: it has or may have a gradient, or no numbers yet.
    """
    if value.requires_grad:
        raise ValueError("is a tensor that requires a gradient")
    if is_functorch_wrapped_tensor(value) or torch._C._len_torch_dispatch_stack():
        raise ValueError("is a tensor inside a transform or a trace of torch")
    if _moves(value):
        raise ValueError("is a tensor with a tangent")
    if value.layout is not torch.strided or value.is_nested or value.is_quantized:
        raise ValueError("is a tensor of another kind than dense")
    if is_sharded((value,)) or value.is_meta:
        raise ValueError("is a tensor without all of its numbers here")
    found: Any = call_with_arrays(lambda array: array.copy(), (value,))
    return found  # type: ignore[no-any-return]


def _moves(value: torch.Tensor) -> bool:
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(value).tangent is not None
