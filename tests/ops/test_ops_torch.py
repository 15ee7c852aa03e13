"""Every property of every op in torch; what the properties say is in `properties`."""

import pytest
import torch

from tests import properties, side_torch
from tests.suite import PROPERTIES, cells, each_row, line


@pytest.mark.parametrize(("row", "name"), cells("torch", PROPERTIES))
def test_property(row, name):
    PROPERTIES[name](side_torch, row)


@each_row
@line("second derivative")
def test_gradcheck_and_gradgradcheck_pass_in_both_modes(row):
    x = [v.requires_grad_() for v in properties.arrays(side_torch, row, (2,))]
    f = side_torch.function(row.op)
    torch.autograd.gradcheck(f, x, check_forward_ad=True, check_batched_grad=True)
    torch.autograd.gradgradcheck(f, x, check_fwd_over_rev=True, check_batched_grad=True)
