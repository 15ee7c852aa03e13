"""Right gradients that a checker may fail: rough, steep, large, small, coarse, complex ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests import right_ops as right
from twingrad.interop import define


@dataclass(frozen=True)
class Right:
    """A target whose gradient is right where `draw` puts it."""

    name: str
    make: Callable[[], Any]
    draw: Callable[[np.random.Generator], tuple[Any, ...]]


def _elementwise(function, slope, rules="both"):
    def make():
        @define("(n)->(n)")
        def f(xp, x):
            return function(xp, x)

        if rules != "jvp":
            f.def_vjp(lambda xp, ct, y, x: ct * slope(xp, x))
        if rules != "vjp":
            f.def_jvp(lambda xp, t, y, x: t[0] * slope(xp, x))
        return f

    return make


def _positive(xp, x):
    return xp.astype(x > 0, x.dtype)


def _sign(xp, x):
    return 2 * _positive(xp, x) - 1


def _both_signs(size=4, scale=1.0, dtype="float64"):
    def draw(rng):
        signs = rng.choice([-1.0, 1.0], size)
        return (np.asarray(signs * rng.uniform(0.3, 1.7, size) * scale, dtype),)

    return draw


def _rough():
    """Rounded to ten digits, as the output of a solver with a tolerance."""

    @define("(n)->()", host=True)
    def rough(xp, x):
        return np.round(np.sin(x).sum(-1), 10)

    rough.def_vjp(lambda xp, ct, y, x: ct[..., None] * np.cos(x))
    return rough


def _picked():
    @define("(n),(k)->(k)")
    def picked(xp, x, index):
        integers = xp.__array_namespace_info__().default_dtypes()["indexing"]
        return xp.take_along_axis(x * x, xp.astype(index, integers), axis=-1)

    @picked.def_vjp
    def _(xp, ct, y, x, index):
        places = xp.arange(x.shape[-1], dtype=index.dtype)
        hits = xp.astype(index[..., None] == places, x.dtype)
        return 2 * x * xp.sum(ct[..., None] * hits, axis=-2), None

    return picked


def _largest():
    @define("(n)->()")
    def largest(xp, x):
        return xp.max(x, axis=-1)

    @largest.def_vjp
    def _(xp, ct, y, x):
        return ct[..., None] * xp.astype(x == y[..., None], x.dtype)

    return largest


RIGHT = [
    Right("relu", _elementwise(lambda xp, x: x * _positive(xp, x), _positive), _both_signs()),
    Right("absolute value", _elementwise(lambda xp, x: xp.abs(x), _sign),
          _both_signs()),
    Right("absolute value near 0", _elementwise(lambda xp, x: xp.abs(x), _sign),
          _both_signs(scale=1e-3)),
    Right("maximum", _largest, _both_signs(5)),
    Right("steep", _elementwise(lambda xp, x: xp.tanh(100 * x),
                                lambda xp, x: 100 / xp.cosh(100 * x) ** 2),
          _both_signs(scale=0.02)),
    Right("oscillating", _elementwise(lambda xp, x: xp.sin(50 * x),
                                      lambda xp, x: 50 * xp.cos(50 * x)), _both_signs()),
    Right("large inputs", _elementwise(lambda xp, x: x**3, lambda xp, x: 3 * x * x),
          _both_signs(scale=1e8)),
    Right("small inputs", _elementwise(lambda xp, x: x**3, lambda xp, x: 3 * x * x),
          _both_signs(scale=1e-8)),
    Right("large values", _elementwise(lambda xp, x: xp.exp(20 * x),
                                       lambda xp, x: 20 * xp.exp(20 * x)), _both_signs()),
    Right("float32 inputs", _elementwise(lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x)),
          _both_signs(dtype="float32")),
    Right("float16 inputs", _elementwise(lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x)),
          _both_signs(dtype="float16")),
    Right("vjp only", _elementwise(lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x), "vjp"),
          _both_signs()),
    Right("jvp only", _elementwise(lambda xp, x: xp.sin(x), lambda xp, x: xp.cos(x), "jvp"),
          _both_signs()),
    Right("host code, rough", _rough, _both_signs(3)),
    Right("integer argument", _picked, lambda rng: (rng.normal(size=4), np.array([0, 2, 2]))),
    Right("complex product", right.product, None),
    Right("no entries", right.affine, lambda rng: (np.zeros(0), np.array(1.3), np.array(0.2))),
    *(Right(f"the right {make.__name__}", make, None) for make in (
        right.softmax, right.log_softmax, right.normalise, right.rmsnorm, right.matvec,
        right.quadratic, right.bilinear, right.affine, right.gaussian, right.cumsum, right.power,
        right.hypot, right.moments, right.energy, right.softplus)),
]  # fmt: skip


def target_and_draw(case):
    """What `check` is given; the ops of `right_ops` bring their own inputs."""
    made = case.make()
    op, draw = made if isinstance(made, tuple) else (made, case.draw)
    return op, case.draw or draw
