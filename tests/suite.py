"""Row x property, as pytest parameters; the known failures of a row become strict xfails."""

from dataclasses import replace

import pytest

from tests import properties, properties_batch
from tests.op_table import ROWS

PROPERTIES = {
    "value": properties.check_value,
    "first derivative": properties.check_first_derivative,
    "each argument alone": properties.check_each_argument_alone,
    "forward mode": properties.check_forward_mode,
    "eager": properties.check_eager,
    "second derivative": properties.check_second_derivative,
    "second derivative of a batch": properties.check_second_derivative_of_a_batch,
    "third derivative": properties.check_third_derivative,
    "vmap": properties_batch.check_vmap,
    "nested vmap": properties_batch.check_nested_vmap,
    "batch is the loop": properties_batch.check_batch_is_the_loop,
    "vmap of grad": properties_batch.check_vmap_of_grad,
    "grad of vmap": properties_batch.check_grad_of_vmap,
    "vmap of hessian": properties_batch.check_vmap_of_hessian,
}


def cells(side_name, names, rows=None):
    """pytest parameters (row, name), for every row and every name."""
    found = []
    for row in ROWS if rows is None else rows:
        for name in names:
            reason = row.known.get((name, side_name))
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            found.append(pytest.param(row, name, id=f"{row.name}: {name}", marks=marks))
    return found


def with_op(row, op):
    """The row with another op in its place: one with wrong or scaled rules."""
    return replace(row, op=op)
