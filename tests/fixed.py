"""Ops with integer arguments, as functions of the other ones, which can move.

A row of the op table says what its integer arguments are; the suite holds them fixed.  Tests
of the op itself batch them, too.
"""

from tests.op_table import ROWS
from tests.structured import called
from twingrad.interop.numpy import bind

_FIXED = {row.name: row.fixed for row in ROWS if row.fixed}


def hold(op, function, array=lambda x: x):
    """`function`, which takes the op's arguments, of the moving ones alone.

    `array(x)` makes a fixed argument; it may return a function of the first moving one.
    """
    fixed = {name: array(x) for name, x in _FIXED.get(op.name, {}).items()}

    def held(*moving):
        rest, args = list(moving), []
        for name in op.names:
            if name in fixed:
                x = fixed[name]
                args.append(x(moving[0]) if callable(x) else x)
            elif rest:
                args.append(rest.pop(0))
        return function(*args)

    return held if fixed else function


def numpy_function(op):
    """The NumPy binder's function, `vjp` and `jvp` of the moving arguments."""
    bound = called(op, bind)
    if op.name not in _FIXED:
        return bound
    held = hold(op, bound)

    def vjp(ct, *moving):
        found = hold(op, lambda *x: bound.vjp(ct, *x))(*moving)
        return tuple(g for g in found if g is not None)

    held.vjp = vjp
    return held
