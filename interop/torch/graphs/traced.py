"""Functions while a compiler traces them: they hold no op, and export makes one node of them.

What a compiler keeps of a trace holds the autograd nodes that it saw.  Those of a usual Function
hold the op, with all that it closes over, for as long as the compiled code is kept.  So a trace
gets a twin of the Function, which finds it where it is and says so where it is gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.compiler import is_exporting

from twingrad.interop.errors import ArgumentError, ExportError
from twingrad.interop.op.framework import Arrays
from twingrad.interop.torch.constants import for_export
from twingrad.interop.torch.graphs.names import hold, name_of

_FAKE = torch._C._TorchDispatchModeKey.FAKE


def apply(function: Any, inputs: Arrays) -> Any:
    """``function.apply``, without holding on to the function in what is traced."""
    if torch._C._len_torch_dispatch_stack() and torch._C._get_dispatch_mode(_FAKE) is not None:
        if is_exporting() and hasattr(function, "kernel"):
            return _call_exported(function, inputs)
        return take_apart(function, inputs)
    return function.apply(*inputs)


def take_apart(function: Any, inputs: Arrays) -> Any:
    """What the node of an exported graph stands for."""
    if "twin" not in vars(function):
        function.twin = _make_twin(function, function.__name__)
    return function.twin.apply(*inputs)


def _call_exported(function: Any, inputs: Arrays) -> Any:
    """The op as one node of an exported graph, also under vmap or jvp."""
    levels = {level.key() for level in get_interpreter_stack() or ()}
    if TransformType.Grad in levels or len(levels) > 1:
        raise ExportError(
            f"{function.kernel.op.label}: torch.export takes vmap or jvp inside of a program, but "
            "no grad, vjp or Jacobian. Export the program without, and apply these to "
            "program.module()"
        )
    hold(function)
    given = [*inputs, *for_export(function.kernel.op, inputs)]
    outs = torch.ops.twingrad.op(given, name_of(function.kernel))
    return outs[0] if len(outs) == 1 else tuple(outs)


def gone(label: str) -> Callable[..., Any]:
    """What a graph calls in the place of an op that is gone."""

    def raise_gone(*_: Any) -> Any:
        raise ArgumentError(
            f"{label}: this graph calls an op that is gone; keep the op, or what bind returned "
            "for it, as long as the graph"
        )

    return raise_gone


def fits(label: str, kwargs: dict[str, Any]) -> bool:
    """Whether Dynamo, which runs this, can put the static parameters into a graph."""
    for name, value in kwargs.items():
        if isinstance(value, set | frozenset) or callable(value):
            torch._dynamo.graph_break(
                msg=f"{label}: the static parameter {name!r} is a {type(value).__name__}, which "
                "torch.compile cannot put into a graph. Compile without fullgraph=True, or make "
                "the op in a function that takes this value, so that it is no parameter"
            )
            return False
    return True


@torch.compiler.disable  # type: ignore[untyped-decorator]
def outside(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The call, left out of the graph."""
    return function(*args, **kwargs)


def own_code(closure: Any, op: Any) -> None:
    """Give a closure a code object of its own.

    What Dynamo compiled is kept by code object: with a shared one, the second op that is
    compiled would run the first.
    """
    closure.__code__ = closure.__code__.replace(co_name=op.name.replace(".", "_"))


def _make_twin(function: Any, label: str) -> Any:
    held = weakref.ref(function)
    twin: Any

    def find() -> Any:
        return held() or gone(label)()

    rules: dict[str, Callable[..., Any]] = {
        "forward": lambda *inputs: find().forward(*inputs),
        "setup_context": lambda ctx, inputs, output: find().setup_context(ctx, inputs, output),
        "backward": lambda ctx, *cts: find().backward(ctx, *cts),
        "jvp": lambda ctx, *dots: find().jvp(ctx, *dots),
        "vmap": lambda info, in_dims, *inputs: find().batched(twin, in_dims, inputs),
    }
    members: dict[str, Any] = {key: staticmethod(rule) for key, rule in rules.items()}
    twin = type(label, (torch.autograd.Function,), members)
    return twin
