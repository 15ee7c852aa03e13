"""The properties of `properties`, continued: what a call returns, and what it leaves behind."""

import functools

import pytest

from tests.closeness import assert_close
from tests.copies import copy, function_of
from tests.growth import grow
from tests.properties import arrays
from tests.references.expected import Expected
from twingrad.interop import RuleError
from twingrad.interop.op.signature import as_tuple


def _ways(side, op, x):
    """name -> the value, gradient and tangent of an op: host ops as they are, others once."""
    f, every = side.function(op), tuple(range(len(x)))

    def loss(*x):
        y = f(*x)
        return side.inner(side.LIB.ones_like(y), y)

    ways = {
        "value": f,
        "gradient": side.grad(loss, argnums=every),
        "tangent": lambda *x: side.jvp(f, x, x)[1],
    }
    return ways if op.host else {name: side.once(way) for name, way in ways.items()}


def check_result_dtypes(side, row):
    """float32 inputs: results in the dtype that is declared, gradients in the inputs' own."""
    raw = row.inputs((2,), dtype="float32")
    x, want = tuple(map(side.array, raw)), Expected(row, raw).value()
    hidden = len(row.op.signature.outputs) - 1
    of_inputs, of_result = row.dtypes("float32")[:-1], row.dtypes("float32")[-1]
    for declared, dtype in ((row.op.dtypes[0], of_result), (row.dtypes("float64")[-1],) * 2):
        ways = _ways(side, copy(row.op, dtypes=(declared,) + (None,) * hidden), x)
        value, tangent = ways["value"](*x), ways["tangent"](*x)
        assert (side.dtype_of(value), side.dtype_of(tangent)) == (dtype, dtype)
        assert_close(value, want, f"declared {declared}", rtol=1e-4)
        assert [side.dtype_of(g) for g in ways["gradient"](*x)] == of_inputs
    written = function_of(row.op)

    @functools.wraps(written)
    def turned(xp, *args, **static):
        first, *rest = as_tuple(written(xp, *args, **static))
        return (first * (1 + 0j), *rest)

    made = copy(row.op, turned, dtypes=("real",) + (None,) * hidden)
    with pytest.raises(RuleError, match=rf"^{row.name} .*returned complex.* where float32"):
        _ways(side, made, x)["value"](*x)


def check_loops(side, row):
    """Python's memory levels off: 60 rounds keep less than 4000 bytes each, most of it once."""
    x, ways = arrays(side, row, (2,)), _ways(side, row.op, arrays(side, row, (2,)))

    def each(op, *x):
        for way in ways.values():
            way(*x)

    found = grow(each, lambda i: (row.op, x, {}), 60, 30)
    assert found.traced < 4000, found
