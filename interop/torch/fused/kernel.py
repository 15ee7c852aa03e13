"""An op whose forward function, vjp and jvp run as compiled kernels in eager torch.

Its Functions call the kernels where no transformation is left, on the tensors themselves.  What
is differentiated, to any order, and what compilers and exports trace are the rules as they stand.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._functorch import is_legacy_batchedtensor

from twingrad.interop.op.definition import Op
from twingrad.interop.op.framework import Arrays, Framework, align, scatter
from twingrad.interop.op.kernel import Kernel
from twingrad.interop.op.rules.reads import kept
from twingrad.interop.op.signature import Signature
from twingrad.interop.op.statics.static import Static
from twingrad.interop.torch.function import make_autodiff
from twingrad.interop.torch.fused.compiled import Budget
from twingrad.interop.torch.fused.runner import Runner


class FusedKernel(Kernel):
    """A kernel that evaluates compiled code on large arrays, and is the plain one elsewhere."""

    def __init__(self, op: Op, static: Static, fw: Framework, budget: Budget) -> None:
        super().__init__(op, static)
        self.plain, self.fw, self.budget = Kernel(op, static), fw, budget
        self._rules = self._known()
        self._pulls: dict[Any, _Pull] = {}
        self._forward = Runner(
            budget,
            op.name,
            self.signature,
            lambda arrays, _: self.plain.evaluate(fw, arrays),
            (True,) * len(op.names),
            (True,) * len(op.names),
        )

    def evaluate(self, fw: Framework, inputs: Arrays) -> Arrays:
        """All outputs, at batch + core."""
        if self._changed():
            return self.plain.evaluate(fw, inputs)
        return tuple(self._forward(inputs))

    def pull(
        self, fw: Framework, cts: Arrays, outs: Arrays, inputs: Arrays, targets: Sequence[Any]
    ) -> list[Any]:
        """The vjp rule, also where it will be differentiated or is batched."""
        mapped = torch._C._are_functorch_transforms_active()  # then sizes are those of one sample
        if not mapped and max([x.numel() for x in (*outs, *inputs)]) < self.budget.least:
            return self.plain.pull(fw, cts, outs, inputs, targets)
        given = tuple([ct is not None for ct in cts])
        on_first_vmap = any([ct is not None and is_legacy_batchedtensor(ct) for ct in cts])
        if on_first_vmap or self.op.vjp_on_host or self._changed() or not any(given):
            return self.plain.pull(fw, cts, outs, inputs, targets)
        live = tuple([target is not None for target in targets])
        if (given, live) not in self._pulls:
            self._pulls[given, live] = _Pull(self, given, live)
        return self._pulls[given, live](cts, outs, inputs)

    def push(self, fw: Framework, tangents: Arrays, outs: Arrays, inputs: Arrays) -> Arrays:
        """The jvp rule: `fuse` runs it."""
        return self.plain.push(fw, tangents, outs, inputs)

    def fuse(self, signature: Signature, push: Callable[..., Arrays]) -> Callable[..., Arrays]:
        """The jvp rule, a function (inputs, outputs, tangents) -> tangents, with kernels."""
        if self.op.jvp_on_host:
            return push
        read = kept(self.op, "jvp")
        count, moving = len(read), len(signature.inputs) - len(read)
        run = Runner(
            self.budget,
            f"{self.op.name}_jvp",
            signature,
            lambda arrays, _: push(*arrays),
            (*read, *[True] * moving),
            (*[True] * count, *[False] * moving),
        )

        def fused(*arrays: torch.Tensor) -> Arrays:
            return push(*arrays) if self._changed() else tuple(run(arrays))

        return fused

    def _known(self) -> tuple[Any, ...]:
        return self.op.forward, self.op.vjp, self.op.jvp

    def _changed(self) -> bool:
        """Whether a function or rule was put in the place of one that kernels were made of."""
        return any(map(operator.is_not, self._rules, self._known()))


class _Pull:
    """The vjp rule for cotangents of certain outputs and gradients of certain inputs."""

    def __init__(
        self, kernel: FusedKernel, given: tuple[bool, ...], live: tuple[bool, ...]
    ) -> None:
        op, signature = kernel.op, kernel.signature
        self.plain, self.fw, self.given, self.live = kernel.plain, kernel.fw, given, live
        n_cts, n_out, n_in = sum(given), len(given), len(live)
        cts = tuple(itertools.compress(signature.outputs, given))
        gradients = tuple(itertools.compress(signature.inputs, live))
        self.signature = Signature.of((*cts, *signature.outputs, *signature.inputs), gradients)
        self.cut = n_cts, n_cts + n_out
        self.targets = tuple([n_cts + n_out + i for i in range(n_in) if live[i]])
        read = kept(op, "vjp")
        self.run = Runner(
            kernel.budget,
            f"{op.name}_vjp",
            self.signature,
            self._pull,
            (*[True] * n_cts, *read[n_in:], *read[:n_in]),
            (*[False] * n_cts, *[True] * (n_out + n_in)),
            self.targets,
        )
        self.function = make_autodiff(
            f"{op.name}_vjp", self.signature, self._plain, self._fused, self.targets
        )

    def __call__(self, cts: Arrays, outs: Arrays, inputs: Arrays) -> list[Any]:
        arrays = (*[ct for ct in cts if ct is not None], *outs, *inputs)
        moved = torch.is_grad_enabled() or torch._C._are_functorch_transforms_active()
        found = self._differentiable(arrays) if moved else self.run(arrays)
        return list(scatter([i for i, alive in enumerate(self.live) if alive], found, len(inputs)))

    def _differentiable(self, arrays: Arrays) -> Sequence[Any]:
        plan = self.signature.plan(tuple([x.shape for x in arrays]))
        found = self.function.apply(*align(self.fw, arrays, plan))
        found = found if isinstance(found, tuple) else (found,)
        return [
            None if i in self.run.missing else y.reshape(arrays[place].shape)
            for i, (place, y) in enumerate(zip(self.targets, found, strict=True))
        ]

    def _pull(self, arrays: Arrays, shapes: Sequence[Any]) -> list[Any]:
        """The gradients of the live inputs, of these shapes; None for zeros."""
        first, last = self.cut
        given = iter(arrays[:first])
        cts = tuple([next(given) if there else None for there in self.given])
        wanted = iter(shapes)
        targets = [next(wanted) if alive else None for alive in self.live]
        found = self.plain.pull(self.fw, cts, arrays[first:last], arrays[last:], targets)
        return list(itertools.compress(found, self.live))

    def _plain(self, *arrays: torch.Tensor) -> Arrays:
        shapes = [arrays[i].shape for i in self.targets]
        return self._filled(self._pull(arrays, shapes), arrays)

    def _fused(self, *arrays: torch.Tensor) -> Arrays:
        return self._filled(self.run(arrays), arrays)

    def _filled(self, found: Sequence[Any], arrays: Arrays) -> Arrays:
        pairs = zip(self.targets, found, strict=True)
        return tuple([torch.zeros_like(arrays[i]) if y is None else y for i, y in pairs])
