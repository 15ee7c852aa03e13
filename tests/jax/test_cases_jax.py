"""Public bug reports about hand-written gradients in JAX, each done with twingrad: it is right.

A test's name begins with the number of its case; the reports are named in the docstrings.
The last tests are about host ops: how often and with what they are called, and their errors.
"""

import functools

import numpy as np
import pytest
import scipy.special

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from tests import sample_ops
from twingrad.interop import MissingRuleError, RuleError, define
from twingrad.interop.jax import bind

close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
TRANSFORMS = pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@TRANSFORMS
def test_r01_r35_batching_and_gradient_compose_both_ways(transform):
    """pytorch/functorch#207 in JAX, jax-ml/jax#14150"""
    f = bind(sample_ops.dot(10))
    x = np.random.default_rng(0).normal(size=(4, 3))
    close(transform(jax.vmap(jax.grad(lambda x: f(x, x))))(x), 20 * x)
    close(transform(jax.grad(lambda x: jax.vmap(f)(x, x).sum()))(x), 20 * x)


@pytest.mark.parametrize("host", [False, True])
@TRANSFORMS
def test_r04_a_gradient_of_the_wrong_shape_raises(host, transform):
    """jax-ml/jax#28757"""

    @define("(n)->()", host=host)
    def total(xp, x):
        return x.sum(-1)

    total.def_vjp(lambda xp, ct, out, x: xp.ones((5, 3)))
    with pytest.raises((RuleError, jax.errors.JaxRuntimeError), match=r"total.*\(5, 3\)"):
        jax.block_until_ready(transform(jax.grad(bind(total)))(jnp.zeros(3)))


@TRANSFORMS
def test_r20_r22_an_op_with_only_a_vjp_has_a_hessian_and_a_jvp(transform):
    """jax-ml/jax#16049, google/jaxopt#474"""
    f = bind(sample_ops.cube(rules="vjp"))
    x = np.array([1.0, 2.0])
    close(transform(jax.hessian(lambda x: f(x).sum()))(x), np.diag(6 * x))
    close(transform(lambda x: jax.jvp(f, (x,), (jnp.ones(2),))[1])(x), 3 * x**2)


@TRANSFORMS
def test_r23_a_linear_host_op_has_both_modes(transform):
    """jax-ml/jax#30401"""
    a = np.array([[1.0, 2.0], [3.0, 4.0]])

    @define("(2)->(2)", host=True)
    def product(xp, v):
        return v @ a.T

    @define("(2)->(2)", host=True)
    def transposed(xp, v):
        return v @ a

    product.def_jvp(lambda xp, t, out, v: product(xp, t[0]), host=False)
    product.def_vjp(lambda xp, ct, out, v: transposed(xp, ct), host=False)
    f, v = bind(product), jnp.ones(2)
    close(transform(lambda v: jax.jvp(f, (v,), (v,))[1])(v), [3, 7])
    close(transform(jax.grad(lambda v: f(v).sum()))(v), [4, 6])
    close(transform(jax.vmap(jax.grad(lambda v: f(v).sum())))(v[None]), [[4, 6]])


def test_r25_a_mask_is_an_ordinary_argument_in_every_control_flow():
    """jax-ml/jax#2912"""
    f = bind(sample_ops.multiply())
    x, m = jnp.ones(3), jnp.array([1.0, 0.0, 2.0])
    total = lambda x, m: f(x, m).sum()  # noqa: E731
    close(jax.jit(jax.grad(total))(x, m), m)
    close(jax.grad(jax.jit(total))(x, m), m)
    loop = lambda x: jax.lax.scan(lambda c, _: (f(c, m), None), x, None, 2)[0].sum()  # noqa: E731
    close(jax.grad(loop)(x), m**2)
    close(jax.grad(lambda x: jax.lax.cond(True, total, lambda x, m: x.sum(), x, m))(x), m)


def test_r26_a_scale_as_an_argument_is_differentiated_where_a_closure_leaks():
    """jax-ml/jax#4008"""
    f = bind(sample_ops.multiply())
    close(jax.grad(jax.jit(f), (0, 1))(3.0, 2.0), (2, 3))
    close(jax.vmap(jax.grad(f, 1), (0, None))(jnp.array([3.0, 4.0]), 2.0), [3, 4])


@pytest.mark.parametrize(("dtype", "other"), [("bfloat16", "float32"), ("float32", "float64")])
@TRANSFORMS
def test_r29_a_gradient_has_its_inputs_dtype(dtype, other, transform):
    """jax-ml/jax#23779"""

    @define("()->()")
    def double(xp, x):
        return 2 * x

    double.def_vjp(lambda xp, ct, out, x: (2 * ct).astype(other))
    found = transform(jax.grad(lambda x: bind(double)(x).sum()))(jnp.ones(2, dtype))
    assert found.dtype == dtype and found.tolist() == [2, 2]


def test_r30_the_gradient_of_a_broadcast_argument_is_summed():
    """jax-ml/jax#3056, for a jvp rule"""
    f = bind(sample_ops.multiply("jvp"))
    g = jax.grad(lambda q: f(q, np.array([1.0, 2.0, 3.0])).sum())(1.0)
    assert g.shape == () and g == 6


