"""`torch.autograd.Function` classes: one for an op, one for what autodiff makes of a rule."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch import eager_transforms
from torch.autograd import forward_ad

from twingrad.interop.op.framework import Arrays, Framework, inexact
from twingrad.interop.op.kernel import Kernel
from twingrad.interop.op.rules.reads import kept
from twingrad.interop.op.signature import Signature
from twingrad.interop.torch.build import build, fresh, resolved
from twingrad.interop.torch.constants import tensors_of
from twingrad.interop.torch.graphs.traced import apply


def make_function(
    kernel: Kernel, fw: Framework, fuse: Callable[..., Callable[..., Arrays]] | None = None
) -> Any:
    """The Function of an op: forward, vjp and jvp are its hand-written ones.

    `fuse` makes of a jvp rule, with its signature, what evaluates it.
    """
    op = kernel.op
    n_in = len(op.names)
    tangents: dict[Any, Any] = {}

    def forward(*inputs: torch.Tensor) -> Any:
        outs = kernel.evaluate(fw, inputs)
        return fresh(outs, (*inputs, *tensors_of(op)) if op.constants else inputs)

    def backward(ctx: Any, *cts: torch.Tensor | None) -> Any:
        if not any(ctx.needs_input_grad):
            return (None,) * n_in
        saved = ctx.saved_tensors
        inputs, wanted = saved[:n_in], ctx.needs_input_grad
        targets = [x.shape if want else None for x, want in zip(inputs, wanted, strict=True)]
        if not autocast_on(saved[0]):
            return tuple(kernel.pull(fw, cts, saved[n_in:], inputs, targets))
        with torch.autocast(saved[0].device.type, enabled=False):
            return tuple(kernel.pull(fw, cts, saved[n_in:], inputs, targets))

    def jvp(ctx: Any, *dots: torch.Tensor | None) -> Any:
        saved = _primals(ctx.saved_tensors)
        moves = tuple([inexact(y) for y in saved[n_in:]])
        if not any(moves):
            return None if len(moves) == 1 else (None,) * len(moves)
        live = tuple(dot is not None and inexact(x) for dot, x in zip(dots, saved, strict=False))
        key = live, moves
        if key not in tangents:
            tangents[key] = _tangent_function(kernel, fw, live, moves, fuse)
        moving = [dot for dot, alive in zip(dots, live, strict=True) if alive]
        if not autocast_on(saved[0]):
            found = apply(tangents[key], (*saved, *moving))
        else:
            with torch.autocast(saved[0].device.type, enabled=False):
                found = apply(tangents[key], (*saved, *moving))
        if all(moves):
            return found
        given = iter(found if isinstance(found, tuple) else (found,))
        return tuple([next(given) if move else None for move in moves])

    rules: list[Any] = [None, None]
    found: list[Any] = []

    def keep() -> Any:
        if rules[0] is not op.vjp or rules[1] is not op.jvp or not found:  # they can be set again
            rules[:], found[:] = (op.vjp, op.jvp), (kept(op, "vjp"), kept(op, "jvp"))
        return found

    return build(op.name, kernel.signature, forward, backward, jvp, keep, kernel=kernel)


def make_autodiff(
    name: str,
    signature: Signature,
    function: Callable[..., Arrays],
    run: Callable[..., Arrays] | None = None,
    shaped: Sequence[int] = (),
) -> Any:
    """A Function whose derivatives, of every order, are those of the given function.

    Its jvp is another such Function: written out in the jvp, the tangent would have no
    derivative in an outer forward mode.  Where `run` is given, that evaluates it.  For `shaped`
    see `build`.
    """
    pushes: dict[Any, Any] = {}
    evaluate = function if run is None else run

    def forward(*args: torch.Tensor) -> Any:
        return fresh(evaluate(*args), args)

    def backward(ctx: Any, *cts: torch.Tensor | None) -> Any:
        args, wanted = ctx.saved_tensors, ctx.needs_input_grad
        if all([ct is None for ct in cts]):
            return (None,) * len(args)
        live = [i for i, want in enumerate(wanted) if want]
        moving = tuple(args[i] for i in live)
        gradients = pull_back(_restrict(function, args, live), moving, cts)
        found = dict(zip(live, map(resolved, gradients), strict=True))
        return tuple(found.get(i) for i in range(len(args)))

    def jvp(ctx: Any, *dots: torch.Tensor | None) -> Any:
        args = _primals(ctx.saved_tensors)
        live = tuple(i for i, dot in enumerate(dots) if dot is not None)
        if live not in pushes:
            pushes[live] = _push_function(name, signature, function, live, shaped)
        return apply(pushes[live], (*args, *[dots[i] for i in live]))

    inputs_only = (True,) * len(signature.inputs)
    return build(
        name, signature, forward, backward, jvp, lambda: (inputs_only, inputs_only), shaped
    )


def _primals(saved: Arrays) -> Arrays:
    """What a jvp works on: the saved tensors without the tangents that they still carry.

    torch runs a jvp with forward mode off, but torch.func.grad, by which a vjp is transposed,
    turns it on again: an op that its own vjp calls would then call its jvp, without an end.
    """
    return tuple([forward_ad.unpack_dual(x).primal for x in saved])


def pull_back(function: Callable[..., Arrays], inputs: Arrays, cts: Sequence[Any]) -> Arrays:
    """The vjp of a function at the inputs; a cotangent that is None is zero.

    It is written as a gradient: where an input is not used, the pull-back of torch.func.vjp
    makes its zeros after its level has ended, and dies of that inside vmap.
    """

    def loss(*moving: torch.Tensor) -> torch.Tensor:
        terms = []
        for ct, y in zip(cts, function(*moving), strict=True):
            if ct is not None:
                term = torch.sum(ct.conj() * y)
                terms.append(term.real if term.is_complex() else term)
        return functools.reduce(torch.add, terms)

    return tuple(torch.func.grad(loss, argnums=tuple(range(len(inputs))))(*inputs))


def _tangent_function(
    kernel: Kernel,
    fw: Framework,
    live: tuple[bool, ...],
    moves: tuple[bool, ...],
    fuse: Callable[..., Callable[..., Arrays]] | None,
) -> Any:
    """The jvp rule of an op: (inputs, outputs, live tangents) -> tangents of what moves."""
    n_in, n_out = len(live), len(kernel.op.signature.outputs)

    def push(*args: torch.Tensor) -> Arrays:
        moving = iter(args[n_in + n_out :])
        dots = tuple(next(moving) if alive else None for alive in live)
        found = kernel.push(fw, dots, args[n_in : n_in + n_out], args[:n_in])
        return tuple(itertools.compress(found, moves))

    signature = kernel.tangent_signature(live)
    moving_outputs = tuple(itertools.compress(signature.outputs, moves))
    signature = Signature(signature.inputs, moving_outputs)
    run = None if fuse is None else fuse(signature, push)
    return make_autodiff(f"{kernel.op.name}_jvp", signature, push, run)


def _push_function(
    name: str,
    signature: Signature,
    function: Callable[..., Arrays],
    live: tuple[int, ...],
    shaped: Sequence[int],
) -> Any:
    """The derivative of `function` along tangents of its `live` arguments."""
    n_in = len(signature.inputs)

    def push(*args: torch.Tensor) -> Any:
        # Under vmap a tangent can have batch dimensions that its primal lacks, or the reverse.
        shapes = extended.plan(tuple([x.shape for x in args])).aligned
        args = tuple([x.reshape(shape) for x, shape in zip(args, shapes, strict=True)])
        pairs = [
            torch.broadcast_tensors(args[i], dot) for i, dot in zip(live, args[n_in:], strict=True)
        ]
        primals, dots = zip(*[(x.contiguous(), dot) for x, dot in pairs], strict=True)
        with _inside_dual_level():
            return torch.func.jvp(_restrict(function, args[:n_in], live), primals, dots)[1]

    inputs = signature.inputs + tuple(signature.inputs[i] for i in live)
    extended = Signature(inputs, signature.outputs)
    return make_autodiff(f"{name}_jvp", extended, push, shaped=shaped)


@contextlib.contextmanager
def _inside_dual_level() -> Iterator[None]:
    """Tell torch.func.jvp that a dual level is open, where Dynamo opened it unseen.

    It opens one itself unless it has counted an outer jvp, and torch allows only one.
    """
    unseen = eager_transforms.JVP_NESTING == 0 and _dual_level_is_open()
    if not unseen:
        yield
        return
    before = forward_ad._current_level
    eager_transforms.JVP_NESTING, forward_ad._current_level = 1, 0
    try:
        yield
    finally:
        eager_transforms.JVP_NESTING, forward_ad._current_level = 0, before


def _dual_level_is_open() -> bool:
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:  # there can be one only
        return True
    torch._C._exit_dual_level(level=level)
    return False


def _restrict(
    function: Callable[..., Arrays], args: Sequence[torch.Tensor], live: Sequence[int]
) -> Callable[..., Arrays]:
    """`function` of its `live` arguments, the others held fixed."""

    def restricted(*moving: torch.Tensor) -> Arrays:
        merged = list(args)
        for i, x in zip(live, moving, strict=True):
            merged[i] = x
        return function(*merged)

    return restricted


def autocast_on(x: torch.Tensor | torch.device) -> bool:
    """Whether operations on this tensor's (or device's) type would change their dtype."""
    if not torch._C._is_any_autocast_enabled():
        return False
    device = x.type if isinstance(x, torch.device) else x.device.type
    return _has_autocast(device) and torch.is_autocast_enabled(device)


_has_autocast = functools.cache(torch.amp.is_autocast_available)
