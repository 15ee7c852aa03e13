"""torch and JAX give what the NumPy binder gives: values, gradients and tangents."""

import importlib

import numpy as np
import pytest

from tests.closeness import ulps
from tests.fixed import numpy_function
from tests.properties import random_like
from tests.suite import each_row, line

SAMPLES = 200


@line("agreement")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@each_row
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_frameworks_agree(framework, row, dtype, record_property):
    pytest.importorskip(framework)
    side = importlib.import_module(f"tests.side_{framework}")
    inputs = row.inputs((SAMPLES,), seed=3, dtype=dtype)
    f = numpy_function(row.op)
    value = f(*inputs)
    ct = random_like(value, 7).astype(value.dtype)
    tangents = [random_like(x, 17 + i).astype(x.dtype) for i, x in enumerate(inputs)]
    conj = np.conj if side.CONJUGATES else np.asarray
    want = [value, *map(conj, f.vjp(conj(ct), *inputs))]
    if row.op.jvp is not None:
        want.append(f.jvp(tuple(tangents), *inputs))
    got = _results(side, row, inputs, ct, tangents)
    *own, result = row.dtypes(dtype)
    assert [side.dtype_of(x) for x in got] == [result, *own, result]
    pairs = [(side.numpy(g), w) for g, w in zip(got, want, strict=False)]
    worst = max(ulps(g, w, least=float(np.max(np.abs(w)))) for g, w in pairs)
    record_property("difference in ulps", worst)
    assert worst <= row.agreement[framework, dtype]


def _results(side, row, inputs, ct, tangents):
    """The value, the gradients and the tangent, by each framework's own transforms."""
    f = side.function(row.op)
    run = side.compiler() if side.NAME == "jax" else side.once  # eager JAX is slow

    def everything(x, ct, t):
        value, pull = side.vjp(f, *x)
        return (value, *pull(ct), side.jvp(f, x, t)[1])

    arrays = [tuple(map(side.array, group)) for group in (inputs, tangents)]
    return run(everything)(arrays[0], side.array(ct), arrays[1])
