"""Public bug reports that tell of torch, each done with twingrad in JAX: it is right there, too.

A test's name begins with the number of its case; the reports are named in the docstrings.
"""

import functools
import gc
import weakref

import numpy as np
import pytest
import scipy.special

pytest.importorskip("jax")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from tests import sample_ops  # noqa: E402
from twingrad.interop import MissingRuleError, define  # noqa: E402
from twingrad.interop.jax import bind  # noqa: E402

close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
TRANSFORMS = pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
NESTINGS = [(a, b) for a in (jax.jacrev, jax.jacfwd) for b in (jax.jacrev, jax.jacfwd)]
X = np.array([0.5, -1.0, 2.0])


@pytest.mark.parametrize("rules", ["vjp", "jvp", "both"])
def test_r07_r08_forward_mode_follows_from_either_rule(rules):
    """flatironinstitute/pytorch-finufft#110, pytorch/pytorch#121084, in JAX"""
    f = bind(sample_ops.multiply(rules))
    push = jax.jit(lambda a, b: jax.jvp(f, (a, b), (1.0, 10.0))[1])
    close(push(2.0, 5.0), 25)
    close(jax.vmap(push, (0, None))(jnp.array([2.0, 3.0]), 5.0), [25, 35])


@pytest.mark.parametrize(("outer", "inner"), NESTINGS)
def test_r10_r11_r12_second_derivatives_are_right_next_to_another_path(outer, inner):
    """pytorch/pytorch#197867, #58509, #76185, in JAX"""
    f = bind(sample_ops.softplus_hidden())
    s = 1 / (1 + np.exp(-0.3))
    close(jax.jit(outer(inner(lambda t: f(t) + t**2)))(0.3), s * (1 - s) + 2)


@TRANSFORMS
def test_r13_a_numpy_rule_never_drops_a_second_derivative(transform):
    """pytorch/pytorch#89860, in JAX"""
    f, opaque = bind(sample_ops.host_sin()), bind(sample_ops.host_sin(second=False))

    def second(f):
        return transform(jax.grad(jax.grad(lambda t: f(t) + t**3)))(1.0)

    close(second(f), 6 - np.sin(1.0))
    with pytest.raises(MissingRuleError, match="host_sin"):
        second(opaque)


def test_r15_r19_jit_around_and_inside_the_transforms_keeps_the_rule():
    """pytorch/pytorch#193279, #129845, in JAX: with the bare custom_vjp as well"""

    @define("()->()")
    def clip(xp, t):
        return xp.clip(t, -1.0, 1.0)

    clip.def_vjp(lambda xp, ct, out, t: 10 * ct)
    x = jnp.array([-3.0, 0.0, 3.0])
    for f in (bind(clip), lambda t: bind(clip).custom_vjp(t)[0]):
        total = lambda t, f=f: f(t).sum()  # noqa: E731
        for g in (jax.jit(jax.grad(total)), jax.grad(jax.jit(total))):
            close(g(x), [10] * 3)
        for g in (jax.jit(jax.vmap(jax.grad(f))), jax.vmap(jax.jit(jax.grad(jax.jit(f))))):
            close(g(x), [10] * 3)
        close(jax.jit(jax.grad(lambda t, f=f: jax.vmap(f)(t).sum()))(x), [10] * 3)


def test_r18_r67_an_array_op_that_writes_in_place_leaves_its_input_alone():
    """pytorch/pytorch#180642, #5871, in JAX"""

    @define("(),()->()")
    def add_to(xp, a, b):
        a += b
        return a

    add_to.def_vjp(lambda xp, ct, out, a, b: (ct, ct))
    f = bind(add_to)
    for kind in (np.array, jnp.array):
        a, b = kind([1.0, 2.0]), kind([10.0, 20.0])
        close(f(a, b), [11, 22])
        close((a, b), ([1, 2], [10, 20]))
    close(jax.grad(lambda a, b: (f(a, b) * a).sum(), (0, 1))(a, b), ([12, 24], [1, 2]))
    close((a, b), ([1, 2], [10, 20]))


