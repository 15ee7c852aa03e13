"""Public bug reports about DLPack: arrays of the other framework, and NumPy arrays, as arguments.

There is no bridge between the frameworks yet: an array of the other one is refused by name,
before anything is shared.  NumPy arrays are ordinary arguments in JAX, whatever their strides.
"""

import importlib

import numpy as np
import pytest

from twingrad import ops
from twingrad.interop import ArgumentError, define

A = np.arange(1.0, 13.0).reshape(3, 4)
LAYOUTS = {
    "transposed": A.T,
    "stepped": A[:, ::2],
    "expanded": np.broadcast_to(A[0], (5, 4)),
    "negative": A[::-1, ::-1],
    "0-d": np.array(2.0),
    "empty": A[:0],
    "read-only": np.frombuffer(A.tobytes()),
}


@define("(),()->()")
def product(xp, a, b):
    return a * b


product.def_vjp(lambda xp, ct, out, a, b: (ct * b, ct * a))


@define("(),()->()")
def keep(xp, x, flag):
    return xp.where(flag, x, xp.zeros_like(x))


keep.def_vjp(lambda xp, ct, out, x, flag: (xp.where(flag, ct, 0 * ct), None))


def foreign_tensors():
    torch = importlib.import_module("torch")
    complex_ones = torch.ones(2, dtype=torch.complex128)
    return {
        "strided": torch.ones(3, 4).T[::2],
        "bool": torch.ones(2, dtype=torch.bool),
        "float64": torch.ones(2, dtype=torch.float64),
        "requires grad": torch.ones(2, requires_grad=True),
        "conjugated": complex_ones.conj(),
        "negated": complex_ones.conj().imag,
    }


@pytest.mark.parametrize(
    "kind", ["strided", "bool", "float64", "requires grad", "conjugated", "negated"]
)
def test_r49_r50_r51_r54_jax_refuses_every_kind_of_tensor(kind):
    """jax-ml/jax#7657, #19352, #11895, ROCm/FlyDSL#1099: whatever DLPack would make of it"""
    jax, _ = pytest.importorskip("jax"), pytest.importorskip("torch")
    f = importlib.import_module("tests.side_jax").function(ops.log_ndtr_diff)
    tensor, calls = foreign_tensors()[kind], []
    calls.append(lambda: f(jax.numpy.zeros(2), tensor))
    calls.append(lambda: jax.jit(lambda x: f(x, tensor))(jax.numpy.zeros(2)))
    calls.append(lambda: jax.vmap(jax.grad(lambda x: f(x, tensor)))(jax.numpy.zeros(2)))
    for call in calls:
        with pytest.raises(ArgumentError, match=r"log_ndtr_diff .*: b is a Tensor; expected a jax"):
            call()


@pytest.mark.parametrize("dtype", ["bool", "int32", "float64", "bfloat16"])
def test_r49_r50_r52_torch_refuses_every_kind_of_jax_array(dtype):
    """jax-ml/jax#19123, pytorch/pytorch#67081: an in-place write would change the array"""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    f = importlib.import_module("tests.side_torch").function(ops.log_ndtr_diff)
    array = jax.numpy.ones(2, dtype)
    with pytest.raises(ArgumentError, match=r"log_ndtr_diff .*: b is a ArrayImpl; expected a t"):
        f(torch.zeros(2), array)
    with pytest.raises(ArgumentError, match=r"b is a ArrayImpl"):
        torch.func.vmap(torch.func.grad(lambda x: f(x, array)))(torch.zeros(2))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_r49_a_numpy_array_of_any_layout_is_an_ordinary_argument_in_jax(layout):
    """jax-ml/jax#17784: the negative strides that abort a process over DLPack, too"""
    jax = pytest.importorskip("jax")
    f, x = importlib.import_module("tests.side_jax").function(product), LAYOUTS[layout]
    np.testing.assert_array_equal(f(x, 2.0), 2 * x)
    gradient = jax.grad(lambda a, b: (f(a, b) * b).sum(), (0, 1))(x, x + 1)
    np.testing.assert_allclose(gradient[0], (x + 1) ** 2)
    np.testing.assert_allclose(gradient[1], 2 * x * (x + 1))


@pytest.mark.parametrize("layout", ["transposed", "stepped", "expanded"])
def test_r49_a_tensor_of_any_layout_is_an_ordinary_argument_in_torch(layout):
    torch = pytest.importorskip("torch")
    f = importlib.import_module("tests.side_torch").function(product)
    x, y = torch.from_numpy(np.array(A)), torch.from_numpy(A + 1.0)
    change = {
        "transposed": lambda x: x.T,
        "stepped": lambda x: x[:, ::2],
        "expanded": lambda x: x[:1].expand(5, 4),
    }[layout]
    x, y = change(x), change(y)
    gradient = torch.func.grad(lambda a, b: (f(a, b) * b).sum(), (0, 1))(x, y)
    torch.testing.assert_close(gradient, (y**2, 2 * x * y))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_r50_a_boolean_argument_stays_one(framework):
    """jax-ml/jax#19352: a mask, vmapped with the data"""
    pytest.importorskip(framework)
    side = importlib.import_module(f"tests.side_{framework}")
    f, x = side.function(keep), side.array(np.array([1.0, 2.0, 3.0]))
    mask = side.array(np.array([True, False, True]))
    np.testing.assert_array_equal(side.numpy(f(x, mask)), [1, 0, 3])
    np.testing.assert_array_equal(side.numpy(side.vmap(side.grad(f))(x, mask)), [1, 0, 1])
