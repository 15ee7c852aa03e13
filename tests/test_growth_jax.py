"""JAX ops in loops: an eager host op compiles nothing, and what nobody holds is freed."""

import contextlib

import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from tests import side_jax
from tests.op_table import ROWS

HOST_ROWS = [row for row in ROWS if row.op.host]
COMPILED = []


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module", autouse=True)
def listener():
    def listen(event, *_, **__):
        if "backend_compile" in event:
            COMPILED.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)


@contextlib.contextmanager
def nothing_compiled():
    COMPILED.clear()
    yield
    assert not COMPILED


EAGER = {
    "call": lambda f: f,
    "gradient": lambda f: jax.grad(lambda *x: jnp.sum(f(*x))),
    "vmap of gradient": lambda f: jax.vmap(jax.grad(lambda *x: jnp.sum(f(*x)))),
    "tangent": lambda f: lambda *x: jax.jvp(f, x, x)[1],
    "Hessian": lambda f: jax.hessian(lambda *x: jnp.sum(f(*x))),
}


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("row", HOST_ROWS, ids=lambda row: row.name)
def test_an_eager_host_op_compiles_nothing_more_after_its_first_calls(row, mode):
    f = EAGER[mode](side_jax.function(row.op))
    batch = (2,) if "vmap" in mode else ()
    x, y = (list(map(jnp.asarray, row.inputs(batch, seed=seed))) for seed in (1, 2))
    for _ in range(2):
        jax.block_until_ready(f(*x))
    with nothing_compiled():
        jax.block_until_ready(f(*y))
