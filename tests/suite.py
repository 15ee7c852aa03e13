"""Line of the conformance table x property x row, as pytest parameters.

The known failures of a row become strict expected failures; its limits see `conftest`.
"""

import importlib
from dataclasses import replace

import pytest

from tests import properties, properties_batch, properties_calls, properties_results
from tests.conformance import ALIKE
from tests.op_table import ROWS

# name -> (line of the conformance table, check(side, row))
TABLE = {
    "value": ("value", properties.check_value),
    "eager": ("value", properties.check_eager),
    "first derivative": ("first derivative", properties.check_first_derivative),
    "each argument alone": ("nothing unasked", properties.check_each_argument_alone),
    "only rules that are needed": ("nothing unasked", properties_calls.check_only_rules_needed),
    "forward mode": ("forward mode", properties.check_forward_mode),
    "transposition": ("transposition", properties.check_transposition),
    "second derivative": ("second derivative", properties.check_second_derivative),
    "second derivative of a batch": (
        "second derivative",
        properties.check_second_derivative_of_a_batch,
    ),
    "third derivative": ("third derivative", properties.check_third_derivative),
    "vmap": ("vmap", properties_batch.check_vmap),
    "nested vmap": ("vmap", properties_batch.check_nested_vmap),
    "batch is the loop": ("batch", properties_batch.check_batch_is_the_loop),
    "vmap of grad": ("vmap and derivatives", properties_batch.check_vmap_of_grad),
    "grad of vmap": ("vmap and derivatives", properties_batch.check_grad_of_vmap),
    "vmap of hessian": ("vmap and derivatives", properties_batch.check_vmap_of_hessian),
    "native batching": ("native batching", properties_calls.check_native_batching),
    "result dtypes": ("result dtypes", properties_results.check_result_dtypes),
    "loops": ("loops without growth", properties_results.check_loops),
    "bad input": ("bad input", properties_calls.check_bad_input),
    "threads": ("threads", properties_calls.check_threads),
}
PROPERTIES = {name: check for name, (_, check) in TABLE.items()}

each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
line = pytest.mark.conformance


def cells(side_name, names, of=None, rows=None):
    """pytest parameters (row, name), for every row and every name.

    The line of the table is that of the name, or `of` for all of them.
    """
    found = []
    for row in ROWS if rows is None else rows:
        for name in names:
            reason = row.known.get((name, side_name))
            marks = [line(of or TABLE[name][0])]
            if reason:
                marks.append(pytest.mark.xfail(reason=reason, strict=True))
            found.append(pytest.param(row, name, id=f"{row.name}: {name}", marks=marks))
    return found


def with_op(row, op):
    """The row with another op in its place: one with wrong or scaled rules."""
    return replace(row, op=op)


def each_setting(names):
    """(side_name, row, dtype): `make test` runs float64 of one op of a family in JAX."""
    found = []
    for side_name in ("torch", "jax"):
        for row in ROWS:
            for dtype in ("float64", "float32"):
                slow = side_name == "jax" and (row.name in ALIKE or dtype == "float32")
                marks = [pytest.mark.slow] * slow
                label = f"{side_name}-{row.name}-{dtype}"
                if row.name in names:
                    found.append(pytest.param(side_name, row, dtype, id=label, marks=marks))
    return pytest.mark.parametrize(("side_name", "row", "dtype"), found)


def side_of(name):
    """The module of a framework, or a skip where it is not installed."""
    pytest.importorskip(name)
    return importlib.import_module(f"tests.side_{name}")
