"""One row per op: inputs, independent references, hard inputs, tolerances, capabilities.

The conformance suite runs every property on every row; a new op needs one more row here.
Known failures are data of the row, each with its reason, and strict.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.hard_inputs import INTERVALS, LAWS, LOG_PROBABILITIES, MIXTURES
from tests.references import linear, textbook, truth
from twingrad import ops
from twingrad.interop import ExportError, MissingRuleError, Op, TwingradError

SIZES = {
    "k": 3,
    "n": 4,
    "m": 2,
    "z": len(linear.ROWS),
}  # unequal, so that a transposed result has the wrong shape

Shape = tuple[int, ...]


_ULPS = dict.fromkeys(("torch", "numpy", "jax"), 8.0)
_AGREEMENT = {(side, dtype): 16.0 for side in ("torch", "jax") for dtype in ("float64", "float32")}


@dataclass(frozen=True)
class Limit:
    """Why a property cannot hold, and the error of ours that says so to the user."""

    why: str
    link: str
    error: type[TwingradError]

    def __str__(self) -> str:
        return f"{self.why}: [{self.error.__name__}]({self.link})"


@dataclass(frozen=True)
class Row:
    """What the suite must know of an op.

    Attributes:
        op: the op.
        boxes: for each argument the interval of its random values, or the lowest and the
            highest value of each entry: moderate, where the textbook formula is accurate.
        textbook: textbook(lib, *inputs, **static), differentiable by the framework.
        fixed: name -> value of the integer arguments.  The suite holds them fixed: to all of
            it the op is a function of the others (see `tests.fixed`), and so are the boxes,
            names, cores and inputs of the row, and its references.
        truth: the mpmath closed form, see `tests.references.truth`.
        hard: name -> inputs at which accuracy is promised.
        digits: of the mpmath arithmetic at the hard inputs: more than the logarithm cancels.
        order: how many derivatives are known; one more raises MissingRuleError.
        limits: (line of the conformance table, torch or JAX) -> a property that this kind of
            op cannot have; the suite asserts its error instead.
        ulps: bound on the float64 error of the value at random inputs, for each framework
            (torch, jax, numpy).
        least: an entry smaller than this is measured in the ulps of this: the logarithm of
            something near 1 is as good as its argument, a solution as its largest entry.
        agreement: bound on the float64 and float32 difference from the NumPy binder, in ulps
            of the largest entry of each array.
        known: (property or case, side) -> reason, of strict expected failures.
    """

    op: Op
    boxes: tuple[tuple[Any, Any], ...]
    textbook: Callable[..., Any]
    truth: Callable[..., Any]
    fixed: dict[str, np.ndarray] = field(default_factory=dict)
    hard: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    digits: int = 400
    order: int = 99
    limits: dict[tuple[str, str], Limit] = field(default_factory=dict)
    ulps: dict[str, float] = field(default_factory=lambda: {**_ULPS})
    least: float = 0.0
    agreement: dict[tuple[str, str], float] = field(default_factory=lambda: {**_AGREEMENT})
    known: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def sizes(self) -> dict[Any, int]:
        """The size of each core dimension in the suite, fixed ones included."""
        signature = self.op.signature
        dims = [dim for core in (*signature.inputs, *signature.outputs) for dim in core]
        return {dim: dim if isinstance(dim, int) else SIZES[dim] for dim in dims}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.op.names if name not in self.fixed)

    @property
    def cores(self) -> tuple[Shape, ...]:
        named = zip(self.op.names, self.op.signature.inputs, strict=True)
        return tuple(
            tuple(self.sizes[d] for d in core) for name, core in named if name not in self.fixed
        )

    def inputs(
        self, batch: Any = (), seed: int = 0, dtype: str = "float64"
    ) -> tuple[np.ndarray, ...]:
        """Random inputs; `batch` is one batch shape, or a list with one for each argument."""
        rng = np.random.default_rng(seed)
        batches = batch if isinstance(batch, list) else [batch] * len(self.boxes)
        return tuple(
            np.asarray(rng.uniform(*box, (*shape, *core)), dtype)
            for box, shape, core in zip(self.boxes, batches, self.cores, strict=True)
        )


NO_THIRD_ORDER = Limit(
    "external code has the derivatives that were written for it; these go to the second order",
    "https://docs.jax.dev/en/latest/external-callbacks.html",
    MissingRuleError,
)
NOT_EXPORTED = Limit(
    "JAX exports no program that calls back into Python",
    "https://github.com/jax-ml/jax/blob/jax-v0.10.2/jax/_src/export/_export.py#L1102",
    ExportError,
)
HOST_LIMITS = {
    ("third derivative", "torch"): NO_THIRD_ORDER,
    ("third derivative", "JAX"): NO_THIRD_ORDER,
    ("exported", "JAX"): NOT_EXPORTED,
    ("exported gradient", "JAX"): NOT_EXPORTED,
    ("for cuda", "JAX"): NOT_EXPORTED,
}

# A rule of these is written in calls of the op itself: derivatives of every order are known.
ALL_ORDERS = {key: limit for key, limit in HOST_LIMITS.items() if limit is not NO_THIRD_ORDER}

_MIXTURE = ((-1.0, 1.0), (0.5, 1.5), (0.2, 1.0), (-2.0, -0.5), (0.5, 2.0))


def _dominant(n):
    """A box of matrices with eigenvalues that are near 3 and positive."""
    diagonal = 3.0 * np.eye(n)
    return diagonal - 0.5, diagonal + 0.5


ROWS = [
    Row(
        ops.log1mexp,
        boxes=((-3.0, -0.2),),
        textbook=textbook.log1mexp,
        truth=truth.log1mexp,
        hard=LOG_PROBABILITIES,
    ),
    Row(
        ops.log_ndtr_diff,
        boxes=((-2.0, -0.3), (0.3, 2.0)),
        textbook=textbook.log_ndtr_diff,
        truth=truth.log_ndtr_diff,
        hard=INTERVALS,
    ),
    Row(
        ops.truncated_normal_log_mass,
        boxes=((-1.0, 1.0), (0.5, 1.5), (-2.0, -0.5), (0.5, 2.0)),
        textbook=textbook.truncated_normal_log_mass,
        truth=truth.truncated_normal_log_mass,
        hard=LAWS,
    ),
    Row(
        ops.truncated_mixture_log_normalizer,
        boxes=_MIXTURE,
        textbook=textbook.log_normalizer,
        truth=truth.log_normalizer,
        hard=MIXTURES,
        digits=120,
    ),
    Row(
        ops.truncated_mixture_weights,
        boxes=_MIXTURE,
        textbook=textbook.weights,
        truth=truth.weights,
        hard=MIXTURES,
        digits=120,
    ),
    Row(
        ops.truncated_mixture_log_weights,
        boxes=_MIXTURE,
        textbook=textbook.log_weights,
        truth=truth.log_weights,
        hard=MIXTURES,
        digits=120,
    ),
    Row(
        ops.rosenbrock,
        boxes=((-1.5, 1.5),),
        textbook=textbook.rosenbrock,
        truth=truth.rosenbrock,
        order=2,
        limits=HOST_LIMITS,
    ),
    Row(
        ops.sparse_solve,
        boxes=(linear.SPARSE_BOX, (-1.0, 1.0)),
        textbook=textbook.sparse_solve,
        least=0.25,
        truth=truth.sparse_solve,
        fixed={"rows": np.array(linear.ROWS), "cols": np.array(linear.COLS)},
        limits=ALL_ORDERS,
    ),
    Row(
        ops.solve_sylvester,
        boxes=(_dominant(2), _dominant(4), (-1.0, 1.0)),
        textbook=textbook.solve_sylvester,
        least=0.25,
        truth=truth.solve_sylvester,
        limits=ALL_ORDERS,
    ),
]
