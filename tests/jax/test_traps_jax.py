"""The places where a hand-written rule is lost, refused or wrong in JAX (traps J1, J3 and J4).

The ops here have rules that are 100 times the derivative: a result without the factor was
made by autodiff.
"""

import functools

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.export
import jax.numpy as jnp

from tests import sample_ops
from twingrad.interop import MissingRuleError, define
from twingrad.interop.jax import bind

close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
RULES = ("vjp", "jvp", "both")
X = 2.0  # where 100 * 3 x^2 and 100 * 6 x are both 1200


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def scanned(f):
    """The gradient through a loop whose body calls f once, on the carried value."""
    return jax.grad(lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0])


def pushed_through_while(f):
    def loop(x):
        state = jax.lax.while_loop(lambda s: s[0] < 1, lambda s: (s[0] + 1, f(s[1])), (0, x))
        return state[1]

    return lambda x: jax.jvp(loop, (x,), (1.0,))[1]


FIRST_ORDER = {
    "grad": jax.grad,
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](1.0)[0],
    "jacrev": jax.jacrev,
    "jacfwd": jax.jacfwd,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (1.0,))[1],
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](1.0),
    "transposed": lambda f: lambda x: jax.linear_transpose(jax.linearize(f, x)[1], x)(1.0)[0],
    "vmap(grad)": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.full(2, x))[0],
    "vmap(jacfwd)": lambda f: lambda x: jax.vmap(jax.jacfwd(f))(jnp.full(2, x))[0],
    "grad(vmap)": lambda f: lambda x: jax.grad(lambda xs: jax.vmap(f)(xs).sum())(jnp.full(2, x))[0],
    "grad(jit)": lambda f: jax.grad(jax.jit(f)),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
    "scan": scanned,
    "while": pushed_through_while,
    "cond": lambda f: jax.grad(lambda x: jax.lax.cond(x > 0, f, lambda x: x, x)),
}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("mode", FIRST_ORDER)
def test_the_hand_written_rule_runs_in_every_first_order_mode(mode, rules):
    g = FIRST_ORDER[mode](bind(sample_ops.cube(100, rules)))
    close(g(X), 1200)
    close(jax.jit(g)(X), 1200)


@pytest.mark.parametrize("rules", ("vjp", "both"))
@pytest.mark.parametrize("mode", ["grad", "vmap(grad)", "checkpoint", "scan", "grad(jit)"])
def test_the_plain_custom_vjp_runs_the_rule_in_reverse_mode(mode, rules):
    plain = bind(sample_ops.cube(100, rules)).custom_vjp
    close(FIRST_ORDER[mode](lambda x: plain(x)[0])(jnp.array(X)), 1200)


SECOND = {
    f"{a.__name__}({b.__name__})": lambda f, a=a, b=b: a(b(f))
    for a in (jax.jacrev, jax.jacfwd)
    for b in (jax.jacrev, jax.jacfwd)
} | {"hessian": jax.hessian, "scan": lambda f: jax.grad(scanned(f))}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("nesting", SECOND)
def test_second_derivatives_differentiate_the_rule_in_every_nesting(nesting, rules):
    """J1: custom_vjp has no forward mode, and a linear call has no second order."""
    second = SECOND[nesting](bind(sample_ops.cube(100, rules)))
    close(second(X), 1200)
    close(jax.jit(jax.vmap(second))(jnp.array([X, 2 * X])), [1200, 2400])


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("order", range(8))
def test_third_derivatives_in_every_nesting(order, rules):
    f = bind(sample_ops.cube(100, rules))
    for bit in range(3):
        f = (jax.jacfwd if order >> bit & 1 else jax.jacrev)(f)
    close(jax.jit(f)(X), 600)


@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_linearize_of_a_host_op_is_right_along_other_tangents(second, transform):
    f = bind(sample_ops.host_sin(second))
    for x in (jnp.array(0.3), jnp.array([0.3, 1.0])):
        push = transform(jax.linearize(f, x)[1])
        for t in (jnp.ones_like(x), jnp.full_like(x, -3.0)):
            close(push(t), t * jnp.cos(x))


