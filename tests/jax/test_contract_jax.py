"""The contract of an op in JAX: several outputs, integers, static parameters, dtypes, complex."""

import functools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from tests import sample_ops
from twingrad.interop import ArgumentError, RuleError, define
from twingrad.interop.jax import bind

close = functools.partial(np.testing.assert_allclose, rtol=1e-12)


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def single_precision():
    jax.config.update("jax_enable_x64", False)


X = np.array([1.0, -2.0, 0.5])


@pytest.mark.parametrize("form", ["bound", "custom_vjp"])
def test_gradients_of_broadcast_inputs_have_the_shape_of_the_inputs(form):
    f = bind(sample_ops.affine())
    f = f if form == "bound" else f.custom_vjp
    x, s, b = jnp.ones((2, 1, 3)), jnp.arange(4.0), jnp.array(1.0)
    out, pull = jax.vjp(lambda *a: jnp.asarray(f(*a) if form == "bound" else f(*a)[0]), x, s, b)
    assert out.shape == (2, 4, 3)
    gx, gs, gb = pull(jnp.ones_like(out))
    close(gx, np.full((2, 1, 3), 6.0))
    close(gs, np.full(4, 6.0))
    close(gb, 24.0)


@pytest.mark.parametrize("transform", ["grad", "jacrev", "jit"])
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda xp, ct, out, x, s, b: (ct,), "returned 1 values; expected 3"),
        (lambda xp, ct, out, x, s, b: (ct, s, b, b), "returned 4 values; expected 3"),
        (lambda xp, ct, out, x, s, b: (ct[None] * xp.ones((5, 1)), s, b), r"shape \(5, 3\) for x"),
        (lambda xp, ct, out, x, s, b: (ct, ct, b), r"shape \(3,\) for s"),
    ],
)
def test_a_vjp_of_wrong_count_or_shape_raises(rule, text, transform):
    f = bind(sample_ops.affine(rule))
    g = jax.grad(lambda x, s, b: f(x, s, b).sum(), (0, 1, 2))
    g = {"grad": g, "jacrev": jax.jacrev(f, (0, 1, 2)), "jit": jax.jit(g)}[transform]
    with pytest.raises(RuleError, match=rf"affine \(n\),\(\),\(\)->\(n\): its vjp.*{text}"):
        g(jnp.ones(3), jnp.array(2.0), jnp.array(1.0))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda xp, t, out, x: (t[0], t[0]), "returned 2 values; expected 1"),
        (lambda xp, t, out, x: t[0][..., None] * xp.ones((2,)), r"tangent of shape \(2,\)"),
    ],
)
def test_a_jvp_of_wrong_count_or_shape_raises(rule, text):
    op = sample_ops.cube(rules="none")
    op.def_jvp(rule)
    with pytest.raises(RuleError, match=rf"cube \(\)->\(\): its jvp.*{text}"):
        jax.jvp(bind(op), (1.0,), (1.0,))


def test_none_from_a_vjp_is_zero():
    f = bind(sample_ops.affine(lambda xp, ct, out, x, s, b: (None, None, xp.sum(ct, axis=-1))))
    found = jax.grad(lambda *a: f(*a).sum(), (0, 1, 2))(jnp.ones(3), 2.0, 1.0)
    close(found[0], np.zeros(3))
    assert found[1] == 0 and found[2] == 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("form", ["bound", "custom_vjp"])
def test_gradients_have_the_dtype_of_the_input_whatever_the_rule_returns(dtype, form):
    if form == "custom_vjp" and dtype != "float32":
        pytest.skip("the bare function takes one computing precision")
    op = sample_ops.cube(rules="none")
    op.def_vjp(lambda xp, ct, out, x: (3 * x**2 * ct).astype("float64"))
    op.def_jvp(lambda xp, t, out, x: (3 * x**2 * t[0]).astype("float64"))
    f = bind(op) if form == "bound" else lambda x: bind(op).custom_vjp(x)[0]
    x = jnp.asarray(2.0, dtype)
    g = jax.grad(f)(x)
    assert g.dtype == dtype and g == 12
    if form == "bound":
        assert jax.jvp(f, (x,), (x,))[1].dtype == dtype


