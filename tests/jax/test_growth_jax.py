"""JAX ops in loops: an eager host op compiles nothing, and what nobody holds is freed."""

import contextlib
import weakref

import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

from tests import side_jax
from tests.growth import SORTS, collect, grow
from tests.op_table import ROWS
from twingrad.interop.jax import bind

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


def _call(op, *x, **static):
    return bind(op)(*x, **static)


def _of(wrap):
    """A mode of calling an op: `wrap(f)` on its arguments as arrays."""

    def run(op, *x, **static):
        def f(*x):
            return jnp.sum(bind(op)(*x, **static))

        return jax.block_until_ready(wrap(f)(*map(jnp.asarray, x)))

    return run


def _twice(f):
    return lambda *x: jax.vmap(f)(*[jnp.stack([v, v]) for v in x])


MODES = {
    "eager": _call,
    "gradient": _of(jax.grad),
    "vmap": _of(lambda f: _twice(jax.grad(f))),
    "jit": _of(jax.jit),
    "jit of gradient": _of(lambda f: jax.jit(jax.grad(f))),
    "gradient of jit": _of(lambda f: jax.grad(jax.jit(f))),
    "checkpoint": _of(lambda f: jax.grad(jax.checkpoint(f))),
    "tangent": _of(lambda f: lambda *x: jax.jvp(f, x, x)[1]),
    "second derivative": _of(lambda f: jax.grad(jax.grad(f))),
    "custom_vjp": lambda op, *x: jax.grad(lambda *x: bind(op).custom_vjp(*x)[0])(
        *map(jnp.asarray, x)
    ),
}
KEPT_BY_NOBODY = [
    (sort, mode)
    for sort in ("new op", "new host op")
    for mode in MODES
    if sort == "new op" or mode not in ("tangent", "second derivative")  # it has neither
]


@pytest.mark.parametrize(("sort", "mode"), KEPT_BY_NOBODY)
def test_an_op_that_nobody_holds_is_freed(sort, mode):
    """JAX's caches keep the parameters of 2,048 equations; an op is not among them."""
    case, seen = SORTS[sort](), []
    for i in range(3):
        op, inputs, static = case(i)
        MODES[mode](op, *inputs, **static)
        seen.append(weakref.ref(op))
        del op
    collect()
    assert [ref() for ref in seen] == [None] * 3


def test_a_pullback_and_a_compiled_function_hold_their_op():
    case = SORTS["new host op"]()
    pull = jax.vjp(bind(case(3)[0]), 2.0)[1]
    jitted = jax.jit(bind(case(5)[0]))
    inner = jax.jit(lambda x, case=case: bind(case(7)[0])(x))
    assert jitted(2.0) == 10 and inner(2.0) == 14
    collect()
    assert pull(1.0)[0] == 3
    assert jitted(jnp.ones(2)).tolist() == [5, 5] and inner(3.0) == 21


@pytest.mark.parametrize("row", HOST_ROWS, ids=lambda row: row.name)
def test_a_host_op_goes_through_no_custom_derivative(row, monkeypatch):
    """JAX's custom_jvp costs several times what a small host function does, eagerly."""

    def refused(self, *args, **kwargs):
        raise AssertionError(f"{row.name} called a custom_jvp")

    x = list(map(jnp.asarray, row.inputs((), seed=1)))
    monkeypatch.setattr(jax.custom_jvp, "__call__", refused)
    for mode in ("call", "gradient", "tangent"):
        EAGER[mode](side_jax.function(row.op))(*x)


@pytest.mark.parametrize("sort", SORTS)
def test_an_eager_call_keeps_nothing(sort):
    """For the latest 64 values of static parameters an op keeps what it made."""
    found = grow(_call, sort, count=200, warm=300)
    assert found.traced < 300, found


@pytest.mark.parametrize("sort", ["static", "not a number", "new op", "new host op"])
def test_a_gradient_and_a_jitted_call_keep_nothing(sort):
    for mode, count in (("gradient", 40), ("jit", 15)):
        found = grow(MODES[mode], sort, count=count, warm=20)
        kept = 12_000 if sort == "static" else 4000  # the first 64 values, and XLA's own
        assert found.traced < kept, (mode, found)


@pytest.mark.slow
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize(("mode", "count"), [("eager", 10_000), ("gradient", 3000), ("jit", 1000)])
def test_a_long_loop_keeps_nothing_and_takes_no_longer(sort, mode, count):
    """Memory of the process, too; a jitted function made anew at each call compiles anew."""
    found = grow(MODES[mode], sort, count=count, warm=400, trace=False)
    assert found.resident * count < 15e6 and found.slower < 2, found
