"""Ops that are declared linear: the adjoint as an op of its own, and forward mode from the op.

With f(p; x) linear in x, f(p; x)' = f(p; x') for a tangent x', and the adjoint x_bar = f^T(p; ct)
is linear in ct: its own adjoint is f again.  So derivatives of every order follow from the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twingrad.interop.errors import SignatureError
from twingrad.interop.op.framework import Arrays, Framework, Kernel, inexact
from twingrad.interop.op.missing import unknown
from twingrad.interop.op.promises import Like
from twingrad.interop.op.rules.asked import Needs
from twingrad.interop.op.samples.host import Host, asks
from twingrad.interop.op.signature import Signature, as_tuple

Op = Any  # that of `op.definition`, which imports this file
Rule = Callable[..., Any]


def places(op: Op, given: Any) -> tuple[str, ...]:
    """The names of the linear arguments, checked.

    Raises:
        SignatureError: a name that is no argument.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if name not in op.names:
            raise SignatureError(f"{op.label}: linear has {name!r}, which is no argument")
    return names


def substituted(op: Op, inputs: tuple[Any, ...], values: Any) -> tuple[Any, ...]:
    """The inputs with these values, in order, in place of the linear ones."""
    following = iter(values)
    pairs = zip(op.names, inputs, strict=True)
    return tuple(next(following) if name in op.linear else x for name, x in pairs)


def push_linear(
    kernel: Kernel, fw: Framework, tangents: Arrays, outs: Arrays, inputs: Arrays
) -> Arrays:
    """The tangents of the outputs: the op itself on those of its linear arguments, and the rest."""
    op, xp = kernel.op, fw.xp
    named = list(zip(op.names, tangents, inputs, strict=True))
    rest = tuple(None if name in op.linear else dot for name, dot, _ in named)
    parts = []
    if any(dot is not None and name in op.linear for name, dot, _ in named):
        dots = [
            xp.zeros_like(x) if dot is None else dot for name, dot, x in named if name in op.linear
        ]
        found = as_tuple(op(xp, *substituted(op, inputs, dots), **kernel.keywords))
        moving = [t.shape for t in tangents if t is not None]
        plan = kernel.tangent_plan(inputs, outs, tuple(t is not None for t in tangents), moving)
        triples = zip(found, outs, plan.outputs, strict=True)
        parts = [[kernel.tangent_of(fw, i, *triple) for i, triple in enumerate(triples)]]
    if any(dot is not None for dot in rest):
        parts.append(list(kernel.push_by_transpose(fw, rest, outs, inputs)))
    if len(parts) == 1:
        return tuple(parts[0])
    return tuple(None if a is None else a + b for a, b in zip(*parts, strict=True))


def adjoint_of(op: Op, rule: Rule) -> Op:
    """The adjoint of a host op as an op ``(*ct, *inputs) -> gradients of the linear inputs``.

    The linear inputs are there for their shapes.
    """
    outputs, inputs = op.signature.outputs, op.signature.inputs
    count = len(outputs)
    where = [i for i, name in enumerate(op.names) if name in op.linear]
    needs = Needs(op.names, tuple(name in op.linear for name in op.names))
    asked = {"needs": needs} if asks(op.written["vjp"], "needs") else {}

    def forward(xp: Any, *arrays: Any, **static: Any) -> Any:
        cts, given = arrays[:count], arrays[count:]
        outs = tuple(map(xp.zeros_like, cts))
        pair = (cts[0], outs[0]) if count == 1 else (cts, outs)
        found = as_tuple(rule(xp, *pair, *given, **static, **asked))
        if len(found) != len(given):
            return found
        return tuple(xp.zeros_like(given[i]) if found[i] is None else found[i] for i in where)

    adjoint = type(op)(
        forward,
        Signature((*outputs, *inputs), tuple(inputs[i] for i in where)),
        name=f"{op.name}.adjoint",
        names=(*(f"ct_{i}" for i in range(count)), *op.names),
        statics=op.statics,
        host=Host(finite=bool(op.host and op.host.finite)),
        dtypes=tuple(Like(count + i) for i in where),
        linear=tuple(f"ct_{i}" for i in range(count)),
    )

    def back(xp: Any, ct: Any, out: Any, *arrays: Any, **static: Any) -> Any:
        given = arrays[count:]
        ct_bars = as_tuple(op(xp, *substituted(op, given, as_tuple(ct)), **static))
        rest = (None if name in op.linear else unknown for name in op.names)
        return (*ct_bars, *rest)

    adjoint.def_vjp(back, host=False)
    return adjoint


def only_linear(op: Op, inputs: tuple[Any, ...], wanted: Any) -> bool:
    """Whether no derivatives but those in the linear arguments are wanted; None: all are."""
    live = [inexact(x) for x in inputs] if wanted is None else wanted
    return all(name in op.linear for name, alive in zip(op.names, live, strict=True) if alive)