def test_integer_and_boolean_inputs_have_no_gradient():
    f = bind(sample_ops.pick())
    k, flag = jnp.array(1), jnp.array(True)
    close(jax.grad(f)(X, k, flag), [0, 1, 0])
    close(jax.grad(f)(X, k, jnp.array(False)), [0, 0, 0])
    close(jax.vmap(jax.grad(f), (None, 0, None))(X, jnp.arange(3), flag), np.eye(3))
    zeros = jax.grad(f, (1, 2), allow_int=True)(X, k, flag)
    assert [z.dtype for z in zeros] == [jax.dtypes.float0] * 2
    close(jax.jit(jax.hessian(f))(X, k, flag), np.zeros((3, 3)))
    no_dot = np.zeros((), jax.dtypes.float0)
    close(jax.jvp(f, (X, k, flag), (X, no_dot, no_dot))[1], -2)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_the_cotangent_of_an_unused_output_is_zeros(transform):
    seen = []
    f = bind(sample_ops.moments(seen))
    close(transform(jax.grad(lambda x: f(x)[1]))(X), 2 * X)
    first, second = seen[-1]
    assert first is not None and first.shape == second.shape == ()
    close(transform(jax.grad(lambda x: f(x)[0]))(X), np.ones(3))
    close(transform(jax.vmap(jax.grad(lambda x: f(x)[1])))(jnp.stack([X, X])), [2 * X, 2 * X])
    close(transform(jax.jacfwd(f))(X)[1], 2 * X)


def test_the_cotangent_of_a_hidden_output_is_none_until_it_is_differentiated():
    seen = []
    f = bind(sample_ops.softplus_hidden(seen))
    s = 1 / (1 + np.exp(-0.3))
    close(jax.grad(f)(0.3), s)
    assert seen[0][1] is None
    for d2 in (jax.grad(jax.grad(f)), jax.jacfwd(jax.grad(f)), jax.jacfwd(jax.jacfwd(f))):
        close(d2(0.3), s * (1 - s))
        close(jax.jit(jax.vmap(d2))(jnp.full(2, 0.3)), [s * (1 - s)] * 2)


def test_static_parameters_work_under_jit_and_do_not_mix():
    f = bind(sample_ops.power())
    g = jax.jit(jax.grad(f))
    cubed = jax.jit(lambda x: jax.grad(lambda x: f(x, p=3.0))(x))
    assert (g(3.0), cubed(3.0), g(3.0)) == (6, 27, 6)
    either = jax.jit(lambda x, p: f(x, p=p), static_argnums=1)
    assert [either(3.0, p) for p in (1.0, 2.0, 3.0, 2.0)] == [3, 9, 27, 9]


def test_a_traced_static_parameter_is_refused_with_an_explanation():
    f = bind(sample_ops.power())
    with pytest.raises(ArgumentError, match=r"power .*'p' is a static parameter"):
        jax.jit(lambda x, p: f(x, p=p))(3.0, 2.0)


def test_keyword_arrays_are_differentiated_and_vmapped():
    f = bind(sample_ops.dot())
    close(jax.grad(lambda y: f(x=X, y=y))(X), X)
    close(jax.vmap(lambda x: f(y=X, x=x))(jnp.eye(3)), X)


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("float64", "float64", "float64"),
        ("float32", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("float16", "float16", "float16"),
        ("bfloat16", "bfloat16", "bfloat16"),
        ("bfloat16", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("float32", 2, "float32"),
        ("bfloat16", 2.0, "bfloat16"),
        ("float32", np.float64(2), "float64"),
        ("complex64", "float32", "complex64"),
        ("complex64", "float64", "complex128"),
        ("float32", 2j, "complex64"),
    ],
)
def test_results_and_gradients_have_the_dtype_that_jax_would_give(first, second, result):
    f = bind(sample_ops.multiply())
    a = jnp.asarray(3, first)
    b = jnp.asarray(2, second) if isinstance(second, str) else second
    out = f(a, b)
    assert out.dtype == result == (a * b).dtype
    assert complex(out) == complex(a * b)
    if not jnp.iscomplexobj(out):
        g = jax.grad(f)(a, b)
        assert g.dtype == first and g == 2


def test_low_precision_is_computed_in_float32():
    seen = []

    @define("()->()")
    def watch(xp, x):
        seen.append(x.dtype)
        return x * 1

    watch.def_vjp(lambda xp, ct, out, x: (seen.append(ct.dtype), ct)[1])
    assert jax.grad(bind(watch))(jnp.ones((), jnp.bfloat16)).dtype == jnp.bfloat16
    assert set(map(str, seen)) == {"float32"}


