"""How an op with a Jacobian is differentiated: J^T ct and J t, from a function that returns J."""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twingrad.interop.host.cache import Cache
from twingrad.interop.op.definition import Op
from twingrad.interop.op.rules.asked import Needs
from twingrad.interop.op.rules.derived import times
from twingrad.interop.op.signature import POSITIONAL, as_tuple
from twingrad.interop.op.statics.constants import Given

Function = Callable[..., Any]


class Together:
    """A function that returns its value and its Jacobian, as two functions.

    The latest results are kept, so that a gradient after a value calls the function no more.
    """

    def __init__(self, function: Function, size: int) -> None:
        self.function, self.kept = function, Cache(size)
        self.constants: Given = {}
        self.value, self.slope = _Part(self, 0), _Part(self, 1)

    def __getstate__(self) -> Any:
        return self.function, self.kept.size, self.constants

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state[:2])  # type: ignore[misc]
        self.constants = state[2]

    def both(self, *inputs: np.ndarray, **static: Any) -> Any:
        """The value and the Jacobian."""
        return self.kept.get(self._call, *inputs, tuple(static.items()))

    def _call(self, *args: Any) -> Any:
        *inputs, static = args
        constants = {name: c.array for name, c in self.constants.items() if c is not None}
        return self.function(*inputs, **dict(static), **constants)


class _Part:
    def __init__(self, whole: Together, place: int) -> None:
        self.whole, self.place = whole, place

    def __call__(self, *inputs: Any, **static: Any) -> Any:
        return self.whole.both(*inputs, **static)[self.place]


@dataclass(frozen=True)
class Asking:
    """A Jacobian that asks, as a function of arrays alone: `out` comes last, if it is asked for.

    With `needs` it returns the wanted ones only.
    """

    function: Function
    needs: Needs | None
    sees_out: bool

    @property
    def __signature__(self) -> inspect.Signature:
        given = inspect.signature(self.function).parameters.values()
        before = [p.replace(default=p.empty) for p in given if p.kind in POSITIONAL]
        last = inspect.Parameter("out", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        told = {"out"} if self.needs is None else {"out", "needs"}
        after = [p for p in given if p.kind not in POSITIONAL and p.name not in told]
        return inspect.Signature([*before, *[last] * self.sees_out, *after])

    def __call__(self, *args: Any, **static: Any) -> Any:
        """The Jacobians."""
        if self.sees_out:
            *args, static["out"] = args  # type: ignore[assignment]
        if self.needs is None:
            return self.function(*args, **static)
        found = as_tuple(self.function(*args, needs=self.needs, **static))
        same = len(found) == len(self.needs)
        return tuple(itertools.compress(found, self.needs)) if same else found


def contract(op: Op, count: int, jacobian: Callable[[tuple[bool, ...]], Op]) -> None:
    """Give `op` the rules vjp(ct) = J^T ct and jvp(t) = J t, in its first `count` inputs.

    `jacobian` is told which of these are wanted; its op returns their Jacobians, or all.  One that
    sees `out` has it as its last input; where that is differentiated in turn, `hess` is the whole
    derivative, and that of `out` is zero.
    """
    (out,), inputs = op.signature.outputs, op.signature.inputs
    sees_out = len(jacobian((True,) * count).signature.inputs) > count

    def slopes_at(xp: Any, y: Any, given: Any, needs: Needs, static: Any) -> dict[int, Any]:
        wanted = tuple(needs)[:count]
        if not any(wanted):
            return {}
        arrays = (*given[:count], y) if sees_out else given[:count]
        found = as_tuple(jacobian(wanted)(xp, *arrays, **static))
        places = list(itertools.compress(range(count), wanted))
        every = (
            dict(enumerate(found)) if len(found) == count else dict(zip(places, found, strict=True))
        )
        return {i: every[i] for i in places}

    def vjp(xp: Any, ct: Any, y: Any, *given: Any, needs: Needs, **static: Any) -> Any:
        found: list[Any] = [None] * len(given)
        for i, j in slopes_at(xp, y, given, needs, static).items():
            found[i] = _dot(xp, _with_axes(ct, len(inputs[i]), 0), j, out, inputs[i])
        return tuple(found)

    def jvp(xp: Any, tangents: Any, y: Any, *given: Any, needs: Needs, **static: Any) -> Any:
        terms = []
        for i, j in slopes_at(xp, y, given, needs, static).items():
            term = times(xp, _with_axes(tangents[i], len(out), len(inputs[i])), j)
            axes = tuple(range(-len(inputs[i]), 0))
            terms.append(xp.sum(term, axis=axes) if axes else term)
        return functools.reduce(operator.add, terms) if terms else None

    for kind, rule in (("vjp", vjp), ("jvp", jvp)):
        getattr(op, f"def_{kind}")(rule if sees_out else _blind(rule), host=False)


def _blind(rule: Function) -> Function:
    """A rule that does not read `out`, so that it need not be kept."""

    def blind(xp: Any, seeds: Any, out: Any, *given: Any, needs: Needs, **static: Any) -> Any:
        return rule(xp, seeds, None, *given, needs=needs, **static)

    return blind


def _dot(xp: Any, ct: Any, j: Any, out: Any, core: Any) -> Any:
    """Sum ct * J over the output's dimensions."""
    product = times(xp, ct, j)
    first, last = -len(out) - len(core), -len(core)
    return xp.sum(product, axis=tuple(range(first, last))) if out else product


def _with_axes(x: Any, count: int, before: int) -> Any:
    """`x` with that many axes of size 1 in front of its last `before` ones."""
    split = len(x.shape) - before
    return x[(slice(None),) * split + (None,) * count + (...,)]
