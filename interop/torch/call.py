"""How torch calls a forward function or a rule: what these write in place must not be lost.

An op must leave alone the arrays that it is given: torch counts the writes to a tensor, and
the counts are compared.  Memory of its own it may write to, with one exception.
`torch.func.linearize` makes a graph of the tangent, computes once what does not depend on the
tangents, and only then, at every call, carries out the writes.  So a write into a constant
comes too late for those who read it, and adds up from call to call.  Hence in there

- what does not depend on a tangent, as a forward function does not, is left out of the graph;
- a rule that writes into a constant raises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, peek_interpreter_stack
from torch._functorch import eager_transforms
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.fx.experimental import proxy_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from twingrad.interop.errors import RuleError
from twingrad.interop.op.framework import Arrays
from twingrad.interop.xp.torch_places import on

_MODES = torch._C._TorchDispatchModeKey
_LINEARIZE = eager_transforms.linearize.__code__
_WAY = "make a new one, `x = x + 1` in place of `x += 1`"
# how torch says that it refuses a write: to a leaf or a captured tensor, to one that is expanded,
# to an inference tensor
_REFUSED = ("in-place operation", "written-to tensor", "Inplace update")


def call_rule(
    label: str, what: str, rule: Callable[..., Any], arrays: Arrays, args: Any, keywords: Any
) -> Any:
    """``rule(*args, **keywords)``, which must not change any of the arrays; args[0] is `xp`.

    Raises:
        RuleError: it did, or, inside `torch.func.linearize`, wrote into a constant.
    """
    if not arrays[0].is_cpu:
        args = (on(arrays[0].device), *args[1:])
    innermost = tuple([_innermost(x) for x in arrays]) if peek_interpreter_stack() else arrays
    counted = True
    try:
        before = [x._version for x in innermost]
    except RuntimeError:  # torch does not count the writes to inference tensors
        counted, innermost = False, tuple([x for x in innermost if not x.is_inference()])
        before = [x._version for x in innermost]
    try:
        if not counted:  # but refuses them, outside of inference mode
            with torch.inference_mode(False), torch.no_grad():
                found = rule(*args, **keywords)
        elif torch._C._get_dispatch_mode(_MODES.PROXY) is not None and _in_linearize():
            found = _call_in_linearize(label, what, rule, arrays, args, keywords)
        else:
            found = rule(*args, **keywords)
    except RuntimeError as error:
        if not any(word in str(error) for word in _REFUSED):
            raise
        raise RuleError(f"{label}: {what} changed an array in place; {_WAY}") from error
    if before != [x._version for x in innermost]:
        raise RuleError(f"{label}: {what} changed an array that it was given; {_WAY}")
    return found


def _innermost(x: torch.Tensor) -> torch.Tensor:
    while is_functorch_wrapped_tensor(x):
        x = get_unwrapped(x)
    return x


def _in_linearize() -> bool:
    if torch._C._get_dispatch_mode(_MODES.FUNCTIONAL) is not None:
        return False
    frame = sys._getframe()
    while frame is not None and frame.f_code is not _LINEARIZE:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def _call_in_linearize(
    label: str, what: str, rule: Callable[..., Any], arrays: Arrays, args: Any, keywords: Any
) -> Any:
    watch = _Writes(f"{label}: {what}")
    if not any(watch.moves(x) for x in arrays):
        with proxy_tensor.disable_proxy_modes_tracing():
            return rule(*args, **keywords)
    with watch:
        return rule(*args, **keywords)


class _Writes(TorchDispatchMode):
    """Raises where a tensor is written to that does not depend on what the graph is given."""

    def __init__(self, who: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.who = who
        mode: Any = torch._C._get_dispatch_mode(_MODES.PROXY)
        self.tracer = mode.tracer

    def moves(self, x: Any) -> bool:
        """Whether a tensor, or its tangent, depends on the graph's arguments."""
        x = _innermost(x)
        if self._moves(x):
            return True  # without a look at the tangent, which fails where torch itself writes one
        if not torch._C._is_fwd_grad_enabled():
            return False
        with temporarily_clear_interpreter_stack():  # or the levels inside would answer
            tangent = forward_ad.unpack_dual(x, level=0).tangent
        return tangent is not None and self._moves(tangent)

    def _moves(self, x: torch.Tensor) -> bool:
        proxy: Any = proxy_tensor.get_proxy_slot(x, self.tracer, None)
        return proxy is not None and _reaches_argument(proxy.proxy.node)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        traced = torch._C._get_dispatch_mode(_MODES.PROXY) is not None
        if traced and func._schema.is_mutable:
            for x, parameter in zip(args, func._schema.arguments, strict=False):
                written = parameter.alias_info is not None and parameter.alias_info.is_write
                if written and not self.moves(x):
                    raise RuleError(
                        f"{self.who} writes in place ({func}) into an array that does not depend "
                        "on a tangent, which torch.func.linearize gets wrong; make that array "
                        "without writing, by xp.stack, xp.where or sums, or use torch.func.jvp"
                    )
        return func(*args, **(kwargs or {}))


def _reaches_argument(node: Any) -> bool:
    seen, waiting = set(), [node]
    while waiting:
        node = waiting.pop()
        if node.op == "placeholder":
            return True
        if node not in seen:
            seen.add(node)
            waiting.extend(node.all_input_nodes)
    return False
