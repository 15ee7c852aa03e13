"""Ops from noisy functions that have no adjoint: estimates of the gradient along random directions.

They take one more argument, an integer seed, so that they are functions: the same seed gives
the same directions.  Give another one at each step of an optimisation.  An infinite or NaN input
is not moved: its gradient is 0, as with `finite_difference`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from twingrad.interop.errors import ArgumentError
from twingrad.interop.host.external import from_numpy
from twingrad.interop.host.perturbed import Array, Points, apart, used
from twingrad.interop.op.definition import Op
from twingrad.interop.op.pickling import remembered
from twingrad.interop.op.samples.host import Host, OnBatches
from twingrad.interop.op.structure.making import structured

Function = Callable[..., Any]
Draw = Callable[[np.random.Generator, tuple[int, int]], Array]


@remembered
@structured(rest=("seed",))
def spsa(
    f: Function,
    *,
    signature: str,
    step: float,
    directions: int = 1,
    dtypes: Any = None,
    constants: Any = (),
    host: Host | bool = True,
    name: str | None = None,
) -> Op:
    """An op ``(*inputs, seed)`` with the simultaneous-perturbation estimate of its gradient.

    g = mean over the directions d of (f(x + c d) - f(x - c d)) / 2c  d, each entry of d +1 or -1
    at random, c the step.  Its mean is the gradient, up to c^2/6 times third derivatives; its
    variance is about |g|^2 per entry and falls with the number of directions, at two values
    each, however many numbers a sample has.

    Args:
        f: ``f(*inputs)``, without the seed, as for `finite_difference`.
        signature: gufunc notation of f; the op has one more argument, the seed, shape ().
        step: c.  For values with a noise of standard deviation s the estimate's is s / (c sqrt 2).
        directions: how many are drawn for each sample.
        dtypes: of the outputs, see `define`.
        constants: as for `from_numpy`.
        host: see `Host`.
        name: the op's name in error messages; that of f if None.

    Raises:
        ArgumentError: a step or number of directions that is not positive.
        SignatureError: as `from_numpy`.

    Reference: J. C. Spall (1992), "Multivariate stochastic approximation using a simultaneous
    perturbation gradient approximation", IEEE Trans. Automatic Control 37, 332-341, eq. 2.2.
    """

    def signs(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        return rng.choice([-1.0, 1.0], shape)

    plain = from_numpy(
        f, signature=signature, dtypes=dtypes, constants=constants, host=host, name=name
    )
    return _along_random(plain, ("step", step), directions, signs)


@remembered
@structured(rest=("seed",))
def gaussian_smoothing(
    f: Function,
    *,
    signature: str,
    sigma: float,
    directions: int = 16,
    dtypes: Any = None,
    constants: Any = (),
    host: Host | bool = True,
    name: str | None = None,
) -> Op:
    """An op ``(*inputs, seed)`` with the antithetic estimate of its smoothed gradient.

    The gradient of F(x) = E f(x + sigma e), e standard normal:
    g = mean over the directions e of (f(x + sigma e) - f(x - sigma e)) / 2 sigma  e.
    It is defined where f has jumps; for a smooth f it differs from the gradient by sigma^2/2
    times third derivatives.

    Args:
        f: ``f(*inputs)``, without the seed, as for `finite_difference`.
        signature: gufunc notation of f; the op has one more argument, the seed, shape ().
        sigma: the width of the smoothing.
        directions: how many are drawn for each sample, at two values each.
        dtypes: of the outputs, see `define`.
        constants: as for `from_numpy`.
        host: see `Host`.
        name: the op's name in error messages; that of f if None.

    Raises:
        ArgumentError: a sigma or number of directions that is not positive.
        SignatureError: as `from_numpy`.

    Reference: Y. Nesterov and V. Spokoiny (2017), "Random gradient-free minimization of convex
    functions", Found. Comput. Math. 17, 527-566, eq. 30 (their mu is our sigma).
    """

    def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        return rng.standard_normal(shape)

    plain = from_numpy(
        f, signature=signature, dtypes=dtypes, constants=constants, host=host, name=name
    )
    return _along_random(plain, ("sigma", sigma), directions, normal)


# With y the outputs and D the directions, the Jacobian is estimated by
#   J = mean_d (y(x + c d) - y(x - c d)) / 2c  d^T;   vjp: J^T ct,   jvp: J t,
# from the same directions for one seed, so that ct (J t) = (J^T ct) t.
def _along_random(plain: Op, width: tuple[str, float], directions: int, draw: Draw) -> Op:
    for what, value in (width, ("number of directions", directions)):
        if not value > 0:
            raise ArgumentError(f"{plain.label}: the {what} is {value}; expected a positive one")
    op, c = _with_seed(plain), width[1]

    def estimate(inputs: tuple[Array, ...], static: dict[str, Any]) -> tuple[Points, Array, Array]:
        *given, seed = inputs
        points = Points(plain, given, static)
        d = np.where(points.finite, _directions(draw, seed, points, directions), 0)
        y = points.at(np.concatenate([points.x + c * d, points.x - c * d]))
        return points, d, (y[:directions] - y[directions:]) / (2 * c * directions)

    @OnBatches
    def vjp(xp: Any, ct: Any, out: Any, *inputs: Array, **static: Any) -> Any:
        points, d, slopes = estimate(inputs, static)
        return (*points.pull(np.einsum("dbm,dbn->nbm", slopes, d), ct), None)

    @OnBatches
    def jvp(xp: Any, tangents: Any, out: Any, *inputs: Array, **static: Any) -> Any:
        points, d, slopes = estimate(inputs, static)
        along = points.join([tangents[i] for i in points.moving])
        weights = np.einsum("dbn,bn->db", np.broadcast_to(d, (len(d), *along.shape)), along)
        spread = np.broadcast_to(slopes, (*weights.shape, slopes.shape[-1]))
        return apart(np.einsum("dbm,db->bm", used(spread, weights[..., None]), weights), out)

    op.def_vjp(vjp)
    op.def_jvp(jvp)
    return op


def _with_seed(plain: Op) -> Op:
    """The op with one more argument, which its value does not depend on."""
    signature = type(plain.signature)((*plain.signature.inputs, ()), plain.signature.outputs)

    @OnBatches
    def forward(xp: Any, *args: Array, **static: Any) -> Any:
        size = max(len(x) for x in args)
        found = plain.forward(xp, *args[:-1], **static)
        outs = found if isinstance(found, tuple) else (found,)
        return tuple(np.broadcast_to(y, (size, *np.shape(y)[1:])) for y in outs)

    op = Op(
        forward,
        signature,
        name=plain.name,
        names=(*plain.names, "seed"),
        statics={**plain.statics, **dict.fromkeys(plain.constants)},
        host=plain.host,
        dtypes=plain.dtypes,
        constants=plain.constants,
        defaults=plain.defaults,
    )
    op.__doc__, op.__module__ = plain.__doc__, plain.__module__
    return op


def _directions(draw: Draw, seed: Array, points: Points, count: int) -> Array:
    """(D, B, n): for each sample those that follow from its seed and its place in the batch."""
    size, n = points.x.shape
    seeds = np.broadcast_to(np.real(seed).astype(np.int64), (size,))
    drawn = [
        draw(np.random.default_rng([int(s) & (2**63 - 1), place]), (count, n))
        for place, s in enumerate(seeds)
    ]
    return np.stack(drawn, axis=1) if drawn else np.zeros((count, 0, n))
