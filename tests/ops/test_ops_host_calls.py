"""How often a host op is called: once for a batch, and its adjoint only when it is asked for."""

import importlib

import numpy as np
import pytest

from twingrad.interop import define

each_side = pytest.mark.parametrize("framework", ["torch", "jax"])


def counted():
    """x . y on the host with a counted adjoint; the numbers of calls of both."""
    calls = {"value": 0, "adjoint": 0}

    @define("(n),(n)->()", host=True)
    def product(xp, x, y):
        calls["value"] += 1
        return (x * y).sum(-1)

    @product.def_vjp
    def _(xp, ct, out, x, y):
        calls["adjoint"] += 1
        return ct[..., None] * y, ct[..., None] * x

    return product, calls


def _setting(framework):
    pytest.importorskip(framework)
    side = importlib.import_module(f"tests.side_{framework}")
    op, calls = counted()
    rng = np.random.default_rng(0)
    x, y = (side.array(rng.standard_normal((5, 3))) for _ in range(2))
    return side, side.function(op), calls, x, y


@each_side
def test_a_batch_is_one_call(framework):
    side, f, calls, x, y = _setting(framework)
    batched = [(f, y), (side.vmap(f), y), (side.vmap(f, (0, None)), y[0])]
    for number, (function, second) in enumerate(batched, start=1):
        assert side.numpy(function(x, second)).shape == (5,)
        assert calls["value"] == number


@each_side
def test_a_batch_of_gradients_is_one_call_of_the_adjoint(framework):
    side, f, calls, x, y = _setting(framework)
    got = side.vmap(side.grad(f, argnums=(0, 1)))(x, y)
    np.testing.assert_allclose(side.numpy(got[0]), side.numpy(y))
    assert calls["adjoint"] == 1


@pytest.mark.compile
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@each_side
def test_a_thousand_points_are_one_call_of_each(framework, compiled):
    side, f, calls, _, _ = _setting(framework)
    x, y = (side.array(np.linspace(a, 1, 3000).reshape(1000, 3)) for a in (0, -1))
    compiler = side.compiler("eager") if compiled else lambda f: f
    for name, g in {"value": side.vmap(f), "adjoint": side.vmap(side.grad(f))}.items():
        function = compiler(lambda x, y, g=g: g(x, y))
        function(x, y)  # traced
        calls.update(value=0, adjoint=0)
        got = side.numpy(function(x, y))
        assert calls[name] == 1 and calls["value"] <= 1
    np.testing.assert_allclose(got, side.numpy(y))


@each_side
def test_the_value_alone_never_calls_the_adjoint(framework):
    side, f, calls, x, y = _setting(framework)
    side.numpy(f(x, y))
    assert calls == {"value": 1, "adjoint": 0}


def test_torch_calls_no_adjoint_where_no_input_needs_a_gradient():
    torch = pytest.importorskip("torch")
    _, f, calls, x, y = _setting("torch")
    other = torch.ones(5, dtype=torch.float64, requires_grad=True)
    (f(x, y) * other).sum().backward()
    assert calls["adjoint"] == 0


def test_jax_calls_no_adjoint_for_a_gradient_in_something_else():
    jax = pytest.importorskip("jax")
    _, f, calls, x, y = _setting("jax")
    jax.grad(lambda other: (f(x, y) * other).sum())(np.ones(5))
    assert calls["adjoint"] == 0


def test_what_a_jitted_host_function_keeps_of_its_arguments_stays():
    jax = pytest.importorskip("jax")
    kept = []

    @define("(n)->(n)", host=True)
    def keeps(xp, x):
        kept.append(x)
        return x + 1

    bound = importlib.import_module("twingrad.interop.jax").bind(keeps)
    program = jax.jit(lambda x: 3 * bound(2 * x))
    for i in range(8):
        program(jax.numpy.full(1000, float(i))).block_until_ready()
    assert [float(x[0, 0]) for x in kept] == [2.0 * i for i in range(8)]
