"""Ops from functions that have no adjoint: their derivatives are differences of their values.

All perturbed points of a whole batch go through the function in one call.  For functions that
are noisy, see `estimators`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twingrad.interop.errors import ArgumentError, RuleError
from twingrad.interop.host.external import from_numpy
from twingrad.interop.host.numeric import Argnums, def_numeric
from twingrad.interop.host.perturbed import Array, Points
from twingrad.interop.op.definition import Op
from twingrad.interop.op.pickling import remembered
from twingrad.interop.op.samples.host import Host
from twingrad.interop.op.structure.functions import Gradients
from twingrad.interop.op.structure.making import argnums as spread
from twingrad.interop.op.structure.making import one_for_each, structured, wrapped

Function = Callable[..., Any]

_EPS = float(np.finfo(np.float64).eps)


# f(x + h) - f(x - h) = 2 h f' + h^3 f'''/3 + ..., and each value has an error e:
#   |error| <= h^2 M / 6 + e / h,      M = max |f'''|                                     (1)
# Its derivative in h is zero at h^3 = 3 e / M, where the error is (9 M e^2 / 8)^(1/3).    (2)
# Rounding alone: e = eps |f|; with |f| about M |x|^3 that is h = cbrt(3 eps) |x|.         (3)
@remembered
@structured(argnums=spread, step=one_for_each, vjp=wrapped(Gradients, "its vjp", 1))
def finite_difference(
    f: Function,
    *,
    signature: str,
    argnums: Argnums | None = None,
    vjp: Function | None = None,
    step: float | Sequence[float] | None = None,
    noise: float | None = None,
    third: float = 1.0,
    dtypes: Any = None,
    constants: Any = (),
    host: Host | bool = True,
    name: str | None = None,
) -> Op:
    """An op whose derivatives are central differences, (f(x + h e_i) - f(x - h e_i)) / 2h.

    A gradient costs 2n values per sample, for n numbers whose gradient is wanted; a tangent costs
    two, along its direction.  Everything is computed in float64, also for float32 inputs.  The
    error is at most h^2 M / 6 + e / h for each entry, with M a bound on the third derivative and
    e the error of a value.  Second derivatives raise MissingRuleError.

    An infinite or NaN input cannot be moved: its derivative is 0 where f is finite there (the
    limit, if there is one), and NaN where it is not.  The others do not feel it.

    Args:
        f: ``f(*inputs)``, NumPy code as `from_numpy` takes it; it must take any batch size.
        signature: gufunc notation.  Integer inputs are left as they are.
        argnums: the arguments, by name or place, whose derivatives are numeric; None: all.
        vjp: the adjoint for the others, as `from_numpy` takes it; without it their derivatives
            raise.  What it returns for `argnums` is not looked at.  Their forward mode raises
            until ``def_jvp_by_rows`` makes it.
        step: h, a number or one for each input; None: the best one for `noise`, or for
            rounding errors where that is None: cbrt(3 eps) max(1, |x_i|), about 8.7e-6.
        noise: the standard deviation of the error of one value; then h = cbrt(3 noise / third).
        third: a bound on the third derivative, for `noise`.
        dtypes: of the outputs, see `define`.
        constants: as for `from_numpy`.
        host: see `Host`.
        name: the op's name in error messages; that of f if None.

    Raises:
        ArgumentError: a step, noise or bound that is not positive, both step and noise, or
            `argnums` has something that is no argument.
        SignatureError: as `from_numpy`.

    Reference: W. H. Press et al., Numerical Recipes (3rd ed. 2007), section 5.7, eq. 5.7.8.
    """
    op = from_numpy(
        f, signature=signature, vjp=vjp, dtypes=dtypes, constants=constants, host=host, name=name
    )
    if step is not None and noise is not None:
        raise ArgumentError(f"{op.label}: give a step or the noise it follows from, not both")
    steps = step if isinstance(step, Sequence) else [step] * len(op.names)
    _check_positive(op, {"noise": noise, "third": third})
    _check_positive(op, {f"step of {n}": h for n, h in zip(op.names, steps, strict=True)})
    fixed = None if noise is None else (3 * noise / third) ** (1 / 3)  # (2)

    def sizes(points: Points) -> Array:
        """h for every number of the batch, (B, n)."""
        moved = [
            np.full(points.inputs[i].shape, np.nan if steps[i] is None else steps[i])
            for i in points.moving
        ]
        reach = np.maximum(1, np.abs(points.x), where=points.finite, out=np.ones_like(points.x))
        best = np.cbrt(3 * _EPS) * reach if fixed is None else fixed  # (3)
        given = points.join(moved)
        return np.where(np.isnan(given), best, given)

    def pull(points: Points, ct: Any) -> tuple[Array, ...]:
        h, n = sizes(points), points.x.shape[1]
        move = np.eye(n)[:, None, :] * h
        up, down = points.x + move, points.x - move
        y = points.at(np.concatenate([up, down]))
        x = np.where(points.finite, points.x, 0)
        width = ((x + h) - (x - h)).T  # as rounded
        slopes = (y[:n] - y[n:]) / width[..., None]
        return points.pull(slopes, ct)

    def push(points: Points, along: Array) -> Array:
        moves = np.abs(along) > 0
        reach = np.where(moves, sizes(points) / np.where(moves, np.abs(along), 1), np.inf)
        scale = np.min(reach, axis=1, initial=np.inf, keepdims=True)
        scale = np.where(np.isfinite(scale), scale, 1.0)
        y = points.at(points.x + scale * along * np.array([1.0, -1.0])[:, None, None])
        return (y[0] - y[1]) / (2 * scale)

    def_numeric(op, argnums, pull, push)
    return op


# f(x + i h) = f(x) + i h f'(x) - h^2 f''(x)/2 - ...: Im f(x + i h) / h = f'(x) - h^2 f'''/6,
# and no difference is taken, so that h can be so small that the second term vanishes.
@remembered
@structured(argnums=spread, vjp=wrapped(Gradients, "its vjp", 1))
def complex_step(
    f: Function,
    *,
    signature: str,
    argnums: Argnums | None = None,
    vjp: Function | None = None,
    constants: Any = (),
    host: Host | bool = True,
    name: str | None = None,
) -> Op:
    """An op whose derivatives are Im f(x + i h e_j) / h with h = 1e-100: exact to rounding.

    For functions that are analytic and take complex arrays: made of +, *, exp, sin, solve and
    the like; not of abs, conj, max or comparisons, whose derivatives come out wrong.  A gradient
    costs n values per sample, a tangent one.  Second derivatives raise MissingRuleError.
    Complex arithmetic makes NaN of many an infinite input (of its square, say), and so of every
    derivative of that sample; `finite_difference` does not.

    Args:
        f: as for `finite_difference`; with complex128 arrays it returns complex ones.
        signature: gufunc notation.  Integer inputs are left as they are.
        argnums: as for `finite_difference`.
        vjp: as for `finite_difference`.
        constants: as for `from_numpy`.
        host: see `Host`.
        name: the op's name in error messages; that of f if None.

    Raises:
        RuleError: f returned real numbers for complex ones, or an input is complex already.
        SignatureError: as `from_numpy`.

    Reference: W. Squire and G. Trapp (1998), "Using complex variables to estimate derivatives
    of real functions", SIAM Review 40, 110-112, eq. 3.
    """
    op, h = (
        from_numpy(f, signature=signature, vjp=vjp, constants=constants, host=host, name=name),
        1e-100,
    )

    def slopes(points: Points, directions: Array) -> Array:
        """The derivatives along directions of shape (P, B or 1, n): (P, B, m)."""
        y = points.at(points.x + 1j * h * directions)
        if y.dtype.kind != "c":
            raise RuleError(
                f"{op.label}: its host function returned {y.dtype} for complex inputs, so its "
                "derivative cannot be seen in them; it must be analytic, without abs, real or max"
            )
        return y.imag / h

    def pull(points: Points, ct: Any) -> tuple[Array, ...]:
        return points.pull(slopes(points, np.eye(points.x.shape[1])[:, None, :]), ct)

    def push(points: Points, along: Array) -> Array:
        return slopes(points, along[None])[0]

    def_numeric(op, argnums, pull, push)
    return op


def _check_positive(op: Op, values: dict[str, float | None]) -> None:
    for what, value in values.items():
        if value is not None and not value > 0:
            raise ArgumentError(f"{op.label}: the {what} is {value}; expected a positive number")
