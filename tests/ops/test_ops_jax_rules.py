"""In JAX the hand-written rule of every op is the one that runs, in every mode.

The rules are made 100 times the derivative.  Autodiff of the forward function would give the
derivative itself, so a factor of 100 in the result shows that the rule ran.
"""

import pytest

pytest.importorskip("jax")

from tests import properties, properties_batch, side_jax  # noqa: E402
from tests.copies import factor_of, scaled  # noqa: E402
from tests.op_table import ROWS  # noqa: E402
from tests.suite import each_row, line, with_op  # noqa: E402

FACTOR = 100.0
MODES = {
    "first derivative": properties.check_first_derivative,
    "forward mode": properties.check_forward_mode,
    "vmap of grad": properties_batch.check_vmap_of_grad,
    "grad of vmap": properties_batch.check_grad_of_vmap,
}
COMPLEX = ("transfer", "intensity")
ONE_RULE = [(name, mode) for name in ("log_ndtr_diff", *COMPLEX) for mode in MODES]
# through hidden outputs a factor comes in twice
ONE_RULE += [(name, "second derivative") for name in COMPLEX]


@line("own rule")
@pytest.mark.parametrize("mode", MODES)
@each_row
def test_the_rule_runs(row, mode):
    scale = factor_of(row.op, FACTOR, mode)
    MODES[mode](side_jax, with_op(row, scaled(row.op, FACTOR)), scale=scale)


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@pytest.mark.parametrize(("name", "mode"), ONE_RULE)
def test_one_rule_serves_both_modes(name, mode, kind):
    """Of complex numbers, too, where the other rule is transposed in each convention."""
    row = next(row for row in ROWS if row.name == name)
    op = scaled(row.op, FACTOR)
    setattr(op, "jvp" if kind == "vjp" else "vjp", None)
    check = MODES.get(mode, properties.check_second_derivative)
    check(side_jax, with_op(row, op), scale=FACTOR)


@line("own rule, compiled")
@pytest.mark.parametrize("what", [name for name in properties_batch.COMPILED if name != "call"])
@each_row
def test_the_rule_runs_when_jitted(row, what):
    faulty = with_op(row, scaled(row.op, FACTOR))
    scale = factor_of(row.op, FACTOR, what)
    properties_batch.check_compiled(side_jax, faulty, what, side_jax.compiler(), scale=scale)
