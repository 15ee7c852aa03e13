"""One row per op: inputs, independent references, hard inputs, tolerances, capabilities.

The conformance suite runs every property on every row; a new op needs one more row here.
Known failures are data of the row, each with its reason, and strict.  `KINDS` are ops of kinds
that the package does not ship, see `tests.kinds`.
"""

import functools

import numpy as np

from tests import kinds
from tests.hard_inputs import INTERVALS, LAWS, LOG_PROBABILITIES, MIXTURES, POLES, SIGNALS
from tests.op_row import ALL_ORDERS, HOST_LIMITS, Row
from tests.references import linear, textbook, truth, truth_kinds
from twingrad import ops

_MIXTURE = ((-1.0, 1.0), (0.5, 1.5), (0.2, 1.0), (-2.0, -0.5), (0.5, 2.0))


def _dominant(n):
    """A box of matrices with eigenvalues that are near 3 and positive."""
    diagonal = 3.0 * np.eye(n)
    return diagonal - 0.5, diagonal + 0.5


SHIPPED = [
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

KINDS = [
    Row(
        kinds.convolve,
        kind="sizes that are computed from others",
        boxes=((0.5, 1.5), (-1.5, -0.5)),
        textbook=textbook.convolve,
        truth=truth_kinds.convolve,
        hard=SIGNALS,
    ),
    Row(
        kinds.transfer,
        kind="complex numbers, and real ones",
        boxes=((-1.0, 1.0), (-1.5 - 0.5j, -0.5 + 0.5j), (0.5 - 1.0j, 1.5 + 1.0j)),
        textbook=textbook.transfer,
        truth=truth_kinds.transfer,
        least=0.25,
        hard=POLES,
    ),
    Row(
        kinds.intensity,
        kind="real results of complex numbers",
        boxes=((0.5, 1.5), (-1.0 - 1.0j, 1.0 + 1.0j)),
        textbook=textbook.intensity,
        truth=truth_kinds.intensity,
        in_parts=True,
    ),
    Row(
        kinds.spectrum,
        kind="linear, with complex results of real numbers",
        boxes=((0.5, 1.5),),
        textbook=textbook.spectrum,
        truth=truth_kinds.spectrum,
        least=1.0,
    ),
    Row(
        kinds.density,
        kind="a constant, which is no argument",
        boxes=((-1.0, 1.0), (0.5, 1.5)),
        textbook=functools.partial(textbook.density, grid=kinds.GRID),
        truth=functools.partial(truth_kinds.density, grid=kinds.GRID),
    ),
    Row(
        kinds.decay_of_object,
        kind="structured arguments: a dataclass, and one that is None",
        boxes=((0.5, 1.5), (-1.5, -0.5), (-1.0, 1.0)),
        textbook=textbook.decay,
        truth=truth_kinds.decay,
    ),
    Row(
        kinds.integrals,
        kind="linear, with a static parameter that is a size",
        boxes=((0.5, 1.5),),
        textbook=textbook.integrals,
        truth=truth_kinds.integrals,
        limits=ALL_ORDERS,
    ),
]

ROWS = [*SHIPPED, *KINDS]
