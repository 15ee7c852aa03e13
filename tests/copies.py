"""Copies of an op with another function or other rules, such as rules times a factor."""

import functools
import inspect

from tests.structured import copied
from twingrad.interop import Op, define
from twingrad.interop.op.samples.host import PlainFunction
from twingrad.interop.op.signature import as_tuple


def copy(op: Op, forward=None, vjp=None, jvp=None, dtypes=None) -> Op:
    """The same op with another function, rules or dtypes; None keeps what is there."""
    options = {"dtypes": dtypes or op.dtypes, "linear": op.linear, "constants": op.constants}
    options |= {"host": op.host, "hidden": op.hidden}
    function = forward or function_of(op)
    if op.origin:
        return copied(op, function, vjp or op.vjp, jvp or op.jvp, **options)
    made = define(str(op.signature), **options)(function)
    for kind, rule in (("vjp", vjp or op.vjp), ("jvp", jvp or op.jvp)):
        if rule is not None:
            getattr(made, f"def_{kind}")(rule, host=False)
    return made


def function_of(op: Op):
    """The op's function as `define` takes it: with `xp` in front."""
    written = op.written["function"]
    if not isinstance(written, PlainFunction):
        return written

    def function(xp, *args, **static):
        return written(*args, **static)

    first = inspect.Parameter("xp", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    rest = inspect.signature(written.function).parameters.values()
    function.__signature__ = inspect.Signature([first, *rest])
    function.__name__ = op.name
    return function


def scaled(op: Op, factor: float, kinds=("vjp", "jvp")) -> Op:
    """Rules that are `factor` times the derivative: they show which code ran."""

    @functools.wraps(op.vjp)  # a rule is handed the constants that it asks for by name
    def vjp(xp, ct, out, *inputs, **static):
        found = as_tuple(op.vjp(xp, ct, out, *inputs, **static))
        return tuple(None if g is None else factor * g for g in found)

    @functools.wraps(op.jvp or op.vjp)
    def jvp(xp, tangents, out, *inputs, **static):
        found = as_tuple(op.jvp(xp, tangents, out, *inputs, **static))
        found = tuple(None if t is None else factor * t for t in found)
        return found if len(found) > 1 else found[0]

    rules = {"vjp": vjp, "jvp": jvp if op.jvp else None}
    return copy(op, **{kind: rules[kind] for kind in kinds})


def factor_of(op: Op, factor: float, mode: str) -> float:
    """What `scaled` rules make of a mode: a tangent of a linear op is its value elsewhere."""
    return 1.0 if op.linear and mode in ("forward mode", "jacfwd") else factor
