"""Every op inside JAX programs: checkpoint and loops, exports, other processes; and memory."""

import gc
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

pytest.importorskip("jax")

import jax  # noqa: E402
import jax.export  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from tests import side_jax  # noqa: E402
from tests.closeness import assert_close  # noqa: E402
from tests.copies import scaled  # noqa: E402
from tests.properties import Setting  # noqa: E402
from tests.references.expected import Expected  # noqa: E402
from tests.suite import each_row, line  # noqa: E402

FACTOR = 100.0


def gradients(f, ct, x):
    return jax.vjp(f, *x)[1](ct)


def shapes(*arrays):
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arrays)


def scanned(f):
    """The batch, one sample after the other, in a scan."""
    return lambda *x: jax.lax.scan(lambda c, sample: (c, f(*sample)), 0.0, x)[1]


def branched(f):
    return lambda *x: jax.lax.cond(jnp.sum(x[0]) < 1e9, f, lambda *x: 0 * f(*x), *x)


def pushed_through_while(f, t, x):
    """The tangent of the last sample, taken out of the batch by a while loop."""

    def loop(*x):
        def body(state):
            i, _ = state
            return i + 1, f(*[v[i] for v in x])

        return jax.lax.while_loop(lambda s: s[0] < len(x[0]), body, (0, f(*[v[0] for v in x])))[1]

    return jax.jvp(loop, x, t)[1]


@line("checkpointing and loops")
@each_row
def test_checkpoint_scan_cond_and_while_give_the_same(row):
    setting, f = Setting(side_jax, row, (2,)), side_jax.function(row.op)
    wrapped = [jax.checkpoint(f), scanned(f), branched(f)]

    def everything(ct, t, x):
        return [gradients(g, ct, x) for g in wrapped], pushed_through_while(f, t, x)

    found, tangent = side_jax.once(everything)(setting.ct, setting.t, setting.x)
    for got in found:
        for g, want in zip(got, setting.expected.pull(setting.raw_ct), strict=True):
            assert_close(g, want, "gradient")
    assert_close(tangent, setting.expected.push(setting.raw_t)[-1], "tangent")


@line("exported")
@each_row
def test_an_exported_program_gives_value_and_gradient(row):
    setting, f = Setting(side_jax, row, (2,)), side_jax.function(row.op)
    both = jax.jit(lambda ct, x: (f(*x), gradients(f, ct, x)))
    program = jax.export.export(both)(*shapes(setting.ct, setting.x))
    value, found = stored(program).call(setting.ct, setting.x)
    assert_close(value, setting.expected.value(), "value")
    for g, want in zip(found, setting.expected.pull(setting.raw_ct), strict=True):
        assert_close(g, want, "gradient")


def stored(program, order=0):
    """The program read back from its bytes."""
    return jax.export.deserialize(program.serialize(vjp_order=order))


@line("exported gradient")
@each_row
def test_the_gradient_of_an_exported_program_is_that_of_the_rule(row):
    setting, f = Setting(side_jax, row, (2,)), side_jax.function(scaled(row.op, FACTOR))
    program = jax.export.export(jax.jit(f))(*shapes(*setting.x))
    found = gradients(stored(program, 1).call, setting.ct, setting.x)
    for g, want in zip(found, setting.expected.pull(setting.raw_ct), strict=True):
        assert_close(g, FACTOR * want, "gradient")


@line("for cuda")
@each_row
def test_value_gradient_and_tangent_lower_for_cuda(row):
    """No constant of the CPU in them, and nothing that must run while tracing."""
    setting, f = Setting(side_jax, row, (2,)), side_jax.function(row.op)

    def everything(ct, t, x):
        return f(*x), gradients(f, ct, x), jax.jvp(f, x, t)[1]

    lower = jax.export.export(jax.jit(everything), platforms=("cuda",))
    assert lower(*shapes(setting.ct, setting.t, setting.x)).platforms == ("cuda",)


@line("autocast or x64 off")
@each_row
def test_without_x64_everything_is_float32(row):
    jax.config.update("jax_enable_x64", False)
    try:
        f, raw = side_jax.function(row.op), row.inputs((2,))
        x = tuple(jnp.asarray(v) for v in raw)
        value, pull = side_jax.once(lambda x: jax.vjp(f, *x))(x)
        found = side_jax.once(lambda pull: pull(jnp.ones_like(value)))(pull)
        result = jax.eval_shape(f, *raw).dtype  # NumPy's float64 is taken, too
    finally:
        jax.config.update("jax_enable_x64", True)
    assert [*(g.dtype for g in found), value.dtype] == row.dtypes("float32")
    assert result == value.dtype
    expected = Expected(row, [np.asarray(side_jax.cast(v, "float64")) for v in x])
    assert_close(value, expected.value(), "value", rtol=2e-5, floor=1.0)
    for g, want in zip(found, expected.pull(np.ones(value.shape)), strict=True):
        assert_close(g, want, "gradient", rtol=2e-5, floor=1.0)


def elsewhere(op, raw, raw_ct):
    """Runs in another process, which got the op pickled."""
    jax.config.update("jax_enable_x64", True)
    found = jax.jit(lambda ct, x: gradients(side_jax.function(op), ct, x))(raw_ct, tuple(raw))
    return [np.asarray(g) for g in found]


@pytest.fixture(scope="session")
def other_process():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@line("other processes")
@each_row
def test_a_pickled_op_works_in_another_process(row, other_process):
    setting = Setting(side_jax, row, (2,))
    found = other_process.submit(elsewhere, row.op, setting.raw, setting.raw_ct).result(120)
    for g, want in zip(found, setting.expected.pull(setting.raw_ct), strict=True):
        assert_close(g, want, "gradient")


@line("memory")
@each_row
def test_no_array_outlives_a_gradient(row):
    """No cycle keeps one: the garbage collector is off."""
    setting, f = Setting(side_jax, row, (2,)), side_jax.function(row.op)
    compiled = jax.jit(lambda ct, x: gradients(f, ct, x))
    jax.block_until_ready(compiled(setting.ct, setting.x))
    gc.collect()
    gc.disable()
    try:
        before = len(jax.live_arrays())
        for _ in range(3):
            found = jax.block_until_ready(compiled(setting.ct, setting.x))
            del found
        assert len(jax.live_arrays()) == before
    finally:
        gc.enable()
