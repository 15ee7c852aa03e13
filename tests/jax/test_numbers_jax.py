"""Cotangents and tangents that are numbers or NumPy arrays, and host results without x64."""

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from tests import sample_ops
from twingrad.interop import define, from_numpy
from twingrad.interop.jax import bind


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def indexing(rules, host=False):
    """The sum of a vector times a number, with rules that index everything they are given."""

    def total(xp, x, s):
        return xp.sum(x, axis=-1) * s

    op = define("(n),()->()", host=host)(total)
    if "vjp" in rules:
        op.def_vjp(lambda xp, ct, out, x, s: ((ct * s)[..., None] + 0 * x, ct[...] * x.sum(-1)))
    if "jvp" in rules:
        op.def_jvp(lambda xp, t, out, x, s: t[0].sum(-1) * s[...] + x.sum(-1) * t[1][...])
    return op


def counting():
    """sum x and, as an integer, how many entries are positive."""

    @define("(n)->(),()")
    def count(xp, x):
        return xp.sum(x, axis=-1), xp.sum(xp.astype(x > 0, xp.int32), axis=-1)

    count.def_vjp(lambda xp, ct, out, x: ct[0][..., None] + xp.zeros_like(x))
    return count


X = np.array([1.0, 2.0, 3.0])
ONES = {
    "float": 1.0,
    "NumPy scalar": np.float64(1.0),
    "NumPy array": np.array(1.0),
    "array": jnp.float32(1.0),
}
OPS = {
    "vjp": lambda: indexing("vjp"),
    "jvp": lambda: indexing("jvp"),
    "both": lambda: indexing("vjp jvp"),
    "host": lambda: indexing("vjp jvp", host=True),
}
TRANSFORMS = pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])


@TRANSFORMS
@pytest.mark.parametrize("one", ONES)
@pytest.mark.parametrize("rules", OPS)
def test_a_cotangent_may_be_a_number(rules, one, transform):
    f, one = bind(OPS[rules]()), ONES[one]
    one = one if isinstance(one, float) else one.astype("float64")
    g = transform(lambda x, s: jax.vjp(f, x, s)[1](one))
    for found, want in zip(g(X, 2.0), (np.full(3, 2.0), 6.0), strict=True):
        np.testing.assert_array_equal(found, want)
    linear = transform(lambda x: jax.linear_transpose(jax.linearize(f, x, 2.0)[1], x, 2.0)(one))
    np.testing.assert_array_equal(linear(X)[0], np.full(3, 2.0))
    if rules != "host":
        again = transform(jax.grad(lambda s: jax.vjp(f, X, s)[1](one)[0].sum()))
        assert again(2.0) == 3
    bare = transform(lambda x, s: jax.vjp(bind(OPS[rules]()).custom_vjp, x, s)[1]((one,)))
    np.testing.assert_array_equal(bare(jnp.asarray(X), jnp.asarray(2.0))[0], np.full(3, 2.0))


@TRANSFORMS
@pytest.mark.parametrize("one", ONES)
@pytest.mark.parametrize("rules", OPS)
def test_a_tangent_may_be_a_number(rules, one, transform):
    f, one = bind(OPS[rules]()), ONES[one]
    one = one if isinstance(one, float) else one.astype("float64")
    push = transform(lambda x, s: jax.jvp(lambda s: f(x, s), (s,), (one,))[1])
    assert push(X, 2.0) == 6
    both = transform(lambda x, s: jax.jvp(f, (x, s), (np.ones(3), one))[1])
    assert both(X, 2.0) == 12
    assert transform(lambda x, s: jax.linearize(lambda s: f(x, s), s)[1](one))(X, 2.0) == 6


@TRANSFORMS
def test_a_cotangent_next_to_that_of_an_integer_output(transform):
    f, none = bind(counting()), np.zeros((), jax.dtypes.float0)
    assert f(X)[1] == 3
    np.testing.assert_array_equal(transform(lambda x: jax.vjp(f, x)[1]((1.0, none)))(X)[0], 1)
    bare = f.custom_vjp
    x = jnp.asarray(X)
    np.testing.assert_array_equal(transform(lambda x: jax.vjp(bare, x)[1]((1.0, none)))(x)[0], 1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rules", ["vjp", "vjp jvp"])
def test_a_number_has_the_dtype_of_its_output(rules, dtype):
    seen = []
    op = indexing(rules)
    rule = op.written["vjp"]
    op.def_vjp(lambda xp, ct, *rest: (seen.append(ct.dtype), rule(xp, ct, *rest))[1])
    jax.config.update("jax_enable_x64", False)
    x = jnp.asarray(X, dtype)
    found = jax.vjp(lambda x: bind(op)(x, 2.0), x)[1](
        1.0 if dtype == "float32" else jnp.bfloat16(1)
    )
    assert found[0].dtype == dtype and set(map(str, seen)) == {"float32"}


@pytest.mark.parametrize(
    "transform", [lambda f: f, jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f))]
)
@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int8", "bool", "float32"])
def test_a_host_op_of_integers_has_results_in_the_widest_dtype_of_jax(dtype, x64, transform):
    jax.config.update("jax_enable_x64", x64)
    f = transform(bind(from_numpy(lambda k: k / 2, signature="()->()", name="half")))
    found = f(jnp.array([1, 0], dtype))
    assert found.dtype == ("float32" if dtype == "float32" or not x64 else "float64")
    np.testing.assert_array_equal(found, [0.5, 0.0])


@pytest.mark.parametrize("x64", [True, False])
def test_a_host_op_of_integers_and_its_gradient_go_through_a_mixed_program(x64):
    jax.config.update("jax_enable_x64", x64)
    half = bind(from_numpy(lambda k: k / 2, signature="()->()", name="half"))
    g = jax.grad(lambda w, k: (w * half(k)).sum())
    for wrap in (g, jax.jit(g)):
        np.testing.assert_array_equal(wrap(jnp.ones(2), jnp.array([3, 4])), [1.5, 2.0])


def test_sample_ops_that_index_their_cotangent_take_numbers():
    f = bind(sample_ops.dot())
    np.testing.assert_array_equal(jax.vjp(f, X, X)[1](1.0)[0], X)
    f = bind(sample_ops.moments())
    np.testing.assert_array_equal(jax.vjp(f, X)[1]((1.0, 0.0))[0], np.ones(3))


@TRANSFORMS
@pytest.mark.parametrize("one", ONES)
def test_an_op_that_is_declared_linear_is_transposed_at_a_number(one, transform):
    @define("(n),()->()", linear=("s",))
    def scaled(xp, x, s):
        return xp.sum(x, axis=-1) * s

    scaled.def_vjp(lambda xp, ct, out, x, s: (ct[..., None] * s + 0 * x, ct[...] * x.sum(-1)))
    f, one = bind(scaled), ONES[one]
    one = one if isinstance(one, float) else one.astype("float64")
    for form in (lambda s: f(X, s), jax.jit(lambda s: f(X, s))):
        assert transform(lambda form=form: jax.linear_transpose(form, 2.0)(one)[0])() == 6
