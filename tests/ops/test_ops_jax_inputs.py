"""Dtypes, weak types and sizes of the inputs of every op in JAX."""

import pytest

pytest.importorskip("jax")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from tests import side_jax  # noqa: E402
from tests.closeness import assert_close  # noqa: E402
from tests.op_table import ROWS  # noqa: E402
from tests.references.expected import Expected  # noqa: E402
from tests.suite import each_row, line  # noqa: E402

TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}
BOUNDS = {**TOLERANCE, "complex128": 1e-11, "complex64": 2e-5}
# rows with a scalar argument next to another one
WITH_SCALARS = [row for row in ROWS if len(row.boxes) > 1 and () in row.cores]


def arrays(row, dtype, batch=(2,)):
    return tuple(side_jax.cast(side_jax.array(x), dtype) for x in row.inputs(batch))


def check(row, x):
    """Value and gradients against the truth at the values that x holds."""
    f = side_jax.function(row.op)
    value = side_jax.once(f)(*x)

    def gradients(*x):
        return jax.vjp(f, *x)[1](jnp.ones_like(value))

    expected = Expected(row, [np.asarray(side_jax.cast(v, "float64")) for v in x])
    rtol = BOUNDS[str(value.dtype)]
    assert_close(value, expected.value(), "value", rtol=rtol, floor=1.0)
    want = expected.pull(np.ones(value.shape))
    for i, (v, g, w) in enumerate(zip(x, side_jax.once(gradients)(*x), want, strict=True)):
        assert g.dtype == v.dtype and g.shape == v.shape
        bound = max(rtol, BOUNDS[str(v.dtype)])
        assert_close(g, w, f"gradient {i}", rtol=bound, floor=1.0)
    return value


@line("dtypes")
@pytest.mark.parametrize("dtype", TOLERANCE)
@each_row
def test_the_dtype_of_the_inputs_is_kept(row, dtype):
    assert check(row, arrays(row, dtype)).dtype == row.dtypes(dtype)[-1]


@line("dtypes")
@each_row
def test_low_precision_is_computed_in_float32(row):
    x, f = arrays(row, "bfloat16"), side_jax.once(side_jax.function(row.op))
    got, want = f(*x), f(*[side_jax.cast(v, "float32") for v in x])
    np.testing.assert_array_equal(got, want.astype(got.dtype))


@line("dtypes")
@each_row
def test_mixed_dtypes_promote_as_jax_does(row):
    x = arrays(row, "float64")
    x = [v if i % 2 else side_jax.cast(v, "float32") for i, v in enumerate(x)]
    assert check(row, x).dtype == row.dtypes("float64" if len(x) > 1 else "float32")[-1]


@line("dtypes")
@pytest.mark.parametrize("row", WITH_SCALARS, ids=lambda row: row.name)
def test_numbers_and_weak_types_do_not_promote(row):
    x = arrays(row, "float32")
    scalars = [i for i, core in enumerate(row.cores) if not core]
    for weak in (lambda v: v, jnp.asarray, lambda v: jax.lax.full((), v)):
        mixed = [weak(v[0].item()) if i == scalars[-1] else v for i, v in enumerate(x)]
        got = side_jax.once(side_jax.function(row.op))(*mixed)
        weakly = getattr(mixed[scalars[-1]], "weak_type", True)
        single = row.dtypes("float32")[-1]
        assert got.dtype == (single if weakly else jnp.result_type(*mixed))


@each_row
def test_numpy_arrays_are_taken(row):
    x = row.inputs((2,))
    got = side_jax.once(side_jax.function(row.op))(*x)
    assert isinstance(got, jax.Array)
    assert_close(got, Expected(row, x).value())


@line("odd inputs")
@pytest.mark.parametrize("batch", [(1, 1), (0,)], ids=str)
@each_row
def test_small_batches_are_ordinary(row, batch):
    check(row, arrays(row, "float64", batch))


@each_row
def test_shapes_are_known_without_computing(row):
    x = arrays(row, "float32")
    got = jax.eval_shape(side_jax.function(row.op), *x)
    assert got.dtype == row.dtypes("float32")[-1]
    assert got.shape == Expected(row, row.inputs((2,))).value().shape