def test_a_gradient_never_changes_dtype_because_a_rule_did():
    """J3: a float64 or complex gradient for a float32 input."""

    @define("()->()")
    def loud(xp, x):
        return x * 2

    loud.def_vjp(lambda xp, ct, out, x: (2 * ct).astype("complex128"))
    x = jnp.ones((), jnp.float32)
    for g in (jax.grad(bind(loud)), jax.grad(lambda x: bind(loud).custom_vjp(x)[0])):
        for found in (g(x), jax.jit(g)(x), jax.vmap(g)(x[None])[0]):
            assert found.dtype == jnp.float32 and found == 2


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, lambda f: jax.jit(jax.grad(f))])
def test_host_functions_get_numpy_arrays(transform):
    """J4; r41: jax-ml/jax#12194"""
    energy, recorder = sample_ops.host_energy()
    f = bind(energy)
    jax.block_until_ready(transform(lambda x: f(x, 2.0))(jnp.ones(3)))
    given = [a for call in recorder.calls + recorder.adjoint_calls for a in call]
    assert given
    assert {type(a) for a in given} == {np.ndarray}


@pytest.mark.parametrize("platforms", [("cpu",), ("cuda",), ("cpu", "cuda")])
@pytest.mark.parametrize("rules", RULES)
def test_an_array_op_and_its_gradients_lower_for_other_platforms(platforms, rules):
    f = bind(sample_ops.cube(100, rules))
    for g in (f, jax.grad(f), jax.jacfwd(f), jax.hessian(f)):
        mapped = jax.jit(lambda x, g=g: (g(x[0]), jax.vmap(g)(x)))
        exported = jax.export.export(mapped, platforms=platforms)(
            jax.ShapeDtypeStruct((3,), jnp.float32)
        )
        assert exported.platforms == platforms


def test_an_exported_gradient_runs_the_rule():
    g = jax.jit(jax.vmap(jax.grad(bind(sample_ops.cube(100)))))
    exported = jax.export.export(g)(jax.ShapeDtypeStruct((2,), jnp.float64))
    close(exported.call(jnp.array([1.0, 2.0])), [300, 1200])


def test_a_batch_of_symbolic_size_can_be_exported():
    g = jax.jit(jax.grad(lambda x: bind(sample_ops.dot(100))(x, x).sum()))
    (b,) = jax.export.symbolic_shape("b")
    exported = jax.export.export(g)(jax.ShapeDtypeStruct((b, 3), jnp.float64))
    for n in (1, 4):
        close(exported.call(jnp.ones((n, 3))), np.full((n, 3), 200))


def test_a_batch_of_symbolic_size_can_be_exported_next_to_an_unbatched_argument():
    f = bind(sample_ops.affine())
    g = jax.jit(jax.grad(lambda s, x: f(x, s, 1.0).sum()))
    (b,) = jax.export.symbolic_shape("b")
    shapes = jax.ShapeDtypeStruct((), jnp.float64), jax.ShapeDtypeStruct((b, 3), jnp.float64)
    close(jax.export.export(g)(*shapes).call(2.0, jnp.ones((4, 3))), 12)


@pytest.mark.parametrize("wrap", [jax.grad, jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_a_missing_second_derivative_raises_and_is_never_a_number(wrap, transform):
    f = bind(sample_ops.host_sin(second=False))
    close(jax.grad(f)(X), np.cos(X))
    with pytest.raises(MissingRuleError, match=r"host_sin.*higher derivative"):
        transform(wrap(jax.grad(lambda x: f(x) + x**3)))(X)


def test_every_pattern_of_live_tangents_is_right():
    f = bind(sample_ops.dot(100))
    x, y = np.arange(3.0), np.ones(3)
    close(jax.jvp(lambda x: f(x, y), (x,), (y,))[1], 300)
    close(jax.jvp(lambda y: f(x, y), (y,), (y,))[1], 300)
    close(jax.jvp(lambda x: f(x, x), (x,), (y,))[1], 600)
    mixed = jax.jacfwd(jax.jacrev(f, 0), 1)
    close(mixed(x, y), 100 * np.eye(3))
    close(jax.jit(jax.vmap(mixed, (0, None)))(np.stack([x, x]), y), [100 * np.eye(3)] * 2)
