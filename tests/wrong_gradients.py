"""Ops with seeded wrong gradients, for the gradient check: what is wrong, and in which input.

Each is a right op of `right_ops` with one thing changed in what a rule returns.  The check must
find every one, and name the pattern.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests import right_ops as right
from tests.copies import copy
from twingrad.interop.check import PATTERNS


@dataclass(frozen=True)
class Wrong:
    """A target with a fault.

    Attributes:
        name: the op, and what is wrong with it.
        make: builds the target.
        patterns: the diagnoses that are right; mostly one.
        wrong: the inputs whose gradient is wrong.
        draw: inputs, from a generator.
    """

    name: str
    make: Callable[[], Any]
    patterns: tuple[str, ...]
    wrong: tuple[str, ...]
    draw: Callable[[np.random.Generator], tuple[np.ndarray, ...]]

    def __post_init__(self):
        assert set(self.patterns) <= {*PATTERNS}, self.patterns


def tuple_of(value):
    return value if isinstance(value, tuple) else (value,)


def edited(op, change, kind="vjp"):
    """The op with change(xp, found, ct, out, *inputs) applied to the list a rule returns."""
    rule = getattr(op, kind)

    def made(xp, ct, out, *inputs):
        found = list(tuple_of(rule(xp, ct, out, *inputs)))
        change(xp, found, ct, out, *inputs)
        return tuple(found) if len(found) > 1 else found[0]

    return copy(op, **{kind: made})


WRONG_OPS = []


def fault(base, what, patterns, wrong, change, kind="vjp"):
    """Add an op whose rule is changed."""
    op, draw = base()
    patterns = (patterns,) if isinstance(patterns, str) else patterns
    name = f"{op.name}: {what}"
    wrong = tuple(wrong.split())
    WRONG_OPS.append(Wrong(name, lambda: edited(base()[0], change, kind), patterns, wrong, draw))


def setter(i, value):
    """A change that replaces gradient i by value(xp, gradient, ct, out, *inputs)."""

    def change(xp, found, ct, out, *inputs):
        found[i] = value(xp, found[i], ct, out, *inputs)

    return change


def times(i, factor):
    return setter(i, lambda xp, g, ct, out, *x: factor * g)


def swap(i, j):
    def change(xp, found, ct, out, *inputs):
        found[i], found[j] = found[j], found[i]

    return change


NORMALISER, CROSS = "normaliser held constant", "cross terms dropped"
OF_INPUT, OF_OUTPUT = "factor of an input", "factor of an output"
SWAPPED, NOT_SUMMED = "right for one, wrong for another: swapped", "broadcast not summed"
EPS, TERM, AXIS = "eps in one pass", "term missing or extra", "wrong axis"
CONSTANT, FLOAT32, SMALL = "constant factor", "float32 inside", "small error"

# softmax: y_i = exp(x_i) / sum_j exp(x_j); x_bar = y (ct - sum y ct)
fault(right.softmax, "ct y", NORMALISER, "x", setter(0, lambda xp, g, ct, y, x: ct * y))
fault(
    right.softmax, "y (1 - y) ct", CROSS, "x", setter(0, lambda xp, g, ct, y, x: ct * y * (1 - y))
)
fault(right.softmax, "twice", CONSTANT, "x", times(0, 2.0))
fault(right.softmax, "minus", "sign", "x", times(0, -1.0))
fault(right.softmax, "0.1 per cent", CONSTANT, "x", times(0, 1.001))
fault(
    right.softmax,
    "0.1 per cent on one term",
    (SMALL, TERM, NORMALISER),
    "x",
    setter(0, lambda xp, g, ct, y, x: y * ct - 1.001 * y * xp.sum(y * ct, axis=-1)[..., None]),
)
fault(right.softmax, "an extra y", OF_OUTPUT, "x", setter(0, lambda xp, g, ct, y, x: g * y))
fault(
    right.softmax,
    "rounded to float32",
    FLOAT32,
    "x",
    setter(0, lambda xp, g, ct, y, x: xp.astype(xp.astype(g, xp.float32), g.dtype)),
)
fault(
    right.softmax,
    "y in float32",
    FLOAT32,
    "x",
    setter(0, lambda xp, g, ct, y, x: right.softmax_rule(xp, ct, right.low(xp, y))),
)
# log_softmax: y = x - log sum exp x; x_bar = ct - exp(y) sum ct
fault(right.log_softmax, "ct", NORMALISER, "x", setter(0, lambda xp, g, ct, y, x: ct))
fault(
    right.log_softmax,
    "sum of ct divided by n",
    (NORMALISER, TERM),
    "x",
    setter(0, lambda xp, g, ct, y, x: ct - xp.exp(y) * xp.mean(ct, axis=-1)[..., None]),
)
fault(
    right.log_softmax,
    "transposed",
    "transpose",
    "x",
    setter(0, lambda xp, g, ct, y, x: ct - xp.sum(xp.exp(y) * ct, axis=-1)[..., None]),
)
# normalise: y = x / |x|; x_bar = (ct - y sum y ct) / |x|
fault(
    right.normalise,
    "norm held constant",
    NORMALISER,
    "x",
    setter(0, lambda xp, g, ct, y, x: ct / right.norm(xp, x)),
)
fault(
    right.normalise,
    "not divided by the norm",
    OF_INPUT,
    "x",
    setter(0, lambda xp, g, ct, y, x: g * right.norm(xp, x)),
)
fault(
    right.normalise,
    "divided by 1e-5 + norm",
    (EPS, SMALL),
    "x",
    setter(0, lambda xp, g, ct, y, x: g * right.norm(xp, x) / (1e-5 + right.norm(xp, x))),
)
fault(right.normalise, "jvp minus", "sign", "x", times(0, -1.0), "jvp")
# rmsnorm of each row: y = w x / r, r = sqrt(mean x^2); the mean is over the last axis
fault(
    right.rmsnorm,
    "correction without the weight",
    TERM,
    "x",
    setter(0, lambda xp, g, ct, y, x, w: right.rmsnorm_rule(xp, ct, x, w, forgot=True)),
)
fault(
    right.rmsnorm,
    "mean along the wrong axis",
    AXIS,
    "x",
    setter(0, lambda xp, g, ct, y, x, w: right.rmsnorm_rule(xp, ct, x, w, axis=-2)),
)
fault(
    right.rmsnorm,
    "eps 1e-5 in the rule only",
    (EPS, SMALL),
    "x",
    setter(0, lambda xp, g, ct, y, x, w: right.rmsnorm_rule(xp, ct, x, w, eps=1e-5)),
)
fault(
    right.rmsnorm,
    "root mean square held constant",
    NORMALISER,
    "x",
    setter(0, lambda xp, g, ct, y, x, w: ct * w[..., None, :] / right.rms(xp, x)),
)
fault(
    right.rmsnorm,
    "weight's gradient from the first row",
    NOT_SUMMED,
    "w",
    setter(1, lambda xp, g, ct, y, x, w: (ct * x / right.rms(xp, x))[..., 0, :]),
)
fault(right.rmsnorm, "weight's gradient reversed", AXIS, "w", setter(1, right.reversed_last))
fault(
    right.rmsnorm,
    "weight's gradient not divided",
    (
        OF_INPUT,
        TERM,
    ),
    "w",
    setter(1, lambda xp, g, ct, y, x, w: xp.sum(ct * x, axis=-2)),
)
# matvec: y = A x; A_bar = ct x^T, x_bar = A^T ct
fault(
    right.matvec,
    "A's gradient minus",
    "sign",
    "A",
    times(0, -1.0),
)
fault(
    right.matvec,
    "x's gradient reversed",
    AXIS,
    "x",
    setter(1, right.reversed_last),
)
fault(
    right.matvec,
    "cotangent shifted",
    AXIS,
    "x",
    setter(
        1,
        lambda xp, g, ct, y, A, x: (
            xp.matvec(xp.matrix_transpose(A), xp.roll(ct, 1, axis=-1))
            if hasattr(xp, "matvec")
            else xp.sum(A * xp.roll(ct, 1, axis=-1)[..., None], axis=-2)
        ),
    ),
)
# quadratic: y = x^T A x; x_bar = (A + A^T) x ct, A_bar = ct x x^T
fault(
    right.quadratic,
    "2 A x for a matrix that is not symmetric",
    (TERM),
    "x",
    setter(0, lambda xp, g, ct, y, x, A: 2 * ct[..., None] * xp.sum(A * x[..., None, :], axis=-1)),
)
fault(right.quadratic, "half", CONSTANT, "x", times(0, 0.5))
fault(
    right.quadratic,
    "A's gradient of the diagonal only",
    ("zero gradient", CROSS, TERM),
    "A",
    setter(1, lambda xp, g, ct, y, x, A: g * xp.eye(3, dtype=g.dtype)),
)
# bilinear: y = a^T M b
fault(right.bilinear, "a's gradient twice", CONSTANT, "a", times(0, 2.0))
fault(
    right.bilinear,
    "M's gradient b a^T",
    "transpose",
    "M",
    setter(1, lambda xp, g, ct, y, a, M, b: xp.matrix_transpose(g)),
)
fault(
    right.bilinear,
    "b's gradient M a",
    ("transpose", AXIS),
    "b",
    setter(2, lambda xp, g, ct, y, a, M, b: ct[..., None] * xp.sum(M * a[..., None, :], axis=-1)),
)
fault(right.bilinear, "a and b exchanged", SWAPPED, "a b", swap(0, 2))
