"""Public bug reports about what a rule or a host function does inside, in JAX.

A test's name begins with the number of its case; the reports are named in the docstrings.
"""

import functools
import subprocess
import sys
import textwrap

import numpy as np
import pytest

pytest.importorskip("jax")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from twingrad.interop import define  # noqa: E402
from twingrad.interop.jax import bind  # noqa: E402

close = functools.partial(np.testing.assert_allclose, rtol=1e-12)
X = np.array([0.0, 1.0, 2.0])


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_r05_a_rule_may_differentiate_inside(transform):
    """pytorch/functorch#922, in JAX"""

    @define("()->()")
    def sine(xp, x):
        return xp.sin(x)

    sine.def_vjp(lambda xp, ct, out, x: jax.vjp(jnp.sin, x)[1](ct)[0])
    f = bind(sine)
    close(transform(jax.vmap(jax.grad(f)))(X), np.cos(X))
    close(transform(jax.vmap(jax.jacfwd(jax.grad(f))))(X), -np.sin(X))
    close(transform(lambda x: jax.jvp(f, (x,), (x,))[1])(X), X * np.cos(X))


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_r06_draws_that_are_an_argument_come_from_an_explicit_key(transform):
    """pytorch/pytorch#90789, in JAX: one key one draw, a key for each sample different draws"""

    @define("(),()->()", host=True)
    def jitter(xp, x, draw):
        return x + draw

    jitter.def_vjp(lambda xp, ct, out, x, draw: (ct, ct))
    noisy = lambda x, key: bind(jitter)(x, jax.random.normal(key))  # noqa: E731
    key, keys = jax.random.key(0), jax.random.split(jax.random.key(0), 3)
    same = transform(jax.vmap(noisy, (0, None)))(0 * X, key)
    assert len(set(same.tolist())) == 1
    assert len(set(transform(jax.vmap(noisy))(0 * X, keys).tolist())) == 3
    close(transform(jax.vmap(jax.grad(noisy)))(X, keys), np.ones(3))


def test_r38_a_large_host_function_in_numpy_finishes():
    """jax-ml/jax#24255: jax inside a callback can hang; NumPy arrays arrive, so nothing tempts"""
    code = textwrap.dedent("""
        import jax, numpy as np
        from twingrad.interop import define
        from twingrad.interop.jax import bind

        @define("(n,n)->(n,n)", host=True)
        def twice(xp, a):
            assert type(a) is np.ndarray
            return a * 2

        twice.def_vjp(lambda xp, ct, out, a: ct * 2)
        f = bind(twice)
        for wrap in (lambda f: f, jax.jit):
            x = jax.numpy.ones((700, 700)) * 0.001
            for _ in range(10):
                x = wrap(f)(x) * 0.5
            g = wrap(jax.grad(lambda x: f(x).sum()))(x)
            print(float(x.sum()), float(g.sum()))
    """)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    values = [list(map(float, line.split())) for line in done.stdout.splitlines()]
    np.testing.assert_allclose(values, [[490, 980_000]] * 2, rtol=1e-5)
