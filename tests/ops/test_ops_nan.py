"""Where the value is NaN, so is every derivative: no plausible gradient of what is not there."""

import numpy as np
import pytest

from tests.op_table import SHIPPED
from tests.ops.test_ops_units import function_of_one_vector
from tests.properties import nestings
from tests.suite import each_setting, side_of
from twingrad.interop.numpy import bind

# each entry of their results depends on every input
ARRAY_OPS = [row for row in SHIPPED if not row.op.host]
nan = np.nan


def points(row, dtype):
    """NaN in each entry in turn, and what lies outside the domain."""
    base = [np.ravel(x) for x in row.inputs(seed=3)]
    flat, found = np.concatenate(base), []
    for i in range(len(flat)):
        found.append(np.where(np.arange(len(flat)) == i, nan, flat))
    if row.name == "log1mexp":
        found += [np.array([x]) for x in (1e-3, 1.0, 800.0)]
    else:
        far = [(2.0, 1.0), (0.1, 0.0), (-30.0, -40.0), (40.0, 30.0), (np.inf, -np.inf), (1e30, 1.0)]
        found += [np.append(flat[:-2], ends) for ends in far]
    if row.name.startswith("truncated_mixture"):
        beyond = flat.copy()
        beyond[6:9] = -1.0, 0.5, -0.25  # a weight below 0, with a negative sum
        saturated = flat.copy()
        saturated[:8] = 0.0, 0.1, 0.2, 1e-3, 1e-3, 1.0, 0.3, nan
        found += [beyond, saturated]
    return np.stack(found).astype(dtype)


@each_setting([row.name for row in ARRAY_OPS])
def test_a_nan_value_has_nan_derivatives(side_name, row, dtype):
    side = side_of(side_name)
    x = points(row, dtype)
    f = function_of_one_vector(side, row)
    parts = {"value": f, "reverse": side.jacrev(f), "forward": side.jacfwd(f)}
    parts |= {name: nesting(f) for name, nesting in nestings(side).items()}
    for name, part in parts.items():
        found = side.numpy(side.once(side.vmap(part))(side.array(x)))
        numbers = [(x[i[0]], i) for i in np.argwhere(~np.isnan(found))]
        assert not numbers or row.name == "truncated_mixture_log_weights", (name, numbers[:3])
        # log p - log Z: what belongs to p alone is known
        assert all(np.isnan(x[i[0]]).any() for _, i in numbers), (name, numbers[:3])


@pytest.mark.parametrize("row", ARRAY_OPS, ids=lambda row: row.name)
def test_a_nan_value_has_nan_derivatives_in_numpy(row):
    with np.errstate(all="ignore"):
        x = points(row, "float64")
        ends = np.cumsum([int(np.prod(core)) for core in row.cores])[:-1]
        args = [
            part.reshape(len(x), *core)
            for part, core in zip(np.split(x, ends, axis=1), row.cores, strict=True)
        ]
        f = bind(row.op)
        value = f(*args)
        for g in f.vjp(np.ones_like(value), *args):
            assert np.isnan(g).all()
