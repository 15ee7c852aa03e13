"""A linear op inside shard_map: derivatives and transposition sum over the devices just once."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, PartitionSpec as P
from twingrad.interop import from_linear
from twingrad.interop.jax import bind
M = np.random.default_rng(0).normal(size=(3, 4))
f = bind(from_linear(lambda x: x @ M.T, lambda y: y @ M, signature="(4)->(3)", name="radon"))
mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
x, w = jnp.asarray(np.random.default_rng(1).normal(size=(2, 4))), jnp.arange(4.0)
S = jax.shard_map(
    lambda w, x: f(w * x), mesh=mesh, in_specs=(P(), P("i")), out_specs=P("i"))
loss, want = (lambda w: jnp.sum(S(w, x) ** 2)), (lambda w: jnp.sum(((w * x) @ M.T) ** 2))
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12)
close(jax.grad(loss)(w), jax.grad(want)(w))
close(jax.jit(jax.hessian(loss))(w), jax.hessian(want)(w))
alone = jax.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
close(jax.linear_transpose(alone, x)(jnp.ones((2, 3)))[0], np.ones((2, 3)) @ M)
"""


def test_a_linear_op_inside_shard_map():
    pytest.importorskip("jax")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_ENABLE_X64": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
