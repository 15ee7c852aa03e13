"""Ops that are pickled: by name, by the call that made them, by value; or an error says the way."""

import copy
import importlib
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.optimize

from tests import sample_ops
from tests.closeness import as_numpy
from twingrad.interop import (
    Host,
    complex_step,
    define,
    finite_difference,
    from_jacobian,
    from_numpy,
    gaussian_smoothing,
    spsa,
)
from twingrad.interop.numpy import bind

each_side = pytest.mark.parametrize("framework", ["torch", "jax", "numpy"])


def cosine(ct, x):
    return ct * np.cos(x)


def sine(x, *, power=1):
    return np.sin(x) ** power


def sine_vjp(ct, x, *, power=1):
    return ct * power * np.sin(x) ** (power - 1) * np.cos(x)


def both(x):
    return np.sum(x**2), 2 * x


rosen = {"f": scipy.optimize.rosen, "jac": scipy.optimize.rosen_der, "signature": "(n)->()"}
one = {"signature": "()->()"}
seeded = {"f": sine, **one}
# each under another name than that of its function
MADE = {
    "a ufunc": lambda: from_numpy(np.sin, **one, vjp=cosine),
    "a function": lambda: from_numpy(sine, **one, vjp=sine_vjp, name="waves"),
    "a Jacobian": lambda: from_jacobian(**rosen),
    "a Hessian": lambda: from_jacobian(**rosen, hess=scipy.optimize.rosen_hess),
    "both": lambda: from_jacobian(both, True, signature="(n)->()"),
    "differences": lambda: finite_difference(sine, **one, step=1e-5),
    "complex step": lambda: complex_step(np.exp, **one),
    "spsa": lambda: spsa(**seeded, step=1e-4),
    "smoothing": lambda: gaussian_smoothing(**seeded, sigma=0.1, directions=4),
}


def numbers(framework, op):
    """The value and a gradient."""
    x = [np.array([0.3, -0.5]) if op.signature.inputs[0] else np.array(0.3)]
    x += [np.array(5)] * (len(op.names) - 1)
    if framework == "numpy":
        f = bind(op)
        return f(*x), f.vjp(1.0, *x)[0]
    side = importlib.import_module(f"tests.side_{framework}")
    f, x = side.function(op), [side.array(v) for v in x]
    return as_numpy(f(*x)), as_numpy(side.grad(f)(*x))


@each_side
@pytest.mark.parametrize("form", MADE)
def test_an_op_made_from_functions_is_pickled_as_the_call(framework, form):
    pytest.importorskip(framework)
    op = MADE[form]()
    again = pickle.loads(pickle.dumps(op))
    assert again is not op and repr(again) == repr(op) and again.__doc__ == op.__doc__
    for got, want in zip(numbers(framework, again), numbers(framework, op), strict=True):
        np.testing.assert_array_equal(got, want)


def test_it_is_the_same_op_in_another_process(tmp_path):
    op = from_jacobian(**rosen, host=Host(vectorize=True, finite=True))
    (tmp_path / "op").write_bytes(pickle.dumps(op))
    code = (
        "import pickle, sys, numpy as np; op = pickle.load(open(sys.argv[1], 'rb')); "
        "from twingrad.interop.numpy import bind; print(bind(op)(np.array([0.5, 1.0]))); "
        "print(op.host.finite)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "op")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    want = scipy.optimize.rosen(np.array([0.5, 1.0]))
    assert done.stdout.splitlines() == [str(want), "True"]


def test_what_was_added_to_it_goes_with_it():
    op = from_numpy(sine, **one, vjp=sine_vjp)
    op.def_jvp_by_rows()
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(op))))
    assert bind(again).jvp((1.0,), 0.0) == 1.0
    op.def_vjp(twice_cosine)
    op.host = Host(finite=True)
    again = pickle.loads(pickle.dumps(op))
    assert bind(again).vjp(1.0, 0.0) == (2.0,) and again.host.finite
    assert bind(again).jvp((1.0,), 0.0) == 2.0
    assert bind(again)(0.5, power=2) == np.sin(0.5) ** 2


def twice_cosine(xp, ct, out, x, *, power=1):
    return 2 * ct * np.cos(x)


def local_op():
    @define("()->()")
    def only_here(xp, x):
        return 2 * x

    return only_here


def test_functions_without_a_name_go_by_value_where_there_is_cloudpickle(monkeypatch):
    op = from_numpy(lambda x: 3 * x, **one, vjp=lambda ct, x: 3 * ct, name="thrice")
    cloudpickle = pytest.importorskip("cloudpickle")
    for dumps in (pickle.dumps, cloudpickle.dumps):
        again = pickle.loads(dumps(op))
        assert bind(again)(1.0) == 3 and bind(again).vjp(2.0, 1.0) == (6.0,)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(pickle.PicklingError, match=r"thrice \(\)->\(\): .*lambda.*cloudpickle"):
        pickle.dumps(op)
    with pytest.raises(pickle.PicklingError, match=r"thrice \(\)->\(\)"):
        pickle.dumps({"in": [op]})


def test_an_op_that_has_no_name_says_the_way():
    message = r"only_here \(\)->\(\): .*by its name.*only_here is not this op.*top of a module"
    with pytest.raises(pickle.PicklingError, match=message):
        pickle.dumps(local_op())


def test_an_executor_stays_in_its_process():
    with ThreadPoolExecutor(1) as pool:
        op = from_numpy(np.sin, **one, host=Host(vectorize=True, executor=pool))
        with pytest.raises(pickle.PicklingError, match=r"sin .*a ThreadPoolExecutor, belongs to"):
            pickle.dumps(op)
        op.host = Host(vectorize=True)
        again = pickle.loads(pickle.dumps(op))
        again.host = op.host = Host(vectorize=True, executor=pool)
        np.testing.assert_array_equal(bind(again)(np.arange(3.0)), np.sin(np.arange(3.0)))


@each_side
def test_bound_functions_are_found_at_their_op(framework):
    pytest.importorskip(framework)
    binder = importlib.import_module(f"twingrad.interop.{framework}")
    f = binder.bind(sample_ops.module_level)
    assert pickle.loads(pickle.dumps(f)) is f is copy.deepcopy(f)
    shipped = importlib.import_module(f"twingrad.ops.{framework}").log1mexp
    assert pickle.loads(pickle.dumps(shipped)) is shipped
    local = binder.bind(local_op())
    with pytest.raises((pickle.PicklingError, AttributeError), match=f"only_here.for_{framework}"):
        pickle.dumps(local)


@define("()->()")
def replaced(xp, x):
    return 5 * x


ORIGINAL = replaced
replaced = bind(replaced)


def test_an_op_whose_bound_function_took_its_name_is_found_there():
    assert pickle.loads(pickle.dumps(ORIGINAL)) is ORIGINAL
    assert pickle.loads(pickle.dumps(replaced)) is replaced


def test_a_copy_is_the_op_itself():
    for op in (local_op(), from_numpy(np.sin, **one), sample_ops.module_level):
        assert copy.copy(op) is copy.deepcopy(op) is copy.deepcopy([op])[0] is op
