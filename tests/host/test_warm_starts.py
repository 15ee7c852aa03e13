"""A warm start is an argument without a gradient: right in batches, threads and recomputation."""

import threading

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_side, side_of
from twingrad.interop import Host, from_numpy
from twingrad.interop.check import check

TARGETS = np.array([2.0, 3.0, 5.0])
ROOTS = np.sqrt(TARGETS)
STEPS = []


def root(a, start, *, tolerance=1e-15):
    """The square root of a by Newton's method, from a start; it counts its steps."""
    x, count = np.where(start > 0, start, 1.0), 0
    while abs(x * x - a) > tolerance * 4 * a:
        x, count = (x + a / x) / 2, count + 1
    STEPS.append(count)
    return x


def adjoint(ct, a, start, *, out, tolerance):
    return ct / (2 * out), None


def make(rows=True):
    op = from_numpy(root, signature="(),()->()", vjp=adjoint, host=Host(vectorize=True))
    if rows:
        op.def_jvp_by_rows()
    return op


def steps(run):
    STEPS.clear()
    run()
    return list(STEPS)


@each_side
def test_each_sample_starts_where_it_was(framework):
    side = side_of(framework)
    f = bound(framework, make())
    mapped = side.vmap(f)
    a = side.array(TARGETS)
    for g in (f, mapped, side.once(mapped)):
        x = g(a, side.array(np.zeros(3)))
        np.testing.assert_allclose(as_numpy(x), ROOTS, rtol=1e-14)
        assert min(steps(lambda: g(a, side.array(np.zeros(3))))) >= 3  # noqa: B023
        assert max(steps(lambda: as_numpy(g(a, x)))) == 0  # noqa: B023


@each_side
def test_the_start_has_a_gradient_of_zero_in_every_mode(framework):
    side = side_of(framework)
    f = bound(framework, make())
    a, start = side.array(TARGETS), side.array(np.array([1.0, 1.5, 2.0]))

    def total(a, s):
        return f(a, s).sum()

    ways = {
        "grad": side.grad(total, argnums=(0, 1)),
        "vmap of grad": side.vmap(side.grad(f, argnums=(0, 1))),
        "forward": side.jacfwd(total, argnums=(0, 1)),
    }
    for name, way in ways.items():
        by_a, by_start = way(a, start)
        np.testing.assert_allclose(as_numpy(by_a), 0.5 / ROOTS, err_msg=name)
        assert not as_numpy(by_start).any(), name


def test_recomputation_starts_there_again():
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    f, a = bound("torch", make()), torch.tensor(TARGETS, requires_grad=True)
    start, _ = torch.zeros(3, dtype=a.dtype), STEPS.clear()
    for _ in range(3):
        x = checkpoint(f, a, start, use_reentrant=False)
        (g,) = torch.autograd.grad(x.sum(), a)
        np.testing.assert_allclose(g, 0.5 / ROOTS)
        half = len(STEPS) // 2
        assert STEPS[:half] == STEPS[half:]  # the same steps, when it is run again
        start, _ = x.detach(), STEPS.clear()


@each_side
def test_threads_do_not_meet(framework):
    side = side_of(framework)
    f, wrong = bound(framework, make()), []

    def run(k):
        a, x = side.array(TARGETS * k), side.array(np.zeros(3))
        for _ in range(20):
            x = f(a, x)
            if not np.allclose(as_numpy(x), np.sqrt(TARGETS * k), rtol=1e-14):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(1, 5)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_the_doctor_tells_an_answer_that_depends_on_its_start():
    pytest.importorskip("torch")
    at = [(np.array(4.0), np.array(1.0))]

    def rough(a, start):
        return (start + a / start) / 2  # one step

    op = from_numpy(rough, signature="(),()->()", vjp=lambda ct, a, start, *, out: (0.5 * ct, None))
    report = check(op, *at[0], framework="torch")
    assert not report.passed and "start" in str(report)
    good = check(make(), *at[0], framework="torch")
    assert good.passed, str(good)
