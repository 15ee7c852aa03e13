"""JAX as the suite sees it: the ways to differentiate, batch and compile a function.

`side_torch` offers the same names, so that each property is written once, in `properties`.
"""

import contextlib
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from tests.fixed import hold
from tests.op_row import COMPLEX
from tests.pairs import Split, split, whole
from tests.structured import called
from twingrad.interop.jax import bind

NAME = "jax"
TRACES = 2  # calls of an op's function in one jit: JAX asks for its shapes, then for its program
CONJUGATES = False  # a gradient is the plain transpose of a tangent
LIB = SimpleNamespace(
    log=jnp.log, exp=jnp.exp, erf=jax.scipy.special.erf, sum=jnp.sum, ones_like=jnp.ones_like
)
LIB.real, LIB.imag, LIB.conj, LIB.complex = jnp.real, jnp.imag, jnp.conj, jax.lax.complex
LIB.is_complex = jnp.iscomplexobj

grad, jacrev, jacfwd = jax.grad, jax.jacrev, jax.jacfwd
vjp, jvp, linearize = jax.vjp, jax.jvp, jax.linearize


def function(op):
    """The bound op, of those of its arguments that can move."""
    return hold(op, called(op, bind))


def array(x):
    return jnp.asarray(x)


def numpy(x):
    return np.asarray(x)


def reference(row):
    return functools.partial(row.textbook, LIB)


LIB.stack, LIB.solve = jnp.stack, jnp.linalg.solve


def cast(x, dtype):
    return x.astype(COMPLEX[dtype] if jnp.iscomplexobj(x) else dtype)


def dtype_of(x):
    return str(x.dtype)


def vmap(f, in_dims=0, out_dims=0):
    return jax.vmap(f, in_axes=in_dims, out_axes=out_dims)


def no_loop_over_samples():
    """JAX has no such loop."""
    return contextlib.nullcontext()


def once(f):
    """A function that is called once: compiled whole and without optimisation.

    Eager JAX compiles each operation of each shape, and full optimisation takes four times as
    long; `compiler` has it.
    """
    return jax.jit(f, compiler_options=_quick_options())


@functools.cache
def _quick_options():
    quick = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=quick)(0.0)
    except Exception:  # another version of XLA may not know these names
        return None
    return quick


def inner(ct, y):
    """The scalar whose gradient in y is the cotangent ct."""
    return jnp.sum(jnp.real(ct * y))


def weighted(f, ct):
    """The scalar sum(ct * f(...)), whose gradient is the vjp with the cotangent ct."""
    return lambda *x: inner(ct, f(*x))


def contract(jacobian, tangents):
    """J t, from the Jacobian of each argument."""
    parts = [jnp.tensordot(j, t, axes=t.ndim) for j, t in zip(jacobian, tangents, strict=True)]
    return sum(parts)


def _everything(x):
    return tuple(range(len(x)))


def _grad(f, ct, x):
    return grad(weighted(f, ct), argnums=_everything(x))(*x)


def _vjp(f, ct, x):
    return vjp(f, *x)[1](ct)


def _jacrev(f, ct, x):
    pairs, ct = Split(LIB, f, x), split(LIB, jnp.conj(ct))
    found = jacrev(pairs, argnums=_everything(x))(*pairs.x)
    gradients = [jnp.tensordot(ct, j, axes=ct.ndim) for j in found]
    found = zip(gradients, pairs.paired, strict=True)
    return [jnp.conj(whole(LIB, g, paired)) for g, paired in found]


def _jvp(f, t, x):
    return jvp(f, tuple(x), tuple(t))[1]


def _jacfwd(f, t, x):
    pairs, t = Split(LIB, f, x), [split(LIB, v) for v in t]
    found = contract(jacfwd(pairs, argnums=_everything(x))(*pairs.x), t)
    return whole(LIB, found, LIB.is_complex(jax.eval_shape(f, *x)))


def _linearize(f, t, x):
    return linearize(f, *x)[1](*t)


def transposed(f, ct, x):
    """The linear function of the tangents, transposed by JAX itself."""
    return jax.linear_transpose(linearize(f, *x)[1], *x)(ct)


# name -> (f, cotangent, inputs) -> one gradient for each input
REVERSE = {"grad": _grad, "vjp": _vjp, "jacrev": _jacrev}
# name -> (f, tangents, inputs) -> the tangent of the output
FORWARD = {"jvp": _jvp, "jacfwd": _jacfwd, "linearize": _linearize}
REFERENCE_REVERSE, REFERENCE_FORWARD = _grad, _jvp


def reverse_modes(op):
    """Each way to a vjp, and the function to use it on; the bare custom_vjp is one more."""
    modes = {name: (mode, function(op)) for name, mode in REVERSE.items()}
    bare = getattr(bind(op), "custom_vjp", None)
    if bare is not None:
        modes["custom_vjp"] = (_grad, hold(op, lambda *x: bare(*x)[0]))
    return modes


def compiler(_backend=None):
    """jax.jit."""
    return jax.jit


# What `tests.chains` needs besides.

LIB.sin = jnp.sin
jit, checkpoint, total, plain = jax.jit, jax.checkpoint, jnp.sum, np.asarray
vmap_whole = vmap


def lay_out(x, layout):
    """JAX arrays have one layout; `expanded` repeats the first row, as in torch."""
    return jnp.broadcast_to(x[:1], x.shape) if layout == "expanded" and x.ndim and x.size else x


def wave(x, number):
    """A direction (or cotangent) like x, the same in every call, no two entries equal."""
    steps = jnp.arange(x.size, dtype=x.dtype).reshape(x.shape)
    return jnp.cos(0.7 * steps + number) + 0.1


def nudge(x):
    """A small number that depends on every entry of x."""
    return 0.1 * jnp.sin(total(x))
