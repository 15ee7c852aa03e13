"""Ops with structured arguments on NumPy arrays: their rules take and return the structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.binding import bind_family
from twingrad.interop.op.definition import Op
from twingrad.interop.op.structure.family import Family


def make(op: Family, bind: Callable[[Op], Any]) -> Any:
    """The function of such an op, with the binder of ordinary ops."""

    def vjp(cts: Any, *args: Any, wanted: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        """The gradients of sum(ct * out), in the structure of the arguments.

        Only for those in `wanted`, arguments or paths such as ``params.rate``, if that is given.
        """
        flat, leaves, static = op.flatten(args, kwargs)
        if wanted is not None:
            wanted = flat.frame.spread(wanted, "wanted", ArgumentError)
        found = bind(flat).vjp(cts, *leaves, wanted=wanted, **static)
        return tuple(flat.frame.build(found))

    def jvp(tangents: Any, *args: Any, **kwargs: Any) -> Any:
        """The tangent of each output; `tangents` has the structure of the arguments, or None."""
        flat, leaves, static = op.flatten(args, kwargs)
        dots = flat.frame.collect(tangents, "the tangents have", ArgumentError)
        return bind(flat).jvp(dots, *leaves, **static)

    return bind_family(op, "numpy", bind, vjp=vjp, jvp=jvp)
