"""Wrong gradients that are not a change of one rule: second order, impure and coarse code."""

import numpy as np

from tests import right_ops as right
from tests.copies import copy
from tests.wrong_gradients import SMALL, WRONG_OPS, Wrong
from twingrad.interop import define


def extra(name, make, patterns, wrong, draw):
    """Faults that are not a change of one rule."""
    patterns = (patterns,) if isinstance(patterns, str) else patterns
    WRONG_OPS.append(Wrong(name, make, patterns, tuple(wrong.split()), draw))


def _softplus_without_its_second_path():
    op, _ = right.softplus()
    return copy(op, vjp=lambda xp, ct, out, x: ct[0] * out[1])


extra(
    "softplus: nothing flows back through the hidden output",
    _softplus_without_its_second_path,
    "second order only",
    "x",
    right.uniform((3,), low=-1.5),
)


def _clipped():
    op, _ = right.hypot()

    def vjp(xp, ct, y, a, b):
        return xp.clip(ct, -0.5, 0.5) * a / y, ct * b / y

    return copy(op, vjp=vjp)


extra("hypot: the cotangent is clipped", _clipped, "not linear", "a", right.uniform((4,), (4,)))


def _noisy():
    rng = np.random.default_rng(0)

    @define("(n)->()", host=True)
    def noisy(xp, x):
        return np.sin(x).sum(-1)

    noisy.def_vjp(lambda xp, ct, y, x: ct[..., None] * np.cos(x) * rng.uniform(0.5, 1.5))
    return noisy


extra("noisy: random numbers in the adjoint", _noisy, "not pure", "x", right.uniform((3,)))


def _counting():
    calls = []

    @define("(n)->()", host=True)
    def counting(xp, x):
        calls.append(1)
        return (1 + 1e-3 * len(calls)) * np.sin(x).sum(-1)

    counting.def_vjp(lambda xp, ct, y, x: ct[..., None] * np.cos(x))
    return counting


extra("counting: the value depends on the calls", _counting, "not pure", "x", right.uniform((3,)))


def _second_op_wrong():
    @define("(),(n)->(n)", host=True)
    def slope(xp, ct, x):
        return ct[..., None] * np.cos(x)

    slope.def_vjp(
        lambda xp, v, out, ct, x: ((v * np.cos(x)).sum(-1), v * ct[..., None] * np.sin(x))
    )

    @define("(n)->()", host=True)
    def waves(xp, x):
        return np.sin(x).sum(-1)

    waves.def_vjp(slope)
    return waves


extra(
    "waves: the sign of the adjoint's own adjoint",
    _second_op_wrong,
    "second order only",
    "x",
    right.uniform((3,)),
)


def _lossy():
    @define("(n)->(n)")
    def lossy(xp, x):
        return xp.expm1(x)

    lossy.def_vjp(lambda xp, ct, y, x: ct * ((1e6 + xp.exp(x)) - 1e6))
    return lossy


extra(
    "lossy: digits lost by adding a large number",
    _lossy,
    ("lost digits", "float32 inside", SMALL),
    "x",
    right.uniform((3,)),
)
