"""Ops inside jit, checkpoint, scan and cond, mapped over some arguments and differentiated.

JAX stages these, and maps the staged `custom_jvp` later: which outputs are mapped is found from
its function, and from its rule once more.  An output that does not depend on the mapped argument
has a tangent that is mapped all the same; where the two differ JAX loses an axis, or sums over it.
"""

import itertools

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from tests import side_jax
from tests.chains_ops import HEAVY, LIGHT
from twingrad.interop import define
from twingrad.interop.jax import bind

RULES = ("vjp", "jvp", "both")


def scanned(f):
    return lambda *x: jax.lax.scan(lambda c, _: (c, f(*x)), 0.0, None, length=1)[1][0]


def chosen(f):
    return lambda *x: jax.lax.cond(x[0].sum() < 1e9, f, lambda *x: 0.0 * f(*x), *x)


STAGED = {"jit": jax.jit, "checkpoint": jax.checkpoint, "scan": scanned, "cond": chosen}


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def apart(rules):
    """Two outputs, of which one does not depend on the first argument, and one on nothing."""

    @define("(),()->(),(),()", hidden=1)
    def apart(xp, x, s):
        return x * x * s, s * s * s, xp.ones_like(s)

    if rules != "jvp":
        apart.def_vjp(
            lambda xp, cts, out, x, s: (
                2.0 * x * s * cts[0],
                x * x * cts[0] + 3.0 * s * s * cts[1],
            )
        )
    if rules != "vjp":
        apart.def_jvp(
            lambda xp, dots, out, x, s: (
                2.0 * x * s * dots[0] + x * x * dots[1],
                3.0 * s * s * dots[1],
                None,
            )
        )
    return apart


def both(op):
    return lambda x, s: (lambda y, z: y * jnp.cos(z))(*op(x, s))


FIRST = {
    "jvp": lambda F, x: jax.jvp(F, (x,), (jnp.cos(x),))[1],
    "grad": lambda F, x: jax.grad(lambda x: F(x).sum())(x),
    "jacrev": lambda F, x: jax.jacrev(F)(x),
    "jacfwd": lambda F, x: jax.jacfwd(F)(x),
}
HESSIANS = {
    "jacrev of vmap of grad": lambda f, x: jax.jacrev(jax.vmap(jax.grad(f)))(x),
    "jacfwd of vmap of grad": lambda f, x: jax.jacfwd(jax.vmap(jax.grad(f)))(x),
    "hessian of the sum": lambda f, x: jax.hessian(lambda x: jax.vmap(f)(x).sum())(x),
    "grad of grad of vmap": lambda f, x: jax.grad(
        lambda x: jax.grad(lambda x: jnp.sin(jax.vmap(f)(x)).sum())(x).sum()
    )(x),
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("staged", STAGED)
@pytest.mark.parametrize("rules", RULES)
def test_outputs_that_do_not_depend_on_what_is_mapped(rules, staged, number):
    x, s = jnp.array([0.7, -1.1, 1.3]), jnp.array(0.9)
    plain = both(lambda x, s: (x * x * s, s * s * s))
    f = STAGED[staged](both(bind(apart(rules))))

    def of_one(f):
        return lambda v: f(*((v, s) if number == 0 else (s, v)))

    for name, mode in FIRST.items():
        got, want = (mode(jax.vmap(of_one(g)), x) for g in (f, plain))
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=name)
    for name, mode in HESSIANS.items():
        got, want = (mode(of_one(g), x) for g in (f, plain))
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("staged", ["jit", "checkpoint"])
@pytest.mark.parametrize("row", [*LIGHT, *HEAVY], ids=lambda row: row.name)
def test_second_derivatives_of_each_op_mapped_over_one_argument(row, staged):
    inputs = [jnp.asarray(x) for x in row.inputs()]
    bound = side_jax.function(row.op)

    def total(*x):
        found = bound(*x)
        found = found if isinstance(found, tuple) else (found,)
        return sum((jnp.cos(jnp.arange(y.size).reshape(y.shape)) * y).sum() for y in found)

    def derivatives(f):
        for i, x in enumerate(inputs):

            def of_one(v, i=i):
                return f(*inputs[:i], v, *inputs[i + 1 :])

            xs = jnp.stack([x, x + 0.01])
            gradient = jax.vmap(jax.grad(of_one))
            yield jax.jvp(gradient, (xs,), (jnp.cos(xs),))[1]
            yield jax.grad(lambda xs, g=gradient: (jnp.cos(xs) * g(xs)).sum())(xs)

    got, want = (
        side_jax.once(lambda f=f: list(derivatives(f)))() for f in (STAGED[staged](total), total)
    )
    for y, z in itertools.zip_longest(got, want):
        np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-9)
