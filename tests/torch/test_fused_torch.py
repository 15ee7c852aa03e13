"""Fused ops in torch: when a kernel runs, how many there are, what they return."""

import contextlib
import copy
import pickle
import threading

import numpy as np
import pytest
import torch
from torch.func import grad, jacrev, vmap

from tests import fused, sample_ops
from twingrad import ops
from twingrad.interop import define
from twingrad.interop.torch import bind

pytestmark = pytest.mark.compile
PRODUCT = sample_ops.multiply()
X = torch.linspace(-2.0, -0.2, 6, dtype=torch.float64)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    fused.of_torch_operations(monkeypatch)


@pytest.fixture
def calls(monkeypatch):
    return fused.Calls(monkeypatch)


def backward(f, *x, ct=None):
    leaves = [v.detach().requires_grad_() for v in x]
    y = f(*leaves)
    y.backward(torch.ones_like(y) if ct is None else ct)
    return [v.grad for v in leaves]


def assert_same(got, want):
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype, g.device) == (w.shape, w.dtype, w.device)
        torch.testing.assert_close(g, w)


def test_kernels_run_from_16384_numbers_on_or_from_what_is_said(calls):
    op = sample_ops.cube()
    for least, f in ((16384, bind(op, fused=True)), (10, bind(op, fused=10))):
        large, small = torch.ones(least), torch.ones(least - 1)
        assert calls.of(lambda f=f, x=large: backward(f, x)) == 2
        assert calls.of(lambda f=f, x=small: backward(f, x)) == 0
    assert calls.of(lambda: bind(op, fused=1)(torch.ones(0))) == 0
    assert bind(op, fused=True) is bind(op, fused=True) is not bind(op)


