"""How an op with a Jacobian is differentiated: J^T ct and J t, from a function that returns J."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twingrad.interop.host.cache import Cache
from twingrad.interop.op.definition import Op
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
class LastIsOut:
    """A Jacobian that asks for `out`, as a function that takes it after the inputs."""

    function: Function

    @property
    def __signature__(self) -> inspect.Signature:
        given = inspect.signature(self.function).parameters.values()
        before = [p.replace(default=p.empty) for p in given if p.kind in POSITIONAL]
        last = inspect.Parameter("out", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        after = [p for p in given if p.kind not in POSITIONAL and p.name != "out"]
        return inspect.Signature([*before, last, *after])

    def __call__(self, *args: Any, **static: Any) -> Any:
        """The Jacobian."""
        return self.function(*args[:-1], out=args[-1], **static)


def contract(op: Op, jacobian: Op) -> None:
    """Give `op` the rules vjp(ct) = J^T ct and jvp(t) = J t.

    A Jacobian that sees `out` has it as its last input; where that is differentiated in turn,
    `hess` is the whole derivative, and that of `out` is zero.
    """
    (out,), count = op.signature.outputs, len(jacobian.signature.outputs)
    inputs, seen = op.signature.inputs[:count], len(jacobian.signature.inputs)

    def slopes_at(xp: Any, y: Any, given: Any, static: Any) -> tuple[Any, ...]:
        return as_tuple(jacobian(xp, *(*given[:count], y)[:seen], **static))

    def vjp(xp: Any, ct: Any, y: Any, *given: Any, **static: Any) -> Any:
        pairs = zip(slopes_at(xp, y, given, static), inputs, strict=True)
        found = (_dot(xp, _with_axes(ct, len(core), 0), j, out, core) for j, core in pairs)
        return (*found, *(None,) * (len(given) - count))

    def jvp(xp: Any, tangents: Any, y: Any, *given: Any, **static: Any) -> Any:
        slopes = slopes_at(xp, y, given, static)
        terms = [
            xp.sum(
                times(xp, _with_axes(t, len(out), len(core)), j), axis=tuple(range(-len(core), 0))
            )
            if core
            else times(xp, _with_axes(t, len(out), 0), j)
            for j, t, core in zip(slopes, tangents[:count], inputs, strict=True)
            if t is not None
        ]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    for kind, rule in (("vjp", vjp), ("jvp", jvp)):
        getattr(op, f"def_{kind}")(rule if seen > count else _blind(rule), host=False)


def _blind(rule: Function) -> Function:
    """A rule that does not read `out`, so that it need not be kept."""

    def blind(xp: Any, seeds: Any, out: Any, *given: Any, **static: Any) -> Any:
        return rule(xp, seeds, None, *given, **static)

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
