"""What the suite must know of an op: `Row`, and the limits of kinds of op."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.references import linear, truth
from twingrad.interop import ExportError, MissingRuleError, Op, TwingradError
from twingrad.interop.op.sizes import names_in, value_of

SIZES = {
    "k": 3,
    "n": 4,
    "m": 2,
    "z": len(linear.ROWS),
    "times": 2,
}  # unequal, so that a transposed result has the wrong shape

Shape = tuple[int, ...]


_ULPS = dict.fromkeys(("torch", "numpy", "jax"), 8.0)
_AGREEMENT = {(side, dtype): 16.0 for side in ("torch", "jax") for dtype in ("float64", "float32")}

# the complex dtype of a precision; there is none below float32
COMPLEX = {"float64": "complex128"} | dict.fromkeys(("float32", "float16", "bfloat16"), "complex64")

REAL = {"complex128": "float64", "complex64": "float32"}


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
            Complex ends are those of a complex argument.
        textbook: textbook(lib, *inputs, **static), differentiable by the framework.
        fixed: name -> value of the integer arguments.  The suite holds them fixed: to all of
            it the op is a function of the others (see `tests.fixed`), and so are the boxes,
            names, cores and inputs of the row, and its references.
        truth: the mpmath closed form, see `tests.references.truth`.
        in_parts: the truth is that of real and imaginary parts, one after the other; else it is
            holomorphic in each complex argument.
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
        kind: what the op stands for, where it is not one that the package ships.
    """

    op: Op
    boxes: tuple[tuple[Any, Any], ...]
    textbook: Callable[..., Any]
    truth: Callable[..., Any]
    fixed: dict[str, np.ndarray] = field(default_factory=dict)
    in_parts: bool = False
    hard: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    digits: int = 400
    order: int = 99
    limits: dict[tuple[str, str], Limit] = field(default_factory=dict)
    ulps: dict[str, float] = field(default_factory=lambda: {**_ULPS})
    least: float = 0.0
    agreement: dict[tuple[str, str], float] = field(default_factory=lambda: {**_AGREEMENT})
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    kind: str = ""

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def sizes(self) -> dict[Any, int]:
        """The size of each core dimension in the suite, fixed and computed ones included."""
        signature = self.op.signature
        dims = [dim for core in (*signature.inputs, *signature.outputs) for dim in core]
        sizes = {name: SIZES[name] for dim in dims for name in names_in(dim)}
        return {dim: value_of(dim, sizes) for dim in dims}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.op.names if name not in self.fixed)

    @property
    def cores(self) -> tuple[Shape, ...]:
        named = zip(self.op.names, self.op.signature.inputs, strict=True)
        return tuple(
            tuple(self.sizes[d] for d in core) for name, core in named if name not in self.fixed
        )

    @property
    def complex_inputs(self) -> tuple[bool, ...]:
        return tuple(np.iscomplexobj(np.asarray(box)) for box in self.boxes)

    @property
    def complex_result(self) -> bool:
        declared = self.op.dtypes[0]
        return any(self.complex_inputs) if declared is None else declared == "complex"

    def dtypes(self, precision: str) -> list[str]:
        """The dtype of each argument and, last, of the result."""
        own = [COMPLEX[precision] if c else precision for c in self.complex_inputs]
        # there is no complex number of less than float32
        real = REAL[COMPLEX[precision]] if any(self.complex_inputs) else precision
        return [*own, COMPLEX[precision] if self.complex_result else real]

    def exact(self, inputs: Sequence[np.ndarray], digits: int) -> tuple[np.ndarray, ...]:
        """(value, first, second) of one sample, flat, in the parts of all that is complex."""
        found = truth.evaluate(self.truth, inputs, digits)
        if self.in_parts:
            return found
        return truth.in_parts(found, np.repeat(self.complex_inputs, [x.size for x in inputs]))

    def inputs(
        self, batch: Any = (), seed: int = 0, dtype: str = "float64"
    ) -> tuple[np.ndarray, ...]:
        """Random inputs; `batch` is one batch shape, or a list with one for each argument."""
        rng = np.random.default_rng(seed)
        batches = batch if isinstance(batch, list) else [batch] * len(self.boxes)

        def draw(box: Any, shape: Shape) -> Any:
            if not np.iscomplexobj(np.asarray(box)):
                return rng.uniform(*box, shape)
            return rng.uniform(*np.real(box), shape) + 1j * rng.uniform(*np.imag(box), shape)

        given = zip(self.boxes, batches, self.cores, self.dtypes(dtype)[:-1], strict=True)
        return tuple(
            np.asarray(draw(box, (*shape, *core)), name) for box, shape, core, name in given
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
