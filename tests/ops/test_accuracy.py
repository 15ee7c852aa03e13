"""Accuracy at the hard inputs, against mpmath, in torch, JAX and NumPy.

The bounds stand in `accuracy.check`; `test_accuracy_modes` has the compilers.
"""

import importlib.util

import numpy as np
import pytest

from tests import pairs
from tests.accuracy import check, evaluate, measured, truths
from tests.closeness import ulps
from tests.op_table import ROWS
from tests.suite import each_row, line

SIDES = ("torch", "jax", "numpy")
HARD = [row for row in ROWS if row.hard]
each_side = pytest.mark.parametrize("side", SIDES)
each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


@pytest.fixture(autouse=True)
def _only_where_installed(request):
    side = request.node.callspec.params["side"]
    if importlib.util.find_spec(side) is None:
        pytest.skip(f"{side} is not installed")


@each_dtype
@pytest.mark.parametrize("row", HARD, ids=lambda row: row.name)
@each_side
def test_hard_inputs(side, row, dtype, record_property):
    """All parts in one test, so that each is measured and its truth computed once."""
    check(row, dtype, measured(side, row.name, dtype), record_property)


@each_row
@line("value")
@each_side
def test_the_value_is_within_its_bound_in_ulps_at_random_inputs(side, row, record_property):
    inputs = row.inputs((200,), seed=5)
    exact = [row.exact([x[i] for x in inputs], 40)[0] for i in range(200)]
    got = pairs.split(pairs.NUMPY, evaluate(side, row.op, inputs)).reshape(200, -1)
    worst = ulps(
        got, np.array(exact).reshape(200, -1), least=1.0 if "log" in row.name else row.least
    )
    record_property("float64 error in ulps", worst)
    assert worst <= row.ulps[side]


@pytest.mark.parametrize("row", [row for row in HARD if not row.kind], ids=lambda row: row.name)
@each_side
def test_an_impossible_interval_gives_nan_or_the_limit(side, row):
    """lower = upper is the limit, -inf for a log mass; lower > upper is NaN."""
    if row.name == "log1mexp":
        limit, beyond = evaluate(side, row.op, (np.float64(0.0),)), (np.float64(1.0),)
        assert limit == -np.inf
    else:
        name = "centre" if "centre" in row.hard else "centre, alike"
        *rest, lower, upper = (np.asarray(x, np.float64) for x in row.hard[name])
        limit, beyond = evaluate(side, row.op, (*rest, lower, lower)), (*rest, upper, lower)
        sign = 1 if row.name.endswith("weights") else -1
        assert np.all(limit == sign * np.inf)
    assert np.all(np.isnan(evaluate(side, row.op, beyond)))


@each_side
def test_log_weights_with_a_weight_0_are_right_for_the_other_weights(side):
    """log w_i is -inf where p_i = 0; every other entry, and its derivatives, stay finite."""
    row = next(row for row in ROWS if row.name == "truncated_mixture_log_weights")
    dead = {"a weight 0": [0], "two weights 0": [0, 2], "a weight 0, right 9 sigma": [1]}
    for name, which in dead.items():
        at = list(row.hard).index(name)
        value, first, _ = truths(row, name, "float64")
        live = [i for i in range(3) if i not in which]
        found = measured(side, row.name, "float64")
        assert np.all(found["value"][at][which] == -np.inf)
        # log p - log Z cancels here: log Z itself is near -40 at 9 sigma
        np.testing.assert_allclose(found["value"][at][live], value[live], rtol=1e-13, atol=4e-14)
        for part in ("reverse", "forward"):
            got = found[part][at][live]
            scale = np.max(np.abs(first[live]))
            np.testing.assert_allclose(got, first[live], rtol=0, atol=1e-13 * scale, err_msg=part)
