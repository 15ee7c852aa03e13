"""Bad input: one row for each error, and the same words from torch, JAX and NumPy.

Every message names the op with its signature, the argument, and what was found.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from twingrad import ops
from twingrad.interop import ArgumentError, Op, ShapeError, define

SIDES = ("torch", "jax", "numpy")
WEIGHTS = "truncated_mixture_weights (k),(k),(k),(),()->(k)"
ROSENBROCK = "rosenbrock (n)->()"
DIFF = "log_ndtr_diff (),()->()"


@define("(3),(n)->(n)")
def turned(xp, axis, x):
    return x


@dataclass(frozen=True)
class Bad:
    """`call(f, a)` is wrong, with f the bound op and a(shape) an array of the framework."""

    name: str
    op: Op
    call: Callable[[Any, Callable[..., Any]], Any]
    error: type[Exception]
    message: str


BAD = [
    Bad(
        "unequal core sizes",
        ops.truncated_mixture_weights,
        lambda f, a: f(a(3), a(4), a(3), a(), a()),
        ShapeError,
        f"{WEIGHTS}: dimension k is 3 in means (shape (3,)) but 4 in scales (shape (4,)); "
        "they must be equal",
    ),
    Bad(
        "unequal core sizes in a batch",
        ops.truncated_mixture_weights,
        lambda f, a: f(a(2, 3), a(2, 3), a(7, 2, 5), a(), a()),
        ShapeError,
        f"{WEIGHTS}: dimension k is 3 in means (shape (2, 3)) but 5 in weights "
        "(shape (7, 2, 5)); they must be equal",
    ),
    Bad(
        "too few dimensions",
        ops.rosenbrock,
        lambda f, a: f(a()),
        ShapeError,
        f"{ROSENBROCK}: x has shape (), but needs at least 1 dimension, (n,); "
        "dimensions before these are batch",
    ),
    Bad(
        "another size than the fixed one",
        turned,
        lambda f, a: f(a(2, 4), a(5)),
        ShapeError,
        "turned (3),(n)->(n): axis has shape (2, 4), but its core dimensions are (3,): "
        "found size 4 where 3 is fixed",
    ),
    Bad(
        "batches that do not broadcast",
        ops.log_ndtr_diff,
        lambda f, a: f(a(2, 3), a(4)),
        ShapeError,
        f"{DIFF}: the batch shapes do not broadcast: a (2, 3), b (4,)",
    ),
    Bad(
        "a zero batch against a larger one",
        ops.log_ndtr_diff,
        lambda f, a: f(a(0), a(2)),
        ShapeError,
        f"{DIFF}: the batch shapes do not broadcast: a (0,), b (2,)",
    ),
    Bad(
        "a missing argument",
        ops.log_ndtr_diff,
        lambda f, a: f(a()),
        ArgumentError,
        f"{DIFF}: the argument 'b' is missing; it takes 2 (a, b), found 1",
    ),
    Bad(
        "too many arguments",
        ops.log_ndtr_diff,
        lambda f, a: f(a(), a(), a()),
        ArgumentError,
        f"{DIFF}: it takes 2 arguments (a, b), found 3",
    ),
    Bad(
        "an argument given twice",
        ops.log_ndtr_diff,
        lambda f, a: f(a(), a(), a=a()),
        ArgumentError,
        f"{DIFF}: the argument 'a' was given twice",
    ),
    Bad(
        "an unknown argument",
        ops.rosenbrock,
        lambda f, a: f(a(4), c=1.0),
        ArgumentError,
        f"{ROSENBROCK}: unknown argument 'c'; it takes x, a, b",
    ),
    Bad(
        "a static parameter that is not hashable",
        ops.rosenbrock,
        lambda f, a: f(a(4), a=[1.0]),
        ArgumentError,
        f"{ROSENBROCK}: 'a' is a static parameter: it must be hashable, and no array; found list. "
        "Give a number, string or tuple, or make it an argument of the signature; a grid or mask "
        "that is part of the op is declared with constants=",
    ),
    Bad(
        "a list in place of an array",
        ops.log_ndtr_diff,
        lambda f, a: f(a(2), [1.0, 2.0]),
        ArgumentError,
        f"{DIFF}: b is a list; expected ",
    ),
    Bad(
        "a string in place of an array",
        ops.log_ndtr_diff,
        lambda f, a: f("-1", a(2)),
        ArgumentError,
        f"{DIFF}: a is a str; expected ",
    ),
    Bad(
        "None in place of an array",
        ops.rosenbrock,
        lambda f, a: f(None),
        ArgumentError,
        f"{ROSENBROCK}: x is a NoneType; expected ",
    ),
]


def _bound(framework):
    pytest.importorskip(framework)
    bind = importlib.import_module(f"twingrad.interop.{framework}").bind
    if framework == "numpy":
        return bind, np.zeros
    array = importlib.import_module(f"tests.side_{framework}").array
    return bind, lambda shape: array(np.zeros(shape))


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
@pytest.mark.parametrize("framework", SIDES)
def test_bad_input_is_explained(framework, bad):
    bind, zeros = _bound(framework)
    with pytest.raises(bad.error) as caught:
        bad.call(bind(bad.op), lambda *shape: zeros(shape))
    message = str(caught.value)
    if bad.message.endswith("expected "):  # what is expected differs between the frameworks
        assert message.startswith(bad.message)
        assert framework in message.lower() and "or a number" in message
    else:
        assert message == bad.message


@pytest.mark.parametrize("bad", BAD[:6], ids=lambda bad: bad.name)
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_bad_shapes_are_explained_inside_transforms(framework, bad):
    """The sizes in the message are those that the function sees: without the vmapped batch."""
    pytest.importorskip(framework)
    side = importlib.import_module(f"tests.side_{framework}")
    f = side.function(bad.op)
    shapes = []
    bad.call(lambda *x: None, lambda *shape: shapes.append(shape))
    x = [side.array(np.zeros((5, *shape))) for shape in shapes]
    for transformed in (side.vmap(f), side.vmap(side.grad(lambda *x: side.LIB.sum(f(*x))))):
        with pytest.raises(bad.error) as caught:
            transformed(*x)
        assert str(caught.value) == bad.message


@pytest.mark.parametrize(
    ("framework", "other"), [("torch", "numpy"), ("torch", "jax"), ("jax", "torch")]
)
def test_the_array_of_another_library_is_named(framework, other):
    """r49, r50, r51, r52, r54, r56: nothing goes over DLPack unseen, in a form that it breaks."""
    bind, _ = _bound(framework)
    _, foreign = _bound(other)
    wrong = foreign((2,))
    with pytest.raises(ArgumentError) as caught:
        bind(ops.log1mexp)(wrong)
    assert str(caught.value).startswith(f"log1mexp ()->(): x is a {type(wrong).__name__}; ")


def test_numpy_names_a_tensor():
    torch = pytest.importorskip("torch")
    bind, _ = _bound("numpy")
    with pytest.raises(ArgumentError, match=r"log1mexp \(\)->\(\): x is a Tensor; expected"):
        bind(ops.log1mexp)(torch.zeros(2))


def test_tensors_on_two_devices_are_named():
    torch = pytest.importorskip("torch")
    bind, _ = _bound("torch")
    with pytest.raises(ArgumentError, match=r"different devices: a on cpu, b on meta"):
        bind(ops.log_ndtr_diff)(torch.zeros(2), torch.zeros(2, device="meta"))


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_an_8_bit_float_is_refused(framework):
    pytest.importorskip(framework)
    side = importlib.import_module(f"tests.side_{framework}")
    x = side.array(np.zeros(2))
    if framework == "torch":
        x = x.to(importlib.import_module("torch").float8_e5m2)
    else:
        x = x.astype("float8_e5m2")
    with pytest.raises(ArgumentError, match=r"log1mexp .*: x has dtype .*float8_e5m2; expected"):
        side.function(ops.log1mexp)(x)
