"""A change of unit changes no value, and each derivative by the power of the unit that it has.

All lengths are multiplied by a power of 2 near the one named, so that nothing is rounded.
Entries that the dtype cannot hold in the new unit are left out; none may spoil another.
"""

import numpy as np

from tests.properties import nestings
from tests.suite import each_setting, side_of

# the arguments that are lengths
LENGTHS = {
    "truncated_normal_log_mass": ("mean", "scale", "lower", "upper"),
    **{
        f"truncated_mixture_{name}": ("means", "scales", "lower", "upper")
        for name in ("log_normalizer", "weights", "log_weights")
    },
}
UNITS = {
    "float64": (1e-300, 1e-170, 1e-21, 1e21, 1e150),
    "float32": (1e-30, 1e-21, 1e-15, 1e16, 1e18),
}


def function_of_one_vector(side, row):
    sizes = np.cumsum([0, *[int(np.prod(core)) for core in row.cores]])
    f = side.function(row.op)

    def flat(x):
        parts = [x[a:b] for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
        shaped = [p.reshape(core) for p, core in zip(parts, row.cores, strict=True)]
        return f(*shaped).reshape(-1)

    return flat


def points(row, dtype):
    """Ordinary windows, and one in each tail, where the dtype does not overflow."""
    found = []
    for seed, shift in enumerate((0.0, 0.0, 6.0, -6.0)):
        inputs = list(row.inputs(seed=seed, dtype=dtype))
        for i in (-2, -1):
            inputs[i] = inputs[i] + np.asarray(shift, dtype)
        found.append(np.concatenate([x.ravel() for x in inputs]))
    return np.stack(found)


def powers(row):
    """Which entries of the vector are lengths."""
    names = LENGTHS[row.name]
    return np.concatenate(
        [
            np.full(int(np.prod(core)), name in names)
            for name, core in zip(row.names, row.cores, strict=True)
        ]
    )


def parts(side, f):
    yield "value", 0, f
    yield "reverse", 1, side.jacrev(f)
    yield "forward", 1, side.jacfwd(f)
    for name, nesting in nestings(side).items():
        yield name, 2, nesting(f)


@each_setting(LENGTHS)
def test_derivatives_scale_with_the_unit(side_name, row, dtype):
    side = side_of(side_name)
    lengths, x = powers(row), points(row, dtype)
    limits = np.finfo(dtype)
    units = [2.0 ** np.round(np.log2(unit)) for unit in UNITS[dtype]]
    for name, order, part in parts(side, function_of_one_vector(side, row)):
        compiled = side.once(side.vmap(part))
        want = side.numpy(compiled(side.array(x))).astype(np.longdouble)
        for unit in units:
            here = np.where(lengths, x * unit, x).astype(dtype)
            got = side.numpy(compiled(side.array(here)))
            power = np.longdouble(unit) ** -lengths.astype(int)
            scaled = want * (1 if order == 0 else power if order == 1 else np.outer(power, power))
            size = np.abs(scaled) / np.maximum(np.abs(want), limits.tiny)
            held = (size > limits.tiny * 1e3) & (size < limits.max / 1e3)
            assert order == 2 or held[want != 0].all()
            error = np.abs(got - scaled)
            largest = np.max(np.abs(want), axis=tuple(range(1, want.ndim)), keepdims=True)
            floor = 1e3 * limits.tiny * np.maximum(largest, 1)  # XLA gives 0 for the subnormal
            wrong = held & ~(error <= 64 * limits.eps * np.abs(scaled) + floor)
            assert not wrong.any(), (name, unit, np.argwhere(wrong)[:4], got[wrong][:4])


@each_setting(["log1mexp"])
def test_the_second_derivative_of_log1mexp_near_0(side_name, row, dtype):
    """-1/x^2, as far as the dtype holds it."""
    side = side_of(side_name)
    limits = np.finfo(dtype)
    x = -np.geomspace(1.1 / np.sqrt(limits.max), np.sqrt(limits.eps) / 100, 200).astype(dtype)
    want = -1.0 / x.astype(np.longdouble) ** 2
    for name, nesting in nestings(side).items():
        got = side.numpy(side.once(side.vmap(nesting(side.function(row.op))))(side.array(x)))
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-5, err_msg=name)


@each_setting(["truncated_mixture_log_weights"])
def test_a_tiny_weight_leaves_the_other_derivatives_of_log_weights_alone(side_name, row, dtype):
    """-1/p^2 overflows: nothing else does."""
    side = side_of(side_name)
    f = function_of_one_vector(side, row)
    x = points(row, dtype)[:1].copy()
    x[:, 6] = {"float64": 1e-200, "float32": 1e-25}[dtype]
    for name, nesting in nestings(side).items():
        found = side.numpy(side.once(side.vmap(nesting(f)))(side.array(x)))[0].copy()
        assert np.isinf(found[0, 6, 6])
        found[0, 6, 6] = 0
        assert np.all(np.isfinite(found)), name
