"""A function of an op, its forward function or a rule, run as compiled kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from twingrad.interop.op.framework import Arrays
from twingrad.interop.op.signature import Shape, Signature
from twingrad.interop.torch.build import resolved
from twingrad.interop.torch.fused.compiled import FIRST, Budget, Compiled
from twingrad.interop.torch.fused.layout import Layout, layout, repeats

_KINDS = (torch.Tensor, torch.nn.Parameter)
_DEVICES = ("cpu", "cuda")

# (arrays, shape of the gradient of each target) -> arrays, None for zeros
Function = Callable[[Arrays, Sequence[Shape]], Sequence[Any]]


class Runner:
    """Runs a function of arrays with a signature as compiled kernels.

    `read` says which of the arrays the function looks at: of the others it needs the shapes.
    `fold` says of which ones a kernel gets one entry, where they repeat it along the batch.  With
    `targets`, places of arrays, the results are gradients of these; otherwise they are the outputs
    of the signature.
    """

    def __init__(
        self,
        budget: Budget,
        name: str,
        signature: Signature,
        function: Function,
        read: Sequence[bool],
        fold: Sequence[bool],
        targets: tuple[int, ...] = (),
    ) -> None:
        self.budget, self.name, self.signature = budget, name, signature
        self.function, self.read, self.targets = function, tuple(read), targets
        self.fold = tuple(map(operator.and_, read, fold))
        self.cores = [len(core) for core in signature.inputs]
        self.kernels: dict[Any, Compiled | None] = {}
        self.missing: tuple[int, ...] = ()  # the results that are None

    def __call__(self, arrays: Arrays) -> Sequence[Any]:
        """What the function returns, with a kernel where one can be used."""
        shapes = tuple([x.shape for x in arrays])
        if not _fits(arrays, self.budget.least):
            return self.function(arrays, [shapes[i] for i in self.targets])
        repeated = tuple(
            [
                repeats(x, core) if fold and not x.is_contiguous() else ()
                for x, fold, core in zip(arrays, self.fold, self.cores, strict=True)
            ]
        )
        plan = layout(self.signature, shapes, repeated, self.targets)
        key = plan.pattern, tuple([x.dtype for x in arrays]), arrays[0].device
        kernel = self.kernels[key] if key in self.kernels else self._new(key, plan)
        results = plan.outputs or [shapes[i] for i in self.targets]
        with torch.no_grad():
            given = tuple(map(_normal, arrays, plan.shapes, plan.repeated, self.read))
            found = None if kernel is None else kernel(given)
            if found is not None:
                values = iter(found)
                return [
                    None if i in self.missing else _own(next(values), shape, given)
                    for i, shape in enumerate(results)
                ]
        plain = self.function(arrays, [shapes[i] for i in self.targets])
        if kernel is not None:  # that the plain function gives a result says why it has no kernel
            self.budget.warn(kernel.why)
        return plain

    def _new(self, key: Any, plan: Layout) -> Compiled | None:
        with FIRST.lock:
            if key not in self.kernels:
                self.kernels[key] = self._made(plan) if self.budget.take() else None
            return self.kernels[key]

    def _made(self, plan: Layout) -> Compiled:
        targets = [(i, places) for i, places in zip(self.targets, plan.targets, strict=True)]

        def run(*arrays: torch.Tensor) -> Arrays:
            shapes = [
                (
                    *[1 if j is None else arrays[j].shape[axis] for axis, j in enumerate(sizes)],
                    *arrays[i].shape[len(sizes) :],
                )
                for i, sizes in targets
            ]
            found = self.function(arrays, shapes)
            self.missing = tuple([i for i, y in enumerate(found) if y is None])
            return tuple([y for y in found if y is not None])

        return Compiled(self.budget, self.name, run)


def _fits(arrays: Arrays, least: int) -> bool:
    """Whether these are ordinary tensors, and many numbers, in code that nobody traces."""
    if max([x.numel() for x in arrays]) < least or arrays[0].device.type not in _DEVICES:
        return False
    if torch._C._len_torch_dispatch_stack() or torch.compiler.is_compiling():
        return False
    return all([type(x) in _KINDS for x in arrays]) and torch._C._get_tracing_state() is None


def _normal(x: torch.Tensor, shape: Shape, repeated: tuple[int, ...], read: bool) -> torch.Tensor:
    """The tensor as all kernels get theirs: of that shape, contiguous, and without a gradient."""
    if not read:
        return x.new_empty(()).expand(shape).data
    for axis in repeated:
        x = x.narrow(axis, 0, 1)
    # not a view as detach() gives, whose base and its sizes a compiler would look at
    return resolved(x.reshape(-1)).contiguous().view(shape).data


def _own(y: torch.Tensor, shape: Shape, given: Arrays) -> torch.Tensor:
    """A result in its shape, with memory of its own."""
    if y._is_view() or any([y is x for x in given]):
        y = y.clone()
    return y if y.shape == shape else y.view(shape).data  # no view, to which nobody may write
