"""Static parameters and what functions return: one behaviour in NumPy, torch and JAX."""

import functools
import gc
import importlib
import math
import operator
import weakref

import numpy as np
import pytest

from twingrad.interop import ArgumentError, RuleError, define
from twingrad.interop.op.statics.static import KEPT

FRAMEWORKS = ["numpy", "torch", "jax"]


@pytest.fixture(params=FRAMEWORKS)
def side(request):
    """bind, and a function that makes an array."""
    pytest.importorskip(request.param)
    bind = importlib.import_module(f"twingrad.interop.{request.param}").bind
    if request.param == "torch":
        return bind, lambda x: importlib.import_module("torch").tensor(x)
    if request.param == "jax":
        return bind, lambda x: importlib.import_module("jax.numpy").asarray(x)
    return bind, np.asarray


def apply_op(host=False):
    """g(x) for a static function g."""

    @define("()->()", host=host)
    def apply(xp, x, *, g):
        return g(x)

    apply.def_vjp(lambda xp, ct, out, x, *, g: ct)
    return apply


class Scale:
    """A callable object with a factor as an attribute."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return self.factor * x

    def method(self, x):
        return self.factor * x


def hiding(w):
    """Each way in which a function holds `w`."""

    def inner(x):
        return w * x

    return {
        "closure": inner,
        "nested closure": lambda x: inner(x),
        "default": lambda x, w=w: w * x,
        "keyword default": eval("lambda x, *, w=w: w * x", {"w": w}),
        "global": eval("lambda x: w * x", {"w": w}),
        "container": lambda x, held={"w": (w,)}: held["w"][0] * x,
        "partial": functools.partial(operator.mul, w),
        "nested partial": functools.partial(functools.partial(operator.mul), w),
        "method": Scale(w).method,
        "object": Scale(w),
        "object's object": Scale(Scale(w)),
        "wrapped": functools.wraps(inner)(lambda x: x),
    }


@pytest.mark.parametrize("side", ["torch", "jax"], indirect=True)  # NumPy has no gradients
@pytest.mark.parametrize("way", hiding(1.0))
@pytest.mark.parametrize("host", [False, True])
def test_an_array_in_a_static_function_is_refused(side, way, host):
    """Its gradient would be lost without a word."""
    bind, array = side
    f = bind(apply_op(host))
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"apply \(\)->\(\): .*'g'.*argument of the sign"):
            f(array(2.0), g=hiding(array([3.0]))[way])


@pytest.mark.parametrize("way", sorted(set(hiding(1.0)) - {"object's object"}))
@pytest.mark.parametrize("w", [3.0, np.float32(3)])
def test_numbers_in_a_static_function_are_allowed(side, way, w):
    bind, array = side
    assert float(bind(apply_op())(array(2.0), g=hiding(w)[way])) in (6.0, 2.0)


def test_layers_with_parameters_are_refused_and_others_are_not():
    torch = pytest.importorskip("torch")
    from twingrad.interop.torch import bind

    f, x = bind(apply_op()), torch.tensor([2.0])
    assert f(x, g=torch.nn.ReLU()) == 2
    layers = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(1, 1))
    for layer in (layers, layers[1], layers.forward, torch.compile(layers[1])):
        with pytest.raises(ArgumentError, match=r"apply .*'g', .*Parameter \(.*weight\)"):
            f(x, g=layer)


def test_a_tracer_in_a_static_function_is_refused():
    jax = pytest.importorskip("jax")
    from twingrad.interop.jax import bind

    f = bind(apply_op())
    for transform in (jax.jit, jax.grad, jax.vmap):
        w = jax.numpy.ones(3 if transform is jax.vmap else ())
        with pytest.raises(ArgumentError, match=r"apply .*'g'.*Tracer"):
            transform(lambda w: f(2.0, g=lambda x: w * x))(w)


def test_functions_of_libraries_are_allowed(side):
    bind, array = side
    f, x = bind(apply_op()), array(0.5)
    library = {
        "ndarray": [np.sin, np.tanh],
        "Tensor": ["torch.sin", "torch.special.erf", "torch.nn.functional.gelu"],
        "ArrayImpl": ["jax.numpy.sin", "jax.nn.gelu", "jax.scipy.special.erfc"],
    }
    for g in library.get(type(x).__name__, [math.sin, operator.neg]):
        if isinstance(g, str):
            module, _, name = g.rpartition(".")
            g = getattr(importlib.import_module(module), name)
        assert f(x, g=g).shape == ()


NAN = float("nan")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (NAN, float("nan"), False),
        (complex(0, NAN), complex(0, float("nan")), False),
        ((1, (NAN,)), (1, (float("nan"),)), False),
        (0.0, -0.0, True),
        ((0.0,), (-0.0,), True),
        (1, True, True),
        (1, 1.0, True),
        (frozenset({1}), frozenset({True}), True),
        (frozenset({1, 2}), frozenset({2, 1}), False),
    ],
)
def test_static_values_are_told_apart_as_they_should(first, second, told):
    op = apply_op()
    assert (op.static({"g": first}) != op.static({"g": second})) == told


def test_zeros_of_both_signs_are_two_values(side):
    @define("()->()")
    def signed(xp, x, *, p):
        return x * math.copysign(1.0, p)

    bind, array = side
    f = bind(signed)
    assert [float(f(array(2.0), p=p)) for p in (0.0, -0.0, 0.0)] == [2, -2, 2]


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, ([1],), (1, ({},))], ids=repr)
def test_containers_that_can_change_are_refused(side, value):
    bind, array = side
    with pytest.raises(ArgumentError, match=r"apply .*'g' is a static parameter.*hashable"):
        bind(apply_op())(array(2.0), g=value)


def test_old_static_functions_are_freed(side):
    """The latest ones are kept, with what was made for them; so NaN is not new each time."""
    bind, array = side
    f, x, refs = bind(apply_op()), array(2.0), []
    for _ in range(3 * KEPT):
        g = Scale(2.0)
        refs.append(weakref.ref(g))
        assert float(f(x, g=g)) == 4
    del g
    gc.collect()
    assert sum(ref() is not None for ref in refs) <= KEPT


class Bare:
    """Neither an array nor a number."""


@pytest.mark.parametrize(
    "found", [{"y": 1.0}, None, "text", Bare()], ids=lambda x: type(x).__name__
)
@pytest.mark.parametrize("host", [False, True])
def test_a_function_that_returns_no_array_is_named(side, found, host):
    bind, array = side
    in_jax = host and ".jax" in bind.__module__  # which raises its own type from a callback
    kind = Exception if in_jax else RuleError
    with pytest.raises(kind, match=rf"apply .*function returned a {type(found).__name__}"):
        bind(apply_op(host))(array(2.0), g=lambda x: found)


@pytest.mark.parametrize("found", [{"y": 1.0}, "text", Bare()], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_a_rule_that_returns_no_array_is_named(side, found, kind):
    @define("()->()")
    def odd(xp, x):
        return 2 * x

    getattr(odd, f"def_{kind}")(lambda xp, seed, out, x: found)
    bind, array = side
    with pytest.raises(RuleError, match=rf"odd .*its {kind} returned a {type(found).__name__}"):
        _derive(bind, kind, odd, array(2.0))


def _derive(bind, kind, op, x):
    if type(x).__name__ == "ndarray":
        return getattr(bind(op), kind)(x, x)
    if type(x).__name__ == "Tensor":
        import torch.func as lib
    else:
        import jax as lib
    if kind == "vjp":
        return lib.vjp(bind(op), x)[1](x)
    return lib.jvp(bind(op), (x,), (x,))
