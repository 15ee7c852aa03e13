"""Wrong JAX functions with custom rules, as people post them, for the gradient check."""

import functools

import jax
import jax.numpy as jnp

from tests.right_ops import uniform
from tests.wrong_gradients import Wrong

WRONG_JAX = []


def add(name, patterns, wrong, forward, bwd, *shapes):
    """Register a custom_vjp that saves its inputs: bwd(inputs, ct) -> gradients."""

    def make():
        f = jax.custom_vjp(forward)
        f.defvjp(lambda *x: (forward(*x), x), bwd)
        return f

    WRONG_JAX.append(Wrong(name, make, patterns, wrong, uniform(*shapes)))


add(
    "sine: twice",
    ("constant factor",),
    ("x0",),
    lambda x: jnp.sin(x),
    lambda x, ct: (2 * ct * jnp.cos(x[0]),),
    (3,),
)
add(
    "exp: stop_gradient in the rule (r12)",
    ("second order only",),
    ("x0",),
    lambda x: jnp.exp(x),
    lambda x, ct: (ct * jax.lax.stop_gradient(jnp.exp(x[0])),),
    (3,),
)
add(
    "softmax: ct y",
    ("normaliser held constant",),
    ("x0",),
    lambda x: jax.nn.softmax(x),
    lambda x, ct: (ct * jax.nn.softmax(x[0]),),
    (5,),
)
add(
    "product: gradients exchanged",
    ("right for one, wrong for another: swapped",),
    ("x0", "x1"),
    lambda a, b: a * b,
    lambda x, ct: (ct * x[0], ct * x[1]),
    (3,),
    (3,),
)
add(
    "sine: float32 inside",
    ("float32 inside",),
    ("x0",),
    lambda x: jnp.sin(x),
    lambda x, ct: (ct * jnp.cos(x[0].astype(jnp.float32)),),
    (4,),
)


def _jvp_minus():
    @jax.custom_jvp
    def f(x):
        return jnp.tanh(x)

    f.defjvp(lambda x, t: (f(*x), -t[0] * (1 - jnp.tanh(x[0]) ** 2)))
    return f


WRONG_JAX.append(Wrong("tanh: jvp minus", _jvp_minus, ("sign",), ("x0",), uniform((3,))))


def _scale():
    @functools.partial(jax.custom_vjp, nondiff_argnums=())
    def f(x, s):
        return x * s

    f.defvjp(lambda x, s: (x * s, (x, s)), lambda saved, ct: (ct, (ct * saved[0]).sum()))
    return f


WRONG_JAX.append(
    Wrong(
        "scale: x's gradient without s", _scale, ("factor of an input",), ("x0",), uniform((3,), ())
    )
)