@TRANSFORMS
def test_r67_r68_a_host_function_cannot_write_into_its_input(transform):
    """pytorch/pytorch#96852, #5871, in JAX: neither its function nor its rule"""

    @define("(n)->(n)", host=True)
    def clip(xp, a):
        if a.max() > 2:
            np.clip(a, 0, 1, out=a)
        return a * 1

    @clip.def_vjp
    def _(xp, ct, out, a):
        ct *= 2
        return ct

    f, large, small = bind(clip), jnp.array([-2.0, 0.5, 3.0]), jnp.array([-2.0, 0.5, 1.0])
    with pytest.raises(Exception, match="read-only"):
        jax.block_until_ready(transform(f)(large))
    with pytest.raises(Exception, match="read-only"):
        jax.block_until_ready(transform(jax.grad(lambda a: f(a).sum()))(small))
    close(large, [-2.0, 0.5, 3.0])


@TRANSFORMS
def test_r47_host_rules_get_contiguous_arrays_whatever_the_layout(transform):
    """Dao-AILab/flash-attention#355, in JAX: sliced, transposed and broadcast cotangents"""
    energy, recorder = sample_ops.host_energy()
    x, w = np.random.default_rng(0).normal(size=(3, 4)), jnp.arange(8.0).reshape(2, 4)
    for weight in (w.T[:, 1], w[1, ::-1], jnp.broadcast_to(jnp.array(2.0), (4,))):
        total = lambda x, weight=weight: (bind(energy)(x.T, 3.0) * weight).sum()  # noqa: E731
        close(transform(jax.grad(total))(x), 6 * x * weight)
    given = [a for call in recorder.calls + recorder.adjoint_calls for a in call]
    assert len(recorder.adjoint_calls) == 3
    assert all(a.flags.c_contiguous and not a.flags.writeable for a in given)


@TRANSFORMS
@pytest.mark.parametrize("start", [1 + 2j, 2.0])
def test_r71_one_complex_rule_is_right_and_a_real_input_gets_a_real_gradient(start, transform):
    """jax-ml/jax#9110: array and host op, compared with JAX's own product"""

    @define("(),()->()", host=True)
    def on_host(xp, a, b):
        return a * b

    on_host.def_vjp(lambda xp, ct, out, a, b: (ct * b, ct * a))
    found = [
        transform(jax.grad(lambda t, g=g: (lambda y: y.real + y.imag)(g(t, 3 - 1j))))(start)
        for g in (jnp.multiply, bind(sample_ops.multiply()), bind(on_host))
    ]
    assert {g.dtype for g in found} == {jnp.result_type(start)}
    close(found[1:], found[0])


@pytest.mark.parametrize("order", [1, 2])
def test_r66_nothing_is_alive_after_the_pull_back_is_dropped(order):
    """pytorch/pytorch#51978, #52140, in JAX: also when the rule differentiates inside"""

    @define("()->()")
    def sine(xp, x):
        return xp.sin(x)

    sine.def_vjp(lambda xp, ct, out, x: jax.vjp(jnp.sin, x)[1](ct)[0])

    def f(x):
        return bind(sine)(x).sum()

    x = jnp.linspace(0.1, 1.0, 7) * 2
    out, pull = jax.vjp(jax.grad(f) if order == 2 else f, x)
    found = pull(jnp.ones_like(out))[0]
    close(found, -np.sin(x) if order == 2 else np.cos(x))
    alive = [weakref.ref(a) for a in (x, out, found)]
    del x, out, found, pull
    gc.collect()
    assert [a() for a in alive] == [None] * 3


def test_r78_a_scipy_op_runs_its_rule_in_every_compiled_form():
    """pytorch/pytorch#160757, in JAX"""

    @define("()->()", host=True)
    def gammaln(xp, x):
        return scipy.special.gammaln(x)

    gammaln.def_vjp(lambda xp, ct, out, x: 100 * ct * scipy.special.digamma(x))
    f, x = bind(gammaln), jnp.array([2.5, 1.0])
    total = lambda x: (f(x * 1.0) * 2).sum()  # noqa: E731
    for g in (jax.jit(jax.grad(total)), jax.grad(jax.jit(total))):
        close(g(x), 200 * scipy.special.digamma(x))
    close(jax.jit(jax.vmap(jax.grad(f)))(x), 100 * scipy.special.digamma(x))
