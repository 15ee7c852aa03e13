"""Every property of the suite for fused ops: second orders, vmap, odd inputs, threads, errors.

The quick part has kernels of torch's own operations (aot_eager), which differ from compiled C++
in the arithmetic only: keys, shapes, transforms and rules are the same.
"""

import pytest
import torch

from tests import fused, properties, properties_batch, side_fused
from tests.copies import factor_of, scaled
from tests.op_table import ROWS
from tests.suite import PROPERTIES, with_op
from twingrad.interop.torch import bind

pytestmark = pytest.mark.compile
# these count calls of the Python functions, which a kernel does not make
COUNTING = ("only rules that are needed", "native batching")
NAMES = ("log1mexp", "log_ndtr_diff", "truncated_mixture_weights")
QUICK = ("log1mexp",)
CELLS = [
    pytest.param(row, name, marks=[pytest.mark.slow] * (row.name not in QUICK))
    for row in ROWS
    if row.name in NAMES
    for name in PROPERTIES
    if name not in COUNTING
]


@pytest.fixture
def quick(monkeypatch):
    fused.of_torch_operations(monkeypatch)


@pytest.mark.parametrize(("row", "name"), CELLS)
def test_property(row, name, quick, recwarn):
    PROPERTIES[name](side_fused, row)
    assert not fused.unwanted(recwarn)


FACTOR = 100.0
MODES = {
    "first derivative": properties.check_first_derivative,
    "forward mode": properties.check_forward_mode,
    "vmap of grad": properties_batch.check_vmap_of_grad,
    "grad of vmap": properties_batch.check_grad_of_vmap,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", ["log1mexp", pytest.param("log_ndtr_diff", marks=pytest.mark.slow)]
)
def test_the_hand_written_rule_runs(name, mode, quick):
    """It is 100 times the derivative, which autodiff of the function would give."""
    row = next(row for row in ROWS if row.name == name)
    op = scaled(row.op, FACTOR)
    MODES[mode](side_fused, with_op(row, op), scale=factor_of(row.op, FACTOR, mode))


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in QUICK])
def test_gradcheck_and_gradgradcheck_pass_in_both_modes(row, quick):
    x = [v.requires_grad_() for v in properties.arrays(side_fused, row, (2,))]
    f = bind(row.op, fused=1)
    torch.autograd.gradcheck(f, x, check_forward_ad=True, check_batched_grad=True)
    torch.autograd.gradgradcheck(f, x, check_fwd_over_rev=True, check_batched_grad=True)
