"""The rules of ops with numeric derivatives: in all arguments, or in some beside written ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twingrad.interop.errors import ArgumentError
from twingrad.interop.host.perturbed import Array, Points, apart, longest, moved
from twingrad.interop.op.definition import Op
from twingrad.interop.op.missing import unknown
from twingrad.interop.op.rules.asked import Needs
from twingrad.interop.op.samples.host import OnBatches, asks, on_batches
from twingrad.interop.op.signature import as_tuple

Argnums = str | int | Sequence[str | int]


def def_numeric(
    op: Op,
    argnums: Argnums | None,
    pull: Callable[[Points, Any], tuple[Array, ...]],
    push: Callable[[Points, Array], Array],
) -> None:
    """Set the rules of an op from numeric ones, for these arguments; None: for all.

    For the others it keeps the vjp that it has, and has no formula where it has none.

    Args:
        op: a host op.
        argnums: names or places of arguments, or one.
        pull: ``pull(points, ct)``, the gradients in what moves.
        push: ``push(points, along)``, the tangents of the outputs, (B, m).

    Raises:
        ArgumentError: `argnums` has something that is no argument.
    """
    numeric = _places(op, argnums)

    def both(needs: tuple[bool, ...]) -> tuple[bool, ...]:
        return tuple(need and i in numeric for i, need in enumerate(needs))

    @OnBatches
    def vjp(xp: Any, ct: Any, out: Any, *inputs: Array, needs: Needs, **static: Any) -> Any:
        found: tuple[Any, ...] = (None,) * len(inputs)
        if any(both(needs)):
            found = pull(Points(op, inputs, static, wanted=both(needs)), ct)
        return tuple(g if i in numeric else unknown for i, g in enumerate(found))

    @OnBatches
    def jvp(xp: Any, tangents: Any, out: Any, *inputs: Array, needs: Needs, **static: Any) -> Any:
        points = Points(op, inputs, static, longest(tangents), wanted=both(needs))
        along = points.join([tangents[i] for i in points.moving])
        return apart(moved(along, push(points, along)), out)

    op.def_vjp(vjp if op.vjp is None else _beside(op, vjp.rule))
    rest = [name for i, name in enumerate(op.names) if i not in numeric]
    op.def_jvp(jvp, unknown=rest)


def _beside(op: Op, numeric: Callable[..., Any]) -> OnBatches:
    """The op's own vjp, for the arguments that the numeric one does not know."""
    own, told = on_batches(op, "vjp"), asks(op.written["vjp"], "needs")

    @OnBatches
    def vjp(xp: Any, ct: Any, out: Any, *inputs: Array, needs: Needs, **static: Any) -> Any:
        found = numeric(xp, ct, out, *inputs, needs=needs, **static)
        rest = Needs(
            op.names,
            tuple(need and g is unknown for need, g in zip(needs, found, strict=True)),
        )
        if not any(rest):
            return found
        asked = {"needs": rest} if told else {}
        given = as_tuple(own(xp, ct, out, *inputs, **asked, **static))
        if len(given) != len(found):
            return given
        return tuple(b if a is unknown else a for a, b in zip(found, given, strict=True))

    return vjp


def _places(op: Op, argnums: Argnums | None) -> set[int]:
    count = len(op.names)
    if argnums is None:
        return set(range(count))
    found = set()
    for given in [argnums] if isinstance(argnums, str | int) else argnums:
        place = op.names.index(given) if given in op.names else given
        if not isinstance(place, int) or not -count <= place < count:
            raise ArgumentError(
                f"{op.label}: argnums has {given!r}, which is no argument; "
                f"it takes {', '.join(op.names)}"
            )
        found.add(place % count)
    return found
