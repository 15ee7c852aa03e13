"""torch.compile with fullgraph: the call, backward, grad, vmap of grad and jacfwd of every op.

Inductor, which generates and builds C++ code, runs where it is quick enough; the other rows
run on aot_eager, which traces and partitions the same graphs.
"""

import pytest

from tests import properties_batch, side_torch
from tests.op_table import ROWS
from tests.suite import cells

pytestmark = pytest.mark.compile

QUICK = [row for row in ROWS if row.name in ("log1mexp", "rosenbrock")]
OTHERS = [row for row in ROWS if row not in QUICK]


@pytest.mark.parametrize(("row", "name"), cells("torch", properties_batch.COMPILED, "compiled"))
def test_compiled_with_aot_eager(row, name):
    compiler = side_torch.compiler("aot_eager")
    properties_batch.check_compiled(side_torch, row, name, compiler)


@pytest.mark.parametrize(
    ("row", "name"), cells("torch", properties_batch.COMPILED, "compiled", QUICK)
)
def test_compiled_with_inductor(row, name):
    properties_batch.check_compiled(side_torch, row, name, side_torch.compiler("inductor"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "name"), cells("torch", properties_batch.COMPILED, "compiled", OTHERS)
)
def test_larger_ops_compiled_with_inductor(row, name):
    properties_batch.check_compiled(side_torch, row, name, side_torch.compiler("inductor"))
