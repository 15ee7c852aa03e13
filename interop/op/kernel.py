"""How a forward function and its rules are run: the same for every framework.

A `Kernel` is an op with its static parameters fixed.  It aligns the batch ranks, calls
the user's function, checks what came back, undoes broadcasting and casts.  What differs
between the frameworks stands in a `Framework`, one object per binder.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from twingrad.interop.errors import RuleError, ShapeError
from twingrad.interop.op.definition import Op, Rule
from twingrad.interop.op.framework import (
    Array,
    Arrays,
    Framework,
    align,
    call_with_constants,
    cast_like,
    inexact,
    precision,
    scatter,
)
from twingrad.interop.op.missing import no_formula, no_rule, unknown
from twingrad.interop.op.promises import cast_output
from twingrad.interop.op.rules.adjoint import push_linear
from twingrad.interop.op.rules.derived import SaysWanted
from twingrad.interop.op.rules.reads import shown
from twingrad.interop.op.signature import Plan, Shape, Signature, as_tuple
from twingrad.interop.op.statics.hidden import refuse_hidden
from twingrad.interop.op.statics.static import Static, sizes_of


class Kernel:
    """An op with its static parameters fixed: what the binders run."""

    def __init__(self, op: Op, static: Static) -> None:
        refuse_hidden(op.label, static.items)
        self.op, self.static, self.keywords = op, static, dict(static.items)
        self.sizes = sizes_of(op.label, op.sizes, static) if op.sizes else {}
        self.signature = op.signature.at(self.sizes) if op.sizes else op.signature
        self._signatures: dict[Any, Signature] = {}
        # for the graphs of torch, see torch/graphs/names.py
        self.name = self.statics_text = ""
        self.certain = False
        self.held: Any = None  # see jax/held.py

    def __repr__(self) -> str:
        return f"<{self.op.label}>"

    def plan(self, inputs: Sequence[Array]) -> Plan:
        """The plan for these inputs; raises `ShapeError` in the op's name."""
        shapes: tuple[Shape, ...] = tuple([x.shape for x in inputs])
        try:
            return self.signature.plan(shapes)
        except ShapeError:
            why = self.op.signature.explain(shapes, self.op.names, self.sizes)
            raise ShapeError(f"{self.op.label}: {why}") from None

    def evaluate(self, fw: Framework, inputs: Arrays) -> Arrays:
        """All outputs, at batch + core, in the precision of the inputs."""
        op, plan = self.op, self.plan(inputs)
        aligned = align(fw, inputs, plan)
        if op.host:
            return fw.host(self, aligned, plan)
        found = as_tuple(self._call(fw, "its function", op.forward, aligned, aligned))
        self._count(found, len(plan.outputs), "its function", needed=True)
        return tuple([self._output(fw, i, y, plan, inputs) for i, y in enumerate(found)])

    def pull(
        self, fw: Framework, cts: Arrays, outs: Arrays, inputs: Arrays, targets: Sequence[Any]
    ) -> list[Array | None]:
        """The vjp rule: a gradient for each input that has a target shape, or None.

        A target is the input's shape, or that with further batch dimensions, when only the
        cotangents are batched.  A cotangent that is None is zero; it reaches the rule as
        None where it belongs to a hidden output, as zeros elsewhere.

        Raises:
            MissingRuleError: the op has no rule from which this follows, or it has no formula for
                an input that has a target.
            RuleError: the rule returned another number of gradients, or another shape.
        """
        op = self.op
        if op.vjp is None:
            if op.jvp is None or op.jvp_on_host:
                raise no_rule(op, "vjp", "reverse mode")
            return self._pull_by_transpose(fw, cts, outs, inputs, targets)
        n_in, n_out = len(inputs), len(outs)
        live = tuple([t is not None for t in targets])
        moving = [t for t in targets if t is not None]
        plan = self.tangent_plan(inputs, outs, live, moving)
        aligned = align(fw, (*inputs, *outs), plan)
        inputs_, outs_ = aligned[:n_in], aligned[n_in:]
        seeds = [
            (None if i >= op.visible else fw.xp.zeros_like(y))
            if ct is None
            else fw.from_framework(ct)
            for i, (ct, y) in enumerate(zip(cts, outs_, strict=True))
        ]
        arrays = (*aligned, *[seed for seed in seeds if seed is not None])
        inputs_, outs_ = shown(op, "vjp", inputs_, outs_)
        given = (seeds[0], outs_[0]) if n_out == 1 else (tuple(seeds), outs_)
        args, told = (*given, *inputs_), self._told(op.vjp, live, inputs)
        found = as_tuple(self._call(fw, "its vjp", op.vjp, arrays, args, told))
        self._count(found, n_in, "its vjp")
        gradients: list[Array | None] = [None] * n_in
        slot = n_in + n_out
        for i in range(n_in):
            if live[i]:
                if found[i] is unknown:
                    raise no_formula(op, "vjp", op.names[i])
                if found[i] is not None:
                    gradients[i] = self._gradient(
                        fw, i, found[i], inputs[i], targets[i], plan, slot
                    )
                slot += 1
        return gradients

    def push(self, fw: Framework, tangents: Arrays, outs: Arrays, inputs: Arrays) -> Arrays:
        """The jvp rule: the tangent of each output that can have one, None for the others.

        A tangent that is None is zero.

        Raises:
            MissingRuleError: the op has no rule from which this follows, or no formula for a
                tangent that is there.
            RuleError: the rule returned another number of tangents, or another shape.
        """
        op, n_in = self.op, len(inputs)
        if op.jvp is None and op.linear:
            return push_linear(self, fw, tangents, outs, inputs)
        if op.jvp is None:
            return self.push_by_transpose(fw, tangents, outs, inputs)
        live = tuple([t is not None for t in tangents])
        for name in op.jvp_unknown:
            if live[op.names.index(name)]:
                raise no_formula(op, "jvp", name)
        moving = [t for t in tangents if t is not None]
        plan = self.tangent_plan(inputs, outs, live, [t.shape for t in moving])
        aligned = align(fw, (*inputs, *outs, *moving), plan)
        inputs_, outs_ = aligned[:n_in], aligned[n_in : n_in + len(outs)]
        given = iter(aligned[n_in + len(outs) :])
        dots = tuple(
            [
                next(given) if alive else fw.xp.zeros_like(x) if inexact(x) else None
                for alive, x in zip(live, inputs_, strict=True)
            ]
        )
        inputs_, outs_ = shown(op, "jvp", inputs_, outs_)
        out = outs_[0] if len(outs) == 1 else outs_
        args, told = (dots, out, *inputs_), self._told(op.jvp, live, inputs)
        found = as_tuple(self._call(fw, "its jvp", op.jvp, aligned, args, told))
        self._count(found, len(outs), "its jvp")
        return tuple(
            [self.tangent_of(fw, i, dot, outs[i], plan.outputs[i]) for i, dot in enumerate(found)]
        )

    def _call(
        self, fw: Framework, what: str, rule: Rule, arrays: Arrays, args: Arrays, told: Any = None
    ) -> Any:
        keywords = {**self.keywords, "_wanted": told} if told else self.keywords
        call = call_with_constants(self.op, fw) if self.op.constants else fw.call
        return call(self.op.label, what, rule, arrays, (fw.xp, *args), keywords)

    def _told(self, rule: Rule, live: tuple[bool, ...], inputs: Arrays) -> tuple[bool, ...] | None:
        """Which derivatives are wanted, for a rule that asks and where not all are."""
        if not isinstance(rule, SaysWanted) or all(
            a == inexact(x) for a, x in zip(live, inputs, strict=True)
        ):
            return None
        return live

    def tangent_signature(self, live: tuple[bool, ...]) -> Signature:
        """Of the jvp rule as a function: (inputs, outputs, live tangents) -> tangents."""
        if live not in self._signatures:
            ins, outs = self.signature.inputs, self.signature.outputs
            moving = tuple(itertools.compress(ins, live))
            self._signatures[live] = Signature.of(ins + outs + moving, outs)
        return self._signatures[live]

    def tangent_plan(
        self, inputs: Arrays, outs: Arrays, live: tuple[bool, ...], moving: Sequence[Shape]
    ) -> Plan:
        """The plan of the jvp rule, for tangents of these shapes."""
        shapes = (*[x.shape for x in inputs], *[y.shape for y in outs], *moving)
        return self.tangent_signature(live).plan(shapes)

    def _pull_by_transpose(
        self, fw: Framework, cts: Arrays, outs: Arrays, inputs: Arrays, targets: Sequence[Any]
    ) -> list[Array | None]:
        live = [i for i, target in enumerate(targets) if target is not None]
        kept = [i for i, y in enumerate(outs) if inexact(y)]

        def linear(*dots: Array) -> Arrays:
            found = self.push(fw, scatter(live, dots, len(inputs)), outs, inputs)
            return tuple(found[i] for i in kept)

        seeds = tuple(fw.xp.zeros_like(outs[i]) if cts[i] is None else cts[i] for i in kept)
        like = tuple((targets[i], inputs[i]) for i in live)
        return list(scatter(live, fw.transpose(linear, like, seeds), len(inputs)))

    def push_by_transpose(
        self, fw: Framework, tangents: Arrays, outs: Arrays, inputs: Arrays
    ) -> Arrays:
        """What `push` returns, from the vjp."""
        if self.op.vjp is None or self.op.vjp_on_host:
            raise no_rule(self.op, "jvp", "forward mode")
        live = [i for i, t in enumerate(tangents) if t is not None]
        kept = [i for i, y in enumerate(outs) if inexact(y)]
        alive = tuple(t is not None for t in tangents)
        moving = [tangents[i].shape for i in live]
        plan = self.tangent_plan(inputs, outs, alive, moving)
        targets = scatter(live, moving, len(inputs))

        def linear(*seeds: Array) -> Arrays:
            found = self.pull(fw, scatter(kept, seeds, len(outs)), outs, inputs, targets)
            return tuple(
                fw.xp.zeros_like(tangents[i]) if found[i] is None else found[i] for i in live
            )

        seeds = tuple(tangents[i] for i in live)
        like = tuple((plan.outputs[i], outs[i]) for i in kept)
        return scatter(kept, fw.transpose(linear, like, seeds), len(outs))

    def _output(self, fw: Framework, i: int, y: Array, plan: Plan, inputs: Arrays) -> Array:
        declared = self.op.dtypes[i]
        if y.shape != plan.outputs[i]:
            y = self._spread(fw, y, plan.outputs[i], "its function returned an output", i)
        if declared is None and y.dtype == inputs[0].dtype:
            return y
        return cast_output(fw, self.op.label, y, precision(inputs), declared)

    def _gradient(
        self, fw: Framework, i: int, g: Array, x: Array, target: Shape, plan: Plan, slot: int
    ) -> Array:
        """Check a gradient that a rule returned, sum it back over broadcast axes, cast it."""
        g = fw.to_framework(g)
        summed = plan.summed[slot]
        if summed or g.shape != target:
            if tuple(g.shape) == plan.full[slot]:
                if summed:
                    g = fw.xp.sum(g, axis=summed, keepdims=True)
            elif tuple(g.shape) != plan.aligned[slot]:
                raise RuleError(
                    f"{self.op.label}: its vjp returned a gradient of shape {tuple(g.shape)} "
                    f"for {self.op.names[i]} of shape {tuple(target)}; expected "
                    f"{plan.full[slot]}" + (f" or {plan.aligned[slot]}" if summed else "")
                )
            if g.shape != target:
                g = fw.xp.reshape(g, tuple(target))
        return g if g.dtype == x.dtype else cast_like(fw, g, x)

    def tangent_of(self, fw: Framework, i: int, dot: Array, y: Array, shape: Shape) -> Array:
        """Check a tangent that a rule returned, and cast it; None where the output has none."""
        if not inexact(y):
            return None
        if dot is None:
            return fw.xp.broadcast_to(fw.xp.zeros_like(y), shape)
        if tuple(dot.shape) != shape:
            dot = self._spread(fw, dot, shape, "its jvp returned a tangent", i)
        return dot if dot.dtype == y.dtype else cast_like(fw, dot, y)

    def _spread(self, fw: Framework, y: Array, shape: Shape, what: str, i: int) -> Array:
        """Repeat a result that does not depend on the batched inputs over the batch."""
        dims = self.op.signature.outputs[i]
        core = len(dims)
        have = (1,) * (len(shape) - len(y.shape)) + tuple(y.shape)
        split = len(shape) - core
        fits = len(y.shape) >= core and len(have) == len(shape)
        if (
            not fits
            or have[split:] != shape[split:]
            or any(h not in (1, n) for h, n in zip(have[:split], shape[:split], strict=True))
        ):
            raise RuleError(
                f"{self.op.label}: {what} of shape {tuple(y.shape)}; expected {tuple(shape)}"
                + self.op.signature.computed(dims, shape)
            )
        return fw.xp.broadcast_to(y, shape)

    def _count(self, found: Arrays, expected: int, what: str, needed: bool = False) -> None:
        for y in found:
            if not hasattr(y, "shape") and (needed or (y is not None and y is not unknown)):
                raise RuleError(
                    f"{self.op.label}: {what} returned a {type(y).__name__}; expected "
                    + ("an array" if expected == 1 else f"a tuple of {expected} arrays")
                )
        if len(found) != expected:
            raise RuleError(
                f"{self.op.label}: {what} returned {len(found)} values; expected {expected}"
            )
