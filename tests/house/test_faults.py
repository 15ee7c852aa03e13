"""The suite can fail: every seeded fault is caught by every property that should see it.

The functions that must fail are those that the suite runs, not copies.  In torch each fault
meets all of its properties; in JAX, where each takes a compilation, one, and of the faults
in a single argument only the smallest.
"""

import importlib

import pytest

from tests.copies import copy
from tests.faults import BY_NAME, FAULTS
from tests.suite import PROPERTIES, with_op

EVERY = [(fault, name) for fault in FAULTS for name in fault.caught_by]
FIRST = [
    (fault, fault.caught_by[0])
    for fault in FAULTS
    if not fault.name.startswith(("vjp twice", "jvp twice, arg", "vjp minus", "jvp minus"))
]


def _ids(value):
    return value if isinstance(value, str) else f"{value.row}: {value.name}"


def _catch(framework, fault, name):
    pytest.importorskip(framework)
    side = importlib.import_module(f"tests.side_{framework}")
    with pytest.raises(AssertionError):
        PROPERTIES[name](side, fault.faulty_row())


@pytest.mark.parametrize(("fault", "name"), EVERY, ids=_ids)
def test_torch_catches(fault, name):
    _catch("torch", fault, name)


@pytest.mark.parametrize(("fault", "name"), FIRST, ids=_ids)
def test_jax_catches(fault, name):
    _catch("jax", fault, name)


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("row", ["log1mexp", "log_ndtr_diff", "rosenbrock"])
def test_a_copy_without_a_fault_passes(framework, row):
    """Otherwise a fault could be caught because copying an op breaks it."""
    pytest.importorskip(framework)
    side = importlib.import_module(f"tests.side_{framework}")
    right = BY_NAME[row]
    faultless = with_op(right, copy(right.op))
    for name in ("first derivative", "forward mode", "second derivative"):
        PROPERTIES[name](side, faultless)
