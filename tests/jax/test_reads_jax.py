"""JAX holds for the derivatives of an op what its rules read, and of the rest only the shapes."""

import numpy as np
import pytest

from twingrad.interop import Host, define, from_numpy

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from twingrad.interop.jax import bind  # noqa: E402

X, S = jnp.arange(12.0).reshape(2, 2, 3), jnp.array([[2.0, 5.0], [3.0, 7.0]])
RIGHT = np.broadcast_to(S[..., None], X.shape)
HOST = pytest.mark.parametrize("host", [False, True, Host(vectorize=True)], ids=str)


def scale(host):
    """x s; its rules read only s."""

    @define("(n),()->(n)", host=host)
    def scale(xp, x, s):
        return x * s[..., None]

    scale.def_vjp(lambda xp, ct, out, x, s: (ct * s[..., None], None))
    scale.def_jvp(lambda xp, t, out, x, s: t[0] * s[..., None])
    return scale


def bytes_held(f, x):
    """What the pull-back of f at x holds."""
    return sum(y.nbytes for y in jax.tree.leaves(jax.vjp(f, x)[1]))


@HOST
def test_only_what_the_rules_read_is_held(host):
    f = bind(scale(host))
    for g in (lambda x: f(x, S), lambda x: f.custom_vjp(x, S)[0]):
        assert bytes_held(g, X) == S.nbytes and bytes_held(jax.jit(g), X) == S.nbytes
    plain = bind(from_numpy(lambda x: 2 * x, signature="(n)->(n)", vjp=lambda ct, x: 2 * ct))
    assert bytes_held(plain, X) == 0


@HOST
def test_what_is_not_read_still_gives_its_shape_in_every_mode(host):
    f = bind(scale(host))
    one = lambda x, s: f(x, s).sum()  # noqa: E731
    push = lambda x, s: jax.jvp(lambda x: f(x, s), (x,), (jnp.ones_like(x),))[1]  # noqa: E731
    grad = jax.grad(one)
    for g in (
        grad(X, S),
        jax.jit(grad)(X, S),
        jax.vmap(grad)(X, S),
        jax.jit(jax.vmap(jax.vmap(grad), (1, 1), 1))(X, S),
        push(X, S),
        jax.jit(jax.vmap(push))(X, S),
        jax.linearize(lambda x: f(x, S), X)[1](jnp.ones_like(X)),
        jax.grad(lambda x: f.custom_vjp(x, S)[0].sum())(X),
        jax.checkpoint(grad)(X, S),
    ):
        np.testing.assert_allclose(g, RIGHT)
    shared = jax.vmap(grad, (0, None))(X, S[0])  # the batch is that of an array that is not read
    np.testing.assert_allclose(shared, np.broadcast_to(S[0][:, None], X.shape))


def test_second_derivatives():
    f = bind(scale(False))
    for outer in (jax.jacfwd, jax.jacrev):
        assert not outer(jax.grad(lambda x: f(x, S[0]).sum()))(X[0]).any()
        slope = outer(lambda s: jax.grad(lambda x: f(x, s).sum())(X[0]))(S[0])
        np.testing.assert_allclose(slope, np.eye(2)[:, None].repeat(3, 1))


def test_a_rule_that_is_set_again_gets_what_it_reads():
    op = scale(False)
    f = bind(op)
    op.def_vjp(lambda xp, ct, out, x, s: (ct * (x + out), None))
    op.def_jvp(lambda xp, t, out, x, s: t[0] * (x + out))
    for g in (f, bind(op)):
        np.testing.assert_allclose(jax.grad(lambda x, g=g: g(x, S).sum())(X), X + X * S[..., None])