TRANSFORMS = {
    "call": (lambda f: f, 1),
    "grad": (lambda f: grad(lambda x: f(x).sum()), 2),
    "vmap of grad": (lambda f: vmap(grad(f)), 2),
    "jacrev": (jacrev, 2),
    "jvp": (lambda f: lambda x: torch.func.jvp(f, (x,), (x,))[1], 2),
    "hessian": (lambda f: torch.func.hessian(lambda x: f(x).sum()), 2),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_kernel_runs_for_the_function_and_for_each_rule(name, calls):
    transform, count = TRANSFORMS[name]
    f, plain = fused.both(ops.log1mexp)
    assert calls.of(lambda: transform(f)(X)) >= count
    assert_same([transform(f)(X)], [transform(plain)(X)])


def test_all_sizes_have_one_kernel(calls):
    """Also those that are equal to another size by chance at the first call."""
    f, plain = fused.both(sample_ops.dot())
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for batch in ((3,), (5,), (2, 4), (7, 3), (1000,), (2,)):
        for core in (3, 4, 2, 1000 if len(batch) > 1 else 17):
            x, y = torch.rand(2, *batch, core, dtype=torch.float64)
            assert_same(backward(f, x, y), backward(plain, x, y))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 2
    assert len(calls.kernels) == 2


def test_batches_that_broadcast_alike_have_one_kernel(calls):
    f, plain = fused.both(sample_ops.affine())
    x, s, b = torch.rand(4, 5, 3), torch.rand(4, 5), torch.rand(4, 5)
    shared = [(x, s[0, 0], b), (x[0], s[0, 0], b[0]), (x, s[:1, :1], b), (x, s[0, 0, None], b)]
    for args in shared:
        assert_same([f(*args)], [plain(*args)])
        assert_same(backward(f, *args), backward(plain, *args))
    assert len(calls.kernels) == 2
    for args in ((x, s[:1], b), (x, s[:, :1], b), (x[:1], s[:, :1], b[:1, :1]), (x, s[0], b)):
        assert_same(backward(f, *args), backward(plain, *args))


def test_an_argument_that_is_repeated_is_not_copied(calls):
    f, plain = fused.both(sample_ops.affine())
    x, s, b = torch.rand(3).expand(5, 3), torch.rand(()).expand(5), torch.rand(5)
    assert_same([f(x, s, b), *backward(f, x, s, b)], [plain(x, s, b), *backward(plain, x, s, b)])
    shapes = []
    for kernel in calls.kernels:
        run = kernel.run
        kernel.run = lambda *a, run=run: shapes.append([v.shape for v in a]) or run(*a)
    f(x, s, b), backward(f, x, s, b)
    assert [tuple(shape) for shape in shapes[0]] == [(1, 3), (1,), (5,)]
    same = torch.rand(()).expand(4)
    cube, plain = fused.both(sample_ops.cube())
    assert_same(backward(cube, same), backward(plain, same))  # nothing is left to repeat for


def test_static_parameters_have_kernels_of_their_own_up_to_a_limit(calls, recwarn, monkeypatch):
    monkeypatch.setattr("twingrad.interop.torch.fused.compiled.MOST", 6)
    f, plain = fused.both(sample_ops.power())
    for _ in range(2):
        for p in (2.0, 3.0, 4.0):
            assert_same(backward(lambda x, p=p: f(x, p=p), X), [p * X ** (p - 1)])
    assert len(calls.kernels) == 6 and not fused.unwanted(recwarn)
    for p in (5.0, 6.0):
        assert_same(backward(lambda x, p=p: f(x, p=p), X), [p * X ** (p - 1)])
    assert len(calls.kernels) == 6
    (said,) = fused.unwanted(recwarn)
    assert said.startswith("power ()->(): ") and "6 compiled kernels" in said
    assert plain(X, p=5.0).shape == X.shape


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_are_those_of_the_plain_op(dtype):
    f, plain = fused.both(PRODUCT)
    a, b = X.to(dtype), -X.to(dtype)
    assert_same([f(a, b), *backward(f, a, b)], [plain(a, b), *backward(plain, a, b)])
    mixed = b.float()
    assert_same(backward(f, a, mixed), backward(plain, a, mixed))
    assert_same([f(a, 1.0), f(a, torch.tensor(1))], [plain(a, 1.0), plain(a, torch.tensor(1))])


def test_autocast_and_checkpoint_are_those_of_the_plain_op():
    f, plain = fused.both(PRODUCT)
    a, b = X.float(), -X.float()

    def again(f):
        return lambda *x: torch.utils.checkpoint.checkpoint(f, *x, use_reentrant=False)

    assert_same(backward(again(f), a, b), backward(plain, a, b))
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(backward(f, a.bfloat16(), b), backward(plain, a.bfloat16(), b))


ODD = {
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[:, ::2],
    "expanded": lambda x: x[:, :1].expand(6, 4),
    "expanded twice": lambda x: x[:1, :1].expand(6, 4),
    "0-d": lambda x: x[0, 0],
    "one": lambda x: x[:1, :1],
    "none": lambda x: x[:0],
    "parameter": torch.nn.Parameter,
    "conjugated": lambda x: torch.complex(x, x).conj().imag,
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_inputs_and_cotangents(kind):
    f, plain = fused.both(PRODUCT)
    a, b = (ODD[kind](v) for v in -torch.rand(2, 6, 6, dtype=torch.float64))
    ct = ODD[kind](torch.rand(6, 6, dtype=torch.float64)).detach()
    assert_same(backward(f, a, b, ct=ct), backward(plain, a, b, ct=ct))
    with torch.inference_mode():
        assert_same([f(a, b)], [plain(a, b)])


def test_results_have_memory_of_their_own():
    f = bind(sample_ops.identity(), fused=1)
    x = X.clone()
    for v in (x, x.reshape(2, 3)):
        y = f(v)
        y += 1.0
    torch.testing.assert_close(x, X)

    @define("()->()")
    def twice(xp, x):
        return 2 * x

    twice.def_vjp(lambda xp, ct, out, x: ct)
    ct = torch.ones(6, dtype=torch.float64)
    (g,) = backward(bind(twice, fused=1), X, ct=ct)
    g += 1.0
    torch.testing.assert_close(ct, torch.ones_like(ct))
    leaf, op = X.clone().requires_grad_(), sample_ops.cube()
    y = bind(op, fused=1)(leaf.reshape(2, 3))
    y.mul_(2.0)  # autograd takes a write into the result
    y.sum().backward()
    torch.testing.assert_close(leaf.grad, 2 * backward(bind(op), X)[0])


def test_outputs_without_a_gradient_and_arrays_that_a_rule_does_not_read():
    f, plain = fused.both(sample_ops.pick())
    x, k = torch.rand(5, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])
    flag = torch.tensor([True, False, True, True, False])
    assert_same(backward(lambda x: f(x, k, flag), x), backward(lambda x: plain(x, k, flag), x))
    g, plain = fused.both(sample_ops.moments())
    for which in (0, 1):
        got, want = (backward(lambda x, h=h, w=which: h(x)[w], x) for h in (g, plain))
        assert_same(got, want)


def test_a_copy_and_a_pickle_are_the_same_function():
    for least in (True, 5):
        f = bind(ops.log1mexp, fused=least)
        assert copy.deepcopy(f) is f and pickle.loads(pickle.dumps(f)) is f
    assert f.__doc__ == bind(ops.log1mexp).__doc__ and f.op is ops.log1mexp


def test_threads_make_each_kernel_once(calls):
    f, plain = fused.both(sample_ops.dot())
    x, y = torch.rand(2, 5, 3, dtype=torch.float64)
    want, found = backward(plain, x, y), []
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    work = [threading.Thread(target=lambda: found.append(backward(f, x, y))) for _ in range(8)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(found) == 8 and len(calls.kernels) == 2
    for got in found:
        assert_same(got, want)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 2


def test_a_complex_op():
    f, plain = fused.both(sample_ops.multiply())
    x, y = torch.randn(2, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    for a, b in ((x, y), (x.conj(), y), (x.real, y)):
        ct = torch.full((5,), 1.0 + 2.0j, dtype=torch.complex128)
        assert_same(backward(f, a, b, ct=ct), backward(plain, a, b, ct=ct))


def test_constants_of_an_op():
    grid = np.linspace(0.0, 1.0, 3)

    @define("(n)->(n)", constants={"grid": grid})
    def weigh(xp, x, *, grid):
        return x * grid

    weigh.def_vjp(lambda xp, ct, out, x, *, grid: 2 * ct * grid)
    f, plain = fused.both(weigh)
    x = torch.rand(4, 3, dtype=torch.float64)
    assert_same([f(x), *backward(f, x)], [plain(x), *backward(plain, x)])


def test_a_rule_that_is_put_in_the_place_of_another_runs():
    op = sample_ops.cube()
    f = bind(op, fused=1)
    backward(f, X), torch.func.jvp(f, (X,), (X,))
    op.vjp = lambda xp, ct, out, x: 100 * ct
    op.jvp = lambda xp, tangents, out, x: 100 * tangents[0]
    assert_same(backward(f, X), [torch.full_like(X, 100.0)])
    assert_same(torch.func.jvp(f, (X,), (X,))[1:], [100 * X])
    op.forward = lambda xp, x: x
    assert_same([f(X)], [X])


@pytest.mark.parametrize("way", ["device context", "function mode", "two threads"])
def test_what_is_around_a_call_makes_no_difference(way, recwarn):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    f, plain = fused.both(PRODUCT)
    want, threads = backward(plain, X, X + 1), torch.get_num_threads()
    around = {"device context": torch.device("cpu"), "function mode": Mode()}
    with around.get(way, contextlib.nullcontext()):
        torch.set_num_threads(2 if way == "two threads" else threads)
        got = backward(f, X, X + 1)
        torch.set_num_threads(threads)
    assert_same(got, want)
    assert not fused.unwanted(recwarn)
