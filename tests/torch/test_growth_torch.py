"""torch ops in loops of every sort of op: memory and time per call level off."""

import functools

import pytest

torch = pytest.importorskip("torch")

from tests.growth import SORTS, grow  # noqa: E402
from twingrad.interop.torch import bind  # noqa: E402

tensor = functools.partial(torch.tensor, dtype=torch.float64)


def _tensors(x):
    return [tensor(v) for v in x]


def _eager(op, *x, **static):
    return bind(op)(*_tensors(x), **static)


def _backward(op, *x, **static):
    leaves = [v.requires_grad_() for v in _tensors(x)]
    bind(op)(*leaves, **static).sum().backward()


def _of(wrap):
    def run(op, *x, **static):
        return wrap(lambda *x: bind(op)(*x, **static).sum())(*_tensors(x))

    return run


def _twice(f):
    return lambda *x: torch.func.vmap(f)(*[torch.stack([v, v]) for v in x])


def compiled(backend):
    """One compiled function for all calls; an op that is new in each call compiles anew."""

    @functools.partial(torch.compile, backend=backend)
    def one(f, x, static):
        return f(*x, **static).sum() * 2

    def run(op, *x, **static):
        leaves = [v.requires_grad_() for v in _tensors(x)]
        one(bind(op), leaves, static).backward()

    return run


MODES = {
    "eager": _eager,
    "backward": _backward,
    "gradient": _of(torch.func.grad),
    "vmap": _of(lambda f: _twice(torch.func.grad(f))),
}


SLOW = [pytest.param(mode, marks=pytest.mark.slow) for mode in ("gradient", "vmap")]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("mode", ["eager", "backward", *SLOW])
def test_a_call_keeps_nothing(sort, mode):
    """An op keeps what it made for the latest 64 values of its static parameters.

    A value more cost 10 to 21 kB, an op of the loop its 8 kB and as much again.
    """
    found = grow(MODES[mode], sort, count=100, warm=100)
    assert found.traced < 2000, found


@pytest.mark.slow
@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("mode", ["eager", "backward"])
def test_a_long_loop_keeps_nothing_and_takes_no_longer(sort, mode):
    """Memory of the process, too, which levels off after some collections of garbage."""
    found = grow(MODES[mode], sort, count=10_000, warm=2000, trace=False)
    assert found.resident < 1000 and found.slower < 1.5, found


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.parametrize("sort", SORTS)
def test_a_long_loop_of_compiled_calls_keeps_nothing_and_takes_no_longer(sort):
    """Where each call has another op or value, Dynamo compiles eight and then runs eagerly."""
    torch._dynamo.reset()
    found = grow(compiled("aot_eager"), sort, count=10_000, warm=2000, trace=False)
    assert found.resident < 1000 and found.slower < 1.5, found
