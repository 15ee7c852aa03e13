"""Host functions of one sample: in order, through executors, with progress, and when they fail."""

import importlib
import multiprocessing
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from tests.closeness import as_numpy
from twingrad.interop import Host, RuleError, define, from_numpy
from twingrad.interop.numpy import bind

each_side = pytest.mark.parametrize("framework", ["torch", "jax", "numpy"])


def bound(framework, op):
    pytest.importorskip(framework)
    array = np.asarray
    if framework != "numpy":
        array = importlib.import_module(f"tests.side_{framework}").array
    return importlib.import_module(f"twingrad.interop.{framework}").bind(op), array


def square_norm(x, s):
    """s |x|^2, for one sample; elsewhere it must be importable."""
    assert x.ndim == 1 and s.ndim == 0
    return s * (x @ x)


def square_norm_vjp(ct, x, s):
    return 2 * ct * s * x, ct * (x @ x)


def fails_at_3(x):
    if x == 3:
        raise ZeroDivisionError("the user's own words")
    return x


X = np.random.default_rng(0).normal(size=(6, 4))
S = np.arange(1.0, 7.0)


def make(**host):
    return from_numpy(
        square_norm, signature="(n),()->()", vjp=square_norm_vjp, host=Host(vectorize=True, **host)
    )


@each_side
def test_one_sample_at_a_time_gives_the_batch(framework):
    f, array = bound(framework, make())
    np.testing.assert_allclose(as_numpy(f(array(X), array(S))), S * (X * X).sum(-1))
    np.testing.assert_allclose(as_numpy(f(array(X[0]), array(S))), S * (X[0] @ X[0]))
    assert as_numpy(f(array(X[:0]), array(S[:0]))).shape == (0,)
    assert float(f(array(X[0]), array(S[0]))) == pytest.approx(X[0] @ X[0])


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_rule_takes_one_sample_too(framework):
    f, array = bound(framework, make())
    side = importlib.import_module(f"tests.side_{framework}")
    gx, gs = side.vmap(side.grad(f, argnums=(0, 1)))(array(X), array(S))
    np.testing.assert_allclose(as_numpy(gx), 2 * S[:, None] * X)
    np.testing.assert_allclose(as_numpy(gs), (X * X).sum(-1))


@each_side
def test_threads_keep_the_order_and_work_side_by_side(framework):
    together = threading.Barrier(3, timeout=20)

    @define("()->()", host=Host(vectorize=True, executor=(pool := ThreadPoolExecutor(3))))
    def slow(xp, x):
        together.wait()  # passes only where three samples run at once
        time.sleep(0.02 * (3 - float(x) % 3))
        return x

    with pool:
        f, array = bound(framework, slow)
        np.testing.assert_array_equal(as_numpy(f(array(np.arange(6.0)))), np.arange(6.0))


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@each_side
def test_processes_give_the_same(framework, processes):
    f, array = bound(framework, make(executor=processes))
    np.testing.assert_allclose(as_numpy(f(array(X), array(S))), S * (X * X).sum(-1))


def test_an_op_of_a_module_is_sent_to_processes_by_name(processes):
    host = Host(vectorize=True, executor=processes)
    FAR.host, before = host, FAR.host
    try:
        np.testing.assert_array_equal(bind(FAR)(np.arange(3.0)), [0, 2, 4])
        np.testing.assert_array_equal(bind(FAR).vjp(np.ones(3), np.arange(3.0))[0], [2, 2, 2])
    finally:
        FAR.host = before


@define("()->()", host=Host(vectorize=True))
def far(xp, x):
    return 2 * x


@far.def_vjp
def _(xp, ct, out, x):
    return 2 * ct


FAR = far


@pytest.mark.parametrize("workers", [0, 2])
@each_side
def test_an_exception_names_the_sample_and_the_rest_is_cancelled(framework, workers):
    started = []
    pool = ThreadPoolExecutor(workers) if workers else None

    @define("()->()", host=Host(vectorize=True, executor=pool))
    def fragile(xp, x):
        started.append(float(x))
        time.sleep(0.01)
        return fails_at_3(x)

    f, array = bound(framework, fragile)
    with pytest.raises(Exception) as caught:
        as_numpy(f(array(np.arange(200.0))))
    text = str(caught.value) + " ".join(getattr(caught.value, "__notes__", ()))
    assert "the user's own words" in text
    assert "sample 3 of 200" in text and "fragile ()->()" in text
    if framework != "jax":  # JAX has an error of its own for what a callback raises
        assert isinstance(caught.value, ZeroDivisionError)
    assert len(started) < 100
    np.testing.assert_array_equal(as_numpy(f(array(np.arange(2.0)))), [0, 1])


def test_progress_is_told_after_each_sample():
    told = []
    host = Host(vectorize=True, progress=lambda done, total: told.append((done, total)))

    @define("()->()", host=host)
    def same(xp, x):
        return x

    bind(same)(np.arange(3.0))
    assert told == [(1, 3), (2, 3), (3, 3)]
    told.clear()
    with ThreadPoolExecutor(2) as pool:
        same.host = Host(vectorize=True, executor=pool, progress=host.progress)
        bind(same)(np.arange(3.0))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_samples_of_unequal_shape_are_explained():
    @define("(n)->(n)", host=Host(vectorize=True))
    def cut(xp, x):
        return x[: int(x[0])]

    with pytest.raises(RuleError, match=r"cut .*shape \(1,\) for sample 0 but \(2,\) for sample 1"):
        bind(cut)(np.array([[1.0, 0.0], [2.0, 0.0]]))


def test_an_interrupt_cancels_the_rest_and_goes_on_up():
    started = []

    @define("()->()", host=Host(vectorize=True, executor=(pool := ThreadPoolExecutor(1))))
    def interrupted(xp, x):
        started.append(float(x))
        if x == 1:
            raise KeyboardInterrupt
        time.sleep(0.01)
        return x

    with pool, pytest.raises(KeyboardInterrupt):
        bind(interrupted)(np.arange(100.0))
    assert len(started) < 50
