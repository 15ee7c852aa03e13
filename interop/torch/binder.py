"""The torch binder: ``bind(op)`` is a function of tensors, right under every transform.

How it is built, and why:

- One `torch.autograd.Function` per op and static parameters, in setup_context style, with
  its own vmap rule, which calls the op once on the whole batch.
- `torch.compiler.allow_in_graph` on the bound function: where Dynamo traces a Function
  inside ``torch.func.grad``, the rule is dropped without an error (pytorch#193279).
- `jvp` calls a second Function, made from the jvp rule: forward over forward through a
  Function's own jvp is zero without an error (pytorch#197867).
- Rules see inputs and real outputs only, both saved by autograd, so that second
  derivatives see every path.
- Host code runs behind one operator of `torch.library` (`torch.operators`), which compilers
  keep as a node; another one keeps a whole op with its rules in exported programs.
"""

from __future__ import annotations

import functools
import numbers
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.binding import describe, number_dtype, split_call
from twingrad.interop.op.definition import Op
from twingrad.interop.op.framework import DTYPES, Arrays, inexact, kind
from twingrad.interop.op.kernel import Kernel
from twingrad.interop.op.promises import follows
from twingrad.interop.op.signature import Plan, Shape
from twingrad.interop.op.statics.static import KEPT, plain
from twingrad.interop.op.structure.family import Family
from twingrad.interop.torch import family
from twingrad.interop.torch.call import call_rule
from twingrad.interop.torch.constants import constant
from twingrad.interop.torch.function import autocast_on, make_function, pull_back
from twingrad.interop.torch.fused.bound import bind_fused, least_of
from twingrad.interop.torch.graphs.names import register
from twingrad.interop.torch.graphs.traced import apply, fits, gone, outside, own_code
from twingrad.interop.torch.operators import call_host
from twingrad.interop.xp import torch as xp

_FULL = frozenset((torch.float32, torch.float64))
_EXAMPLES: dict[type, Any] = {torch.SymInt: 0, torch.SymFloat: 0.0, torch.SymBool: False}
_STRIDED = torch.strided
_NUMBERS = (numbers.Number, torch.SymInt, torch.SymFloat, torch.SymBool)


class _Torch:
    """The `Framework` of torch."""

    xp = xp
    call = staticmethod(call_rule)
    constant = staticmethod(constant)

    def host(self, kernel: Kernel, inputs: Arrays, plan: Plan) -> Arrays:
        return call_host(kernel, inputs)

    def transpose(
        self, linear: Callable[..., Arrays], like: Sequence[tuple[Shape, Any]], seeds: Arrays
    ) -> Arrays:
        zeros = tuple(x.new_zeros(shape) for shape, x in like)
        return pull_back(linear, zeros, seeds)

    # The convention of the rules is the plain transpose, J^T ct.  torch's gradients are
    # J^H ct, the conjugate of J^T conj(ct).  For real numbers both are the same.
    def from_framework(self, cotangent: torch.Tensor) -> torch.Tensor:
        return cotangent.conj().resolve_conj() if cotangent.is_complex() else cotangent

    def to_framework(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.conj().resolve_conj() if gradient.is_complex() else gradient


TORCH = _Torch()


def bind(op: Op, *, fused: bool | int = False) -> Any:
    """The op as a function of tensors; the same function for the same op.

    ``bind(op).Function`` is the bare `torch.autograd.Function`, with the default static
    parameters: its `apply` takes tensors of one floating dtype and returns all outputs.

    With ``fused=True`` eager calls on large arrays run an array op as kernels that torch.compile
    makes, see `twingrad.interop.torch.fused`; a number instead of True says what is large.  The
    first call that needs a kernel waits for it: 2 s for a small op, 10 s for a mixture op.

    Raises:
        ArgumentError: `fused` for a host op, which runs outside of torch.
    """
    least = least_of(fused)
    name = f"torch fused {least}" if fused else "torch"
    if name not in op.bound:
        if torch.compiler.is_dynamo_compiling():
            torch._dynamo.graph_break(
                msg=f"{op.label}: bind an op before a compiled function is called for the first "
                "time, not in it"
            )
        if fused:
            op.bound[name] = bind_fused(op, TORCH, least, bind, _make)
        else:
            op.bound[name] = family.make(op, bind) if isinstance(op, Family) else _make(op)
    return op.bound[name]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _make(op: Op, fuse: Callable[[Any], Any] | None = None) -> Any:
    count, visible, dtypes, on_host = len(op.names), op.visible, op.dtypes, bool(op.host)

    @functools.lru_cache(KEPT)
    def function(static: Any) -> Any:
        if fuse is not None:
            return fuse(static)
        made = make_function(Kernel(op, static), TORCH)
        register(made)
        return made

    @functools.cache
    def default() -> Any:
        return function(op.static({}))

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, torch.dtype | None]:
        if kwargs or len(args) != count:
            kwargs = {name: _concrete(value) for name, value in kwargs.items()}
            args, static = split_call(op, args, kwargs)
            target = function(static)
        else:
            target = default()
        if _ready(args):
            try:
                target.kernel.plan(args)
            except RuntimeError:  # nested tensors have no shape
                _device(op, args)
                raise
            return apply(target, args), None
        args, back, autocast = _prepare(op, args)
        if on_host and back is not None:
            target = function(replace(target.kernel.static, low=str(back).removeprefix("torch.")))
        target.kernel.plan(args)
        if autocast is None:
            return apply(target, args), back
        with torch.autocast(autocast, enabled=False):
            return apply(target, args), back

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        outs, back = (alive() or none)(args, kwargs)
        if isinstance(outs, torch.Tensor):
            outs = (outs,)
        if back is not None:
            outs = [
                y.to(back) if y.dtype == torch.float32 and follows(declared) else y
                for y, declared in zip(outs, dtypes, strict=True)
            ]
        return outs[0] if visible == 1 else tuple(outs[:visible])

    # Compiled graphs hold this function; what it calls is held by `bound`, and by the op.
    alive, none = weakref.ref(call), gone(op.label)
    torch.compiler.allow_in_graph(evaluate)

    # Dynamo traces the function that it is given itself, allowed in the graph or not.
    def bound(*args: Any, **kwargs: Any) -> Any:
        if kwargs and torch.compiler.is_dynamo_compiling() and not fits(op.label, kwargs):
            return outside(evaluate, args, kwargs)  # pyright: ignore[reportCallIssue]
        return evaluate(*args, **kwargs)

    own_code(bound, op)
    own_code(evaluate, op)

    def all_outputs(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)[0]

    describe(bound, op, "torch", all_outputs=all_outputs, of_static=function)
    if op.complete:
        bound.__dict__["Function"] = default()
    return bound


