"""Accuracy at the hard inputs, against mpmath, in torch, JAX and NumPy.

Bounds, relative to the natural size of each block (see `accuracy.error`):

- values and first derivatives 1e-13 in float64 and 2e-5 in float32;
- second derivatives 1e-10 and 1e-3;
- at 35 sigma more: phi(t) = exp(-t^2/2) has t^2 times the relative error of t, and
  t = (lower - mean)/scale is rounded twice; 35^2 = 1225 units of 1.1e-16 are 1.3e-13.
"""

import importlib.util

import numpy as np
import pytest

from tests.accuracy import PARTS, error, evaluate, measured, truths
from tests.closeness import ulps
from tests.op_table import ROWS
from tests.references import truth
from tests.suite import each_row, line

SIDES = ("torch", "jax", "numpy")
BOUNDS = {
    ("float64", 0): 1e-13,
    ("float64", 1): 1e-13,
    ("float64", 2): 1e-10,
    ("float32", 0): 2e-5,
    ("float32", 1): 2e-5,
    ("float32", 2): 1e-3,
}
FAR_OUT = {
    ("float64", 0): 3e-13,
    ("float64", 1): 3e-13,
    ("float64", 2): 1e-10,
    ("float32", 0): 4e-5,
    ("float32", 1): 4e-5,
    ("float32", 2): 2e-2,
}
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
    misses, claims = [], 0
    for part, found in measured(side, row.name, dtype).items():
        worst = 0.0
        for name, got in zip(row.hard, found, strict=True):
            exact = truths(row, name, dtype)
            size = None if exact is None else error(row, dtype, got, exact, part)
            if size is None:
                continue
            bound = (FAR_OUT if "35" in name else BOUNDS)[dtype, PARTS[part]]
            claims, worst = claims + 1, max(worst, size)
            if not size <= bound:
                misses.append(f"{part}, {name}: {size:.1e}, allowed {bound:.0e}")
        record_property(f"worst relative error, {part}", worst)
    assert not misses, "; ".join(misses)
    assert claims > len(row.hard)


@each_row
@line("value")
@each_side
def test_the_value_is_within_its_bound_in_ulps_at_random_inputs(side, row, record_property):
    inputs = row.inputs((200,), seed=5)
    exact = [truth.evaluate(row.truth, [x[i] for x in inputs], 40)[0] for i in range(200)]
    got = evaluate(side, row.op, inputs).reshape(200, -1)
    worst = ulps(
        got, np.array(exact).reshape(200, -1), least=1.0 if "log" in row.name else row.least
    )
    record_property("float64 error in ulps", worst)
    assert worst <= row.ulps[side]


@pytest.mark.parametrize("row", HARD, ids=lambda row: row.name)
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
