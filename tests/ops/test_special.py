"""The functions that replace inaccurate ones of the frameworks, in every mode, against mpmath."""

import functools
import importlib
import importlib.util

import array_api_compat.numpy
import mpmath
import numpy as np
import pytest

from tests import special_functions
from twingrad.ops import _special

BOUNDS = {"expm1": 5.0, "log1p": 3.0, "erfcx": 8.0}  # ulps, as the docstrings say
MODES = ("numpy eager", "torch eager", "torch inductor", "jax eager", "jax jit")
# name -> exact f, f', f''
DERIVATIVES = {
    "expm1": (mpmath.expm1, mpmath.exp, mpmath.exp),
    "log1p": (mpmath.log1p, lambda x: 1 / (1 + x), lambda x: -1 / (1 + x) ** 2),
}
each_mode = pytest.mark.parametrize("mode", MODES)
each_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def evaluator(mode, function):
    """f(array) for an elementwise function(xp, x), in a mode."""
    side_name, how = mode.split()
    if side_name == "numpy":
        return functools.partial(function, array_api_compat.numpy)
    if importlib.util.find_spec(side_name) is None:
        pytest.skip(f"{side_name} is not installed")
    side = importlib.import_module(f"tests.side_{side_name}")
    xp = getattr(
        importlib.import_module(f"twingrad.interop.{side_name}.binder"), side_name.upper()
    ).xp
    compilers = {"eager": lambda: side.once if side_name == "torch" else lambda f: f}
    compilers |= {"inductor": lambda: side.compiler("inductor"), "jit": side.compiler}
    run = compilers[how]()(functools.partial(function, xp))
    return lambda x: side.numpy(run(side.array(x)))


@each_dtype
@pytest.mark.parametrize("name", BOUNDS)
@each_mode
def test_it_is_within_its_bound_where_it_is_hard(mode, name, dtype, record_property):
    """But for subnormal numbers in JAX: XLA takes them for 0 on the CPU."""
    parts = special_functions.inputs(name, dtype)
    if mode.startswith("jax"):
        parts.pop("subnormal", None)
    x = np.concatenate(list(parts.values()))
    with np.errstate(all="ignore"):
        got = evaluator(mode, getattr(_special, name))(x)
    assert got.dtype == dtype
    error, where = special_functions.worst(name, x, got)
    record_property("ulps", error)
    assert error <= BOUNDS[name], f"{error} ulps at {where}"


@each_dtype
@pytest.mark.parametrize("name", ["expm1", "log1p"])
@each_mode
def test_special_values(mode, name, dtype):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, -2.0, 1000.0, -1000.0], dtype)
    with np.errstate(all="ignore"):
        got, want = evaluator(mode, getattr(_special, name))(x), getattr(np, name)(x)
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.signbit(got[:2]), [False, True])


@each_dtype
@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize(
    "mode", ["torch eager", pytest.param("torch inductor", marks=pytest.mark.slow), "jax jit"]
)
def test_its_derivatives_are_right_to_second_order(mode, name, dtype):
    """Without NaN from a branch not taken; the libraries make e^x from e^x - 1, in steps of eps."""
    side_name = mode.split()[0]
    pytest.importorskip(side_name)
    side = importlib.import_module(f"tests.side_{side_name}")
    tiny = [s * 10.0**-k for s in (1, -1) for k in (30, 12, 7, 3)]
    x = np.array([0.0, 0.3, -0.3, 0.31, -0.31, 0.49, -0.49, 0.51, -0.51, 0.9, -0.9, *tiny], dtype)
    far = [80.0, 30.0] + ([-30.0, -80.0] if name == "expm1" else [1e6])
    x = np.concatenate([x, np.array(far, dtype)])

    def both(xp, x):
        def first(x):
            return side.grad(lambda x: xp.sum(getattr(_special, name)(xp, x)))(x)

        return xp.stack([first(x), side.jvp(first, (x,), (xp.ones_like(x),))[1]])

    got = evaluator(mode, both)(x)
    for order in (1, 2):
        exact = [float(DERIVATIVES[name][order](mpmath.mpf(float(v)))) for v in x]
        rtol = 16 * order * float(np.finfo(dtype).eps)
        atol = rtol / 8 if name == "expm1" and "inductor" not in mode else 0.0
        np.testing.assert_allclose(got[order - 1], exact, rtol, atol, err_msg=f"order {order}")
