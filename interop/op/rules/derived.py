"""Rules that are made rather than written: from another op, from host code, row by row.

Every function here returns a rule in the form that `Op.def_vjp` or `Op.def_jvp` would take.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from twingrad.interop.errors import SignatureError
from twingrad.interop.op.framework import inexact
from twingrad.interop.op.missing import check_known, unknown
from twingrad.interop.op.promises import Like
from twingrad.interop.op.rules.adjoint import adjoint_of, only_linear, substituted
from twingrad.interop.op.rules.asked import told
from twingrad.interop.op.rules.reads import arrays_read
from twingrad.interop.op.samples.host import Host, asks
from twingrad.interop.op.signature import Signature, as_tuple

Op = Any  # that of `op.definition`, which imports this file
Rule = Callable[..., Any]


def delegate(op: Op, kind: str, other: Op) -> Rule:
    """A rule that is another op, called with the cotangents (or tangents) and the inputs.

    Raises:
        SignatureError: the other op does not take these, or returns something else.
    """
    inputs, outputs = op.signature.inputs, op.signature.outputs
    seeds, results = (outputs, inputs) if kind == "vjp" else (inputs, outputs)
    found = other.signature
    expected = Signature((*seeds, *inputs), results)
    ranks = [tuple(map(len, side)) for side in (found.inputs, found.outputs)]
    if ranks != [tuple(map(len, side)) for side in (expected.inputs, expected.outputs)]:
        raise SignatureError(
            f"{op.label}: {other.label} cannot be its {kind}; expected an op {expected}"
        )

    def rule(xp: Any, seeds: Any, out: Any, *inputs: Any, **static: Any) -> Any:
        like = as_tuple(out) if kind == "vjp" else inputs
        return other(xp, *filled(xp, seeds, like), *inputs, **static)

    return rule


def hosted(op: Op, kind: str, rule: Rule) -> Rule:
    """Make a NumPy rule callable from every framework: it becomes a host op of its own."""
    outputs, inputs = op.signature.outputs, op.signature.inputs
    seeds, results = (outputs, inputs) if kind == "vjp" else (inputs, outputs)
    n_seeds, n_out = len(seeds), len(outputs)

    # An array that the rule does not read becomes its shape: one more dimension, of size 0.
    read = arrays_read(op.written[kind], op.signature)
    read = (True,) * n_seeds + read[len(inputs) :] + read[: len(inputs)]
    cores = (*seeds, *outputs, *inputs)
    cores = tuple(core if r else (*core, 0) for core, r in zip(cores, read, strict=True))

    asked = asks(op.written[kind], "needs")
    where = slice(n_seeds + n_out, None) if kind == "vjp" else slice(n_seeds, n_seeds + n_out)

    def forward(xp: Any, *arrays: Any, _wanted: Any = None, **static: Any) -> Any:
        seen = [x if r else None for x, r in zip(arrays, read, strict=True)]
        seeded = tuple(seen[:n_seeds]) if kind == "jvp" or n_seeds > 1 else seen[0]
        out = tuple(seen[n_seeds : n_seeds + n_out]) if n_out > 1 else seen[n_seeds]
        like = arrays[where]
        if asked:
            static["needs"] = told(op.names, arrays[n_seeds + n_out :], _wanted)
        found = as_tuple(rule(xp, seeded, out, *seen[n_seeds + n_out :], **static))
        if len(found) != len(like):
            return found
        if kind == "vjp":
            check_known(op, kind, moving(found, like, _wanted))
        found = tuple(None if g is unknown else g for g in found)
        if all(g is not None for g in found):
            return found
        pairs = zip(like, read[where], strict=True)
        return filled(xp, found, tuple(x if r else x.sum(-1) for x, r in pairs))

    signature = Signature.of(cores, results)
    first = n_seeds + n_out if kind == "vjp" else n_seeds  # of what the results are like
    derived = type(op)(
        forward,
        signature,
        name=f"{op.name}.{kind}",
        names=tuple(f"argument_{i}" for i in range(len(signature.inputs))),
        statics={**op.statics, "_wanted": None} if kind == "vjp" or asked else op.statics,
        host=Host(finite=bool(op.host and op.host.finite)),
        dtypes=tuple(Like(first + i) for i in range(len(results))),
    )
    derived.__module__, derived.whole, op.parts[kind] = op.__module__, op, derived

    adjoint = adjoint_of(op, rule) if kind == "vjp" and op.linear else None

    def traced(xp: Any, seeds: Any, out: Any, *given: Any, **static: Any) -> Any:
        outs = as_tuple(out)
        arrays = filled(xp, seeds, outs if kind == "vjp" else given)
        if adjoint is not None and only_linear(op, given, static.get("_wanted")):
            static.pop("_wanted", None)
            found = as_tuple(adjoint(xp, *arrays, *given, **static))
            return substituted(op, (None,) * len(given), found)
        arrays = (*arrays, *outs, *given)
        shapes = [x if r else x[..., None][..., :0] for x, r in zip(arrays, read, strict=True)]
        return derived(xp, *shapes, **static)

    return SaysWanted(traced) if kind == "vjp" or asked else traced


def asking(op: Op, rule: Rule) -> Rule:
    """A rule in `xp` calls, as `Kernel` calls it: told what it needs, if it asks."""
    if not asks(rule, "needs"):
        return rule

    def asked(
        xp: Any, seeds: Any, out: Any, *inputs: Any, _wanted: Any = None, **static: Any
    ) -> Any:
        return rule(xp, seeds, out, *inputs, needs=told(op.names, inputs, _wanted), **static)

    return SaysWanted(asked)


class SaysWanted:
    """A rule that is told by ``_wanted`` the inputs whose derivatives are wanted, if not all."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def __call__(self, *args: Any, **static: Any) -> Any:
        """What the rule returns."""
        return self.rule(*args, **static)