def test_without_x64_everything_stays_float32(single_precision):
    energy, recorder = sample_ops.host_energy()
    for f in (bind(sample_ops.affine()), lambda x, s, b: bind(energy)(x, s)):
        x = jnp.ones(3)
        out, pull = jax.vjp(f, x, 2.0, 1.0)
        assert out.dtype == jnp.float32
        assert {g.dtype for g in pull(jnp.ones_like(out))} == {np.dtype("float32")}
        assert jax.jit(f)(x, 2.0, 1.0).dtype == jnp.float32
    assert recorder.calls[0][0].dtype == np.float32


@pytest.mark.parametrize("rules", ["vjp", "jvp", "both"])
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_a_complex_rule_is_right_in_the_plain_transpose_convention(rules, transform):
    f = bind(sample_ops.multiply(rules))
    loss = lambda f: lambda a, b: f(a, b).real + 2 * f(a, b).imag  # noqa: E731
    a, b = jnp.array(1 + 2j), jnp.array(3 - 1j)
    found = transform(jax.grad(loss(f), (0, 1)))(a, b)
    for g, r in zip(found, jax.grad(loss(jnp.multiply), (0, 1))(a, b), strict=True):
        close(g, r)
    dots = (jnp.array(1j), jnp.array(2 - 1j))
    close(jax.jvp(f, (a, b), dots)[1], a * dots[1] + b * dots[0])
    close(jax.jacfwd(f, holomorphic=True)(a, b), b)
    close(jax.grad(jax.grad(f, 0, holomorphic=True), 1, holomorphic=True)(a, b), 1)


@pytest.mark.parametrize("rules", ["vjp", "jvp", "both"])
def test_a_real_input_of_a_complex_op_has_a_real_gradient(rules):
    f = bind(sample_ops.multiply(rules))
    g = jax.grad(lambda a: f(a, 3 - 1j).real + 2 * f(a, 3 - 1j).imag)(2.0)
    assert g.dtype == jnp.float64
    close(g, 1)
    close(jax.jvp(lambda a: f(a, 3 - 1j), (2.0,), (1.0,))[1], 3 - 1j)
    single = jax.grad(lambda a: f(a, jnp.complex64(3 - 1j)).real)(jnp.float32(2))
    assert single.dtype == jnp.float32


@pytest.mark.parametrize("make", [sample_ops.identity, sample_ops.flip_axes])
def test_an_op_that_returns_its_input_or_a_view_keeps_its_rule(make):
    f = bind(make())
    x = jnp.arange(6.0).reshape(2, 3)
    loss = lambda x: f(x).sum()  # noqa: E731
    for g in (jax.grad(loss), jax.jit(jax.grad(loss))):
        close(g(x), np.full((2, 3), 100.0))
    close(jax.vmap(jax.grad(loss))(jnp.stack([x, x])), np.full((2, 2, 3), 100.0))


def test_one_array_given_twice_gets_both_gradients():
    f = bind(sample_ops.dot())
    for g in (jax.grad(lambda x: f(x, x)), jax.jit(jax.grad(lambda x: f(x, x)))):
        close(g(X), 2 * X)
    close(jax.hessian(lambda x: f(x, x))(X), 2 * np.eye(3))


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_a_zero_batch_is_an_ordinary_batch(shape):
    energy, _ = sample_ops.host_energy()
    for f in (bind(sample_ops.dot()), lambda x, y: bind(energy)(x, y[..., 0])):
        x = jnp.ones((*shape, 3))
        assert f(x, x).shape == shape
        assert jax.jit(jax.grad(lambda x, f=f: f(x, x).sum()))(x).shape == (*shape, 3)
        assert jax.vmap(jax.grad(lambda x, f=f: f(x, x).sum()))(x).shape == (*shape, 3)


def test_an_op_can_be_called_from_many_threads():
    f = jax.grad(bind(sample_ops.cube(100)))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: float(f(float(i))), range(200)))
    close(found, [300.0 * i**2 for i in range(200)])


def test_a_pickled_op_is_bound_to_the_same_function():
    op = pickle.loads(pickle.dumps(sample_ops.module_level))
    assert bind(op) is bind(sample_ops.module_level)