def _concrete(value: Any) -> Any:
    """A number for the symbol that a compiler puts in place of a changing parameter.

    Asking a symbol for its value makes the compiler guard on it: another value, another graph.
    """
    if isinstance(value, tuple):
        return tuple(map(_concrete, value))
    if isinstance(value, torch.SymFloat):
        return float(value)
    return int(value) if isinstance(value, torch.SymInt) else value


def _ready(args: tuple[Any, ...]) -> bool:
    """Whether the arguments can go to the Function as they are: the usual case, made fast."""
    first = args[0]
    if not isinstance(first, torch.Tensor):
        return False
    dtype, device = first.dtype, first.device
    if dtype not in _FULL or first.layout is not _STRIDED or autocast_on(device):
        return False
    for x in args[1:]:
        if not isinstance(x, torch.Tensor) or x.dtype is not dtype or x.device != device:
            return False
        if x.layout is not _STRIDED:
            return False
    return True


def _prepare(
    op: Op, args: tuple[Any, ...]
) -> tuple[tuple[torch.Tensor, ...], torch.dtype | None, str | None]:
    """Tensors of one device and computing precision.

    Also the dtype to give results back in, where that is a lower one, and the device type
    whose autocast is on.

    Raises:
        ArgumentError: an argument is no tensor or number, or tensors are on two devices.
    """
    args = tuple([plain(x) for x in args])
    device = _device(op, args)
    tensors = [x for x in args if isinstance(x, torch.Tensor) and inexact(x)]
    shaped = [x for x in tensors if x.dim()] or tensors  # 0-d tensors do not promote others
    dtypes = {x.dtype for x in shaped}
    low = functools.reduce(torch.promote_types, dtypes, next(iter(dtypes), torch.float32))
    bits = max((kind(d)[1] for d in dtypes), default=kind(torch.get_default_dtype())[1])
    bits = max(bits, 32)
    autocast = device.type if autocast_on(device) else None
    back = low if kind(low)[1] == 16 and autocast is None else None
    prepared = []
    for x in args:
        if isinstance(x, torch.Tensor):
            name = kind(x.dtype)[0]
            dtype = getattr(torch, DTYPES[name, bits]) if name else x.dtype
            prepared.append(x.to(device=device, dtype=dtype))
        else:
            # a symbol is not asked for its value: a compiler would make one graph for each
            example = _EXAMPLES.get(type(x), x)
            dtype = getattr(torch, number_dtype(op, example, bits))
            prepared.append(torch.full((), x, dtype=dtype, device=device))
    return tuple(prepared), back, autocast


def _device(op: Op, args: tuple[Any, ...]) -> torch.device:
    found: dict[torch.device, str] = {}
    for name, x in zip(op.names, args, strict=True):
        if isinstance(x, torch.Tensor):
            if x.layout is not _STRIDED or x.is_quantized or x.is_nested:
                what = "nested" if x.is_nested else "quantized" if x.is_quantized else x.layout
                raise ArgumentError(
                    f"{op.label}: {name} is a tensor of another kind, {what}; expected a dense "
                    "one, as its to_dense(), to_padded_tensor() or dequantize() gives"
                )
            if x.dim() or x.device.type != "cpu":
                found.setdefault(x.device, name)
            if x.dtype.is_floating_point and not inexact(x):
                raise ArgumentError(
                    f"{op.label}: {name} has dtype {x.dtype}; expected float16, bfloat16, "
                    "float32 or float64"
                )
        elif not isinstance(x, _NUMBERS):
            hint = "; convert it with torch.as_tensor" if hasattr(x, "__len__") else ""
            raise ArgumentError(
                f"{op.label}: {name} is a {type(x).__name__}; "
                f"expected a torch.Tensor or a number{hint}"
            )
    if len(found) > 1:
        where = ", ".join(f"{name} on {device}" for device, name in found.items())
        raise ArgumentError(f"{op.label}: the arguments are on different devices: {where}")
    if found:
        return next(iter(found))
    scalars = (x.device for x in args if isinstance(x, torch.Tensor))
    return next(scalars, torch.get_default_device())