def moving(values: Any, inputs: Any, wanted: Any) -> list[tuple[int, Any]]:
    """The places and values that belong to inputs whose derivative is wanted; None: to all."""
    live = [inexact(x) for x in inputs] if wanted is None else wanted
    return list(itertools.compress(enumerate(values), live))


def by_rows(op: Op) -> Rule:
    """Forward mode from the vjp: the Jacobian row by row, times the tangents.

    All unit cotangents, one for each number of the outputs, go through the vjp in one call, as
    one more batch dimension in front.
    """

    def rule(
        xp: Any, tangents: Any, out: Any, *inputs: Any, _wanted: Any = None, **static: Any
    ) -> Any:
        outs = as_tuple(out)
        given = [x[None, ...] for x in inputs]
        if _wanted is not None and isinstance(op.vjp, SaysWanted):
            static["_wanted"] = _wanted
        found = []
        for place, (y, core) in enumerate(zip(outs, op.signature.outputs, strict=True)):
            units = _units(xp, y, len(core))
            seeds = tuple(
                units if i == place else xp.zeros_like(z)[None, ...] for i, z in enumerate(outs)
            )
            stacked = tuple(z[None, ...] for z in outs)
            if len(outs) == 1:
                rows = op.vjp(xp, seeds[0], stacked[0], *given, **static)
            else:
                rows = op.vjp(xp, seeds, stacked, *given, **static)
            live = moving(as_tuple(rows), inputs, _wanted)
            check_known(op, "vjp", live)
            axes = tuple(range(-len(core), 0))
            total = xp.zeros_like(xp.sum(units, axis=axes) if core else units)
            for i, row in live:
                if row is not None:
                    cut = len(op.signature.inputs[i])
                    product = times(xp, tangents[i][None, ...], row)
                    total = total + (
                        xp.sum(product, axis=tuple(range(-cut, 0))) if cut else product
                    )
            total = xp.moveaxis(total, 0, -1)
            found.append(
                xp.reshape(total, (*total.shape[:-1], *y.shape[len(y.shape) - len(core) :]))
            )
        return tuple(found) if len(found) > 1 else found[0]

    return SaysWanted(rule)


def _units(xp: Any, y: Any, core: int) -> Any:
    """The unit cotangents of an output with that many core dimensions, one after the other."""
    split = len(y.shape) - core
    batch, size = tuple(y.shape[:split]), 1
    for n in y.shape[split:]:
        size *= n
    places = xp.cumsum(xp.reshape(xp.ones_like(y), (*batch, size)), axis=-1)
    units = [xp.astype(places == i + 1, y.dtype) for i in range(size)]
    return xp.reshape(xp.stack(units, axis=0), (size, *y.shape))


# With M the largest number: 0 M M = 0, and its derivative in x is M M = inf, so that the
# product is right to every order in x, which is no constant where it is 0.
def times(xp: Any, x: Any, slope: Any) -> Any:
    """``x * slope`` where an x of 0 wins over a slope that is not finite: what is not used."""
    most, lost = xp.finfo(slope.dtype).max, (x == 0) > xp.isfinite(slope)
    bounded = xp.where(lost > (xp.real(slope) > 0), -most, xp.where(lost, most, slope))
    return x * bounded * xp.where(lost, most, xp.ones_like(slope))


def filled(xp: Any, seeds: Any, like: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cotangents or tangents with zeros in place of None, for code that takes only arrays."""
    pairs = zip(as_tuple(seeds), like, strict=True)
    return tuple(xp.zeros_like(x) if seed is None else seed for seed, x in pairs)
