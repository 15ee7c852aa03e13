"""Static parameters as keys: what is equal, what is not, and how many are kept."""

import importlib
import math

import numpy as np
import pytest

from twingrad.interop import define
from twingrad.interop.op.statics.static import Static

NAN = float("nan")


def key(value):
    return Static.of("op", (), {"p": 1}, {"p": value})


@pytest.mark.parametrize(
    "value", [NAN, -NAN, complex(NAN, 1), complex(1, NAN), (1, NAN), ((NAN,),)]
)
def test_nan_is_the_same_parameter_each_time(value):
    """float("nan") != float("nan"): it would be a new one at each call."""

    def again(value):
        if isinstance(value, tuple):
            return tuple(map(again, value))
        return type(value)(value + 0)

    assert again(value) is not value
    assert key(value) == key(again(value)) and hash(key(value)) == hash(key(again(value)))


DIFFERENT = [1, 1.0, True, 1 + 0j, 0.0, -0.0, complex(0, -0.0), complex(-0.0, 0), 0j, NAN]
DIFFERENT += [(1,), (1.0,), (0.0,), (-0.0,), "1", None, math.inf, -math.inf]


def test_values_that_can_give_other_results_are_different_parameters():
    assert len({key(value) for value in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_zero_and_minus_zero_do_not_mix(framework):
    pytest.importorskip(framework)

    @define("()->()")
    def signed(xp, x, *, p):
        return x * math.copysign(1, p)

    f = importlib.import_module(f"twingrad.interop.{framework}").bind(signed)
    one = importlib.import_module(framework).ones(()) if framework == "torch" else np.ones(())
    assert [float(f(one, p=p)) for p in (0.0, -0.0, 0.0, -0.0)] == [1, -1, 1, -1]
