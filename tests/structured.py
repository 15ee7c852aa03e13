"""Ops with structured arguments, as functions of the arrays in them; and copies of them.

A row of the op table has the ordinary op of one structure.  The suite calls what users call,
the function of the structured op, and puts the arrays into their places here.
"""

import inspect

from twingrad.interop import define
from twingrad.interop.op.signature import as_tuple


def called(op, bind):
    """The bound function of an op; of a structured one, with the arrays for its arguments."""
    if op.origin is None:
        return bind(op)
    bound, frame, absent = bind(op.origin[0]), op.frame, object()
    first, *others = op.origin[0].names

    def call(*leaves):
        missing = [absent] * (len(op.names) - len(leaves))
        built = dict(zip((first, *others), frame.build([*leaves, *missing]), strict=True))
        given = {name: built[name] for name in reversed(others) if built[name] is not absent}
        return bound(built[first], **given)

    call.vjp = lambda ct, *x: frame.collect(bound.vjp(ct, *frame.build(x)))
    call.jvp = lambda t, *x: bound.jvp(frame.build(t), *frame.build(x))
    return call


def copied(op, function, vjp, jvp, **options):
    """The structured op with this function and these rules, which are of the arrays."""
    family, frame = op.origin[0], op.frame

    def like(before):
        first = dict.fromkeys(("xp", "seeds", "out")[:before], inspect.Parameter.empty)
        names = first | {n: family.defaults.get(n, inspect.Parameter.empty) for n in family.names}
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        found = [inspect.Parameter(name, kind, default=default) for name, default in names.items()]
        return inspect.Signature(found)

    def forward(xp, *args):
        return function(xp, *frame.collect(args))

    def pull(xp, ct, out, *args):
        return tuple(frame.build(as_tuple(vjp(xp, ct, out, *frame.collect(args)))))

    def push(xp, tangents, out, *args):
        return jvp(xp, frame.collect(tangents), out, *frame.collect(args))

    forward.__signature__, forward.__name__ = like(1), op.name
    pull.__signature__ = push.__signature__ = like(3)
    made = define(family.notation.written(len(family.notation.outputs)), **options)(forward)
    if vjp:
        made.def_vjp(pull)
    if jvp:
        made.def_jvp(push)
    return made.flat(op.origin[1])