def test_r32_keyword_arguments():
    """jax-ml/jax#13302, #1938"""
    f = bind(sample_ops.power())
    assert jax.grad(f)(3.0) == 6
    assert jax.grad(lambda x: f(x, p=3.0))(3.0) == jax.jit(jax.grad(f), static_argnames="p")(
        3.0, p=3.0
    )
    close(jax.vmap(lambda x: f(x=x, p=3.0))(jnp.array([1.0, 2.0])), [1, 8])


@TRANSFORMS
@pytest.mark.parametrize("form", ["bound", "custom_vjp"])
def test_r34_the_adjoint_is_not_called_when_nobody_asks(transform, form):
    """jax-ml/jax#11208: nor for an argument that is not differentiated"""
    energy, recorder = sample_ops.host_energy()
    f = bind(energy) if form == "bound" else lambda *a: bind(energy).custom_vjp(*a)[0]
    x, s = jnp.array([1.0, 2.0]), jnp.array(2.0)
    jax.block_until_ready(transform(f)(x, s))
    jax.block_until_ready(transform(jax.grad(lambda t: f(x, s) * t))(1.0))
    jax.block_until_ready(transform(lambda x, s: jax.vjp(f, x, s)[0])(x, s))
    assert recorder.counts[1] == 0


@TRANSFORMS
def test_r76_a_host_function_without_a_rule_raises_next_to_another_path(transform):
    """jax-ml/jax#1142"""

    @define("()->()", host=True)
    def gammaln(xp, x):
        return scipy.special.gammaln(x)

    for g in (jax.grad, jax.jacfwd):
        with pytest.raises(MissingRuleError, match=r"gammaln \(\)->\(\)"):
            transform(g(lambda x: bind(gammaln)(x) + x**2))(2.5)
    gammaln.def_vjp(lambda xp, ct, out, x: ct * scipy.special.digamma(x))
    close(transform(jax.grad(lambda x: bind(gammaln)(x) + x**2))(2.5), 5.703156640645243)


@TRANSFORMS
def test_r02_r39_a_host_op_is_called_once_per_batch_however_it_is_mapped(transform):
    """jax-ml/jax#23624: with one batch dimension in front, 1 for what is the same for all"""
    energy, recorder = sample_ops.host_energy()
    f = bind(energy)
    x, s = np.random.default_rng(0).normal(size=(2, 5, 3)), np.arange(5.0)
    right = (x * x).sum(-1) * s
    ways = {
        "vmap(vmap)": (jax.vmap(jax.vmap(f), (0, None)), (x, s)),
        "other axes": (jax.vmap(jax.vmap(f, (1, 0)), (0, None)), (x.swapaxes(1, 2), s)),
        "broadcast": (f, (x, s)),
        "vmap of broadcast": (jax.vmap(f, (0, None)), (x, s)),
    }
    for name, (g, args) in ways.items():
        recorder.clear()
        close(transform(g)(*args), right, err_msg=name)
        assert [[a.shape for a in call] for call in recorder.calls] == [[(10, 3), (10,)]], name
    recorder.clear()
    close(transform(jax.vmap(f, (0, None)))(x[0], 2.0), (x[0] ** 2).sum(-1) * 2)
    assert [a.shape for a in recorder.calls[0]] == [(5, 3), (1,)]


@TRANSFORMS
def test_a_batched_gradient_calls_the_adjoint_once(transform):
    energy, recorder = sample_ops.host_energy()
    x, s = np.random.default_rng(0).normal(size=(4, 3)), np.arange(4.0)
    close(transform(jax.vmap(jax.grad(bind(energy))))(x, s), 2 * x * s[:, None])
    assert recorder.counts[1] == 1
    arrays = recorder.calls[0] + recorder.adjoint_calls[0]
    assert all(type(a) is np.ndarray and a.flags.c_contiguous for a in arrays)
    assert not any(a.flags.writeable for a in arrays)


@TRANSFORMS
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x.sum(-1, keepdims=True) * np.ones(2), r"faulty.*shape \(1, 2\)"),
        (lambda x: (x, x), r"faulty.*2 values"),
        (lambda x: 1 / len(x[0, :0]), r"division by zero"),
        (lambda x: np.clip(x, 0, 1, out=x)[:, 0], r"read-only"),
        (lambda x: np.array(["a"]), r"faulty.*dtype"),
    ],
)
def test_a_faulty_host_function_raises_and_the_process_goes_on(function, text, transform):
    @define("(n)->()", host=True)
    def faulty(xp, x):
        return function(x) if x[0, 0] < 5 else x[:, 0]

    f = transform(bind(faulty))
    with pytest.raises(Exception, match=text) as caught:
        jax.block_until_ready(f(jnp.ones(3)))
    notes = getattr(caught.value, "__notes__", [])  # a compiled program hands on the text alone
    assert "faulty" in "; ".join((str(caught.value), *notes))
    close(f(jnp.full(3, 7.0)), 7)
