"""Ops with a constant, in each of the ways that an op is made; the factor in a rule shows it ran.

They are sum grid x^2.
"""

import numpy as np

from twingrad.interop import (
    Host,
    Op,
    complex_step,
    define,
    finite_difference,
    from_jacobian,
    from_linear,
    from_numpy,
)

GRID = np.array([1.0, 2.0, 4.0])
OTHER = GRID + 1 / 3  # not exact in float32
S = "(n)->()"


def formula(host=False, constants=None, factor=1.0) -> Op:
    """sum grid x^2, by a formula or by NumPy code, with rules that are `factor` times as much."""

    @define(S, host=host, constants={"grid": GRID} if constants is None else constants)
    def energy(xp, x, *, grid):
        return xp.sum(grid * x * x, axis=-1)

    @energy.def_vjp
    def _(xp, ct, out, x, *, grid):
        return factor * 2 * grid * x * ct[..., None]

    @energy.def_jvp
    def _(xp, tangents, out, x, *, grid):
        return factor * xp.sum(2 * grid * x * tangents[0], axis=-1)

    return energy


def value(x, *, grid):
    return np.sum(grid * x * x, axis=-1)


def adjoint(ct, x, *, grid):
    return 2 * grid * x * ct[..., None]


def push(tangents, x, *, grid):
    return np.sum(2 * grid * x * tangents[0], axis=-1)


def slope(x, *, grid):
    return 2 * grid * x


def value_and_slope(x, *, grid):
    return value(x, grid=grid), slope(x, grid=grid)


def second(x, *, grid):
    return np.diag(2 * grid)


def scaled(x, *, grid):
    return grid * x


def scaled_back(y, *, grid):
    return grid * y


def by_another_op(constants) -> Op:
    """Its rules call ops with the same constant, and hand it on."""

    @define("(n)->(n)", host=True, constants=("grid",))
    def weigh(xp, x, *, grid):
        return grid * x

    @define(S, host=True, constants=constants)
    def energy(xp, x, *, grid):
        return xp.sum(grid * x * x, axis=-1)

    @weigh.def_vjp(host=False)
    def _(xp, ct, out, x, *, grid):
        return weigh(xp, ct, grid=grid)

    @energy.def_vjp(host=False)
    def _(xp, ct, out, x, *, grid):
        return 2 * ct[..., None] * weigh(xp, x, grid=grid)

    return energy


def by_an_op_as_rule(constants) -> Op:
    """Its vjp is an op, which gets the constant without being asked."""

    @define("(),(n)->(n)", constants=("grid",))
    def back(xp, ct, x, *, grid):
        return 2 * grid * x * ct[..., None]

    @back.def_vjp
    def _(xp, bar, out, ct, x, *, grid):
        return xp.sum(2 * grid * x * bar, axis=-1), 2 * grid * ct[..., None] * bar

    @define(S, constants=constants)
    def energy(xp, x, *, grid):
        return xp.sum(grid * x * x, axis=-1)

    energy.def_vjp(back)
    return energy


ONE_BY_ONE = Host(vectorize=True)

# name -> an op with these constants, which is sum grid x^2
WAYS = {
    "formula": lambda c: formula(False, c),
    "NumPy code": lambda c: formula(True, c),
    "NumPy code, one by one": lambda c: formula(ONE_BY_ONE, c),
    "rules call ops": by_another_op,
    "an op as rule": by_an_op_as_rule,
    "from_numpy": lambda c: from_numpy(value, signature=S, vjp=adjoint, jvp=push, constants=c),
    "from_jacobian": lambda c: from_jacobian(value, slope, signature=S, hess=second, constants=c),
    "jac=True": lambda c: from_jacobian(value_and_slope, True, signature=S, constants=c),
    "differences": lambda c: finite_difference(value, signature=S, constants=c),
    "complex step": lambda c: complex_step(value, signature=S, constants=c),
}


def ops(way):
    """With the constant from the start, exchanged, and given later."""
    make = WAYS[way]
    first, later = make({"grid": GRID}), make(("grid",))
    pairs = [(first, GRID), (first.with_constants(grid=OTHER), OTHER)]
    return [*pairs, (later.with_constants(grid=OTHER), OTHER)]


def linear(constants=None) -> Op:
    """grid x, linear in x."""
    given = {"grid": GRID} if constants is None else constants
    return from_linear(scaled, scaled_back, signature="(n)->(n)", constants=given)


@define(S, constants={"grid": GRID})
def energy_of_module(xp, x, *, grid):
    """sum grid x^2, held by its module."""
    return xp.sum(grid * x * x, axis=-1)


@energy_of_module.def_vjp
def _(xp, ct, out, x, *, grid):
    return 2 * grid * x * ct[..., None]


@define("params: {scale: (n), offset: ()}, (n)->()", constants={"grid": GRID})
def structured_of_module(xp, params, x, *, grid):
    """sum scale grid x + offset, of arguments with structure."""
    return xp.sum(params["scale"] * grid * x, axis=-1) + params["offset"]


@structured_of_module.def_vjp
def _(xp, ct, out, params, x, *, grid):
    wide = ct[..., None] * grid
    return {"scale": wide * x, "offset": ct}, wide * params["scale"]
