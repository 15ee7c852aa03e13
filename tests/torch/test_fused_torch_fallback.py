"""Where an op cannot be fused it runs as the plain one, and says so once; its own errors stay."""

import functools
import gc
import threading
import weakref

import pytest
import torch
from torch.func import grad, jacfwd, vmap

from tests import fused, sample_ops
from tests.growth import SORTS, grow
from twingrad import ops
from twingrad.interop import ArgumentError, RuleError, ShapeError, define
from twingrad.interop.torch import bind

pytestmark = pytest.mark.compile
X = torch.linspace(-2.0, -0.2, 6, dtype=torch.float64)


def _backward(f, x):
    leaf = x.clone().requires_grad_()
    f(leaf).sum().backward()
    return leaf.grad


def data_dependent():
    """x^2 by code that looks at the numbers, which no compiler takes whole."""

    @define("()->()")
    def square(xp, x):
        return x * x if float(xp.sum(x)) < 0 else x**2

    square.def_vjp(lambda xp, ct, out, x: 2 * ct * x)
    return square


def check_runs_plain(op, want, recwarn):
    f = bind(op, fused=1)
    for _ in range(3):
        torch.testing.assert_close(f(X), want(X))
        torch.testing.assert_close(_backward(f, X), grad(lambda x: want(x).sum())(X))
        torch.testing.assert_close(vmap(grad(f))(X), grad(lambda x: want(x).sum())(X))
    (said,) = fused.unwanted(recwarn)
    return said


def test_without_a_compiler_an_op_runs_as_the_plain_one_and_says_why(recwarn):
    missing = {"cpp.cxx": ("no-such-compiler",), "force_disable_caches": True}
    with torch._inductor.config.patch(missing):
        said = check_runs_plain(sample_ops.cube(), lambda x: x**3, recwarn)
    assert said.startswith("cube ()->(): ") and "a C++ compiler is needed" in said
    assert "InvalidCxxCompiler" in said


def test_code_that_cannot_be_compiled_runs_as_it_is(recwarn, monkeypatch):
    fused.of_torch_operations(monkeypatch)
    said = check_runs_plain(data_dependent(), lambda x: x**2, recwarn)
    assert said.startswith("square ()->(): ") and "torch.compile(fullgraph=True)" in said


def test_an_op_with_a_rule_that_fails_says_only_that(recwarn, monkeypatch):
    fused.of_torch_operations(monkeypatch)
    op = sample_ops.cube()
    op.def_vjp(lambda xp, ct, out, x: ct[..., None] * xp.ones_like(x)[..., None] * xp.ones(2))
    f = bind(op, fused=1)
    with pytest.raises(RuleError, match=r"^cube \(\)->\(\): its vjp returned a gradient of shape"):
        _backward(f, X)

    @define("()->()")
    def writes(xp, x):
        x += 1
        return x

    with pytest.raises(RuleError, match=r"^writes \(\)->\(\): its function changed an array"):
        bind(writes, fused=1)(X.clone())
    with pytest.raises(ShapeError, match=r"^log_ndtr_diff .*broadcast"):
        bind(ops.log_ndtr_diff, fused=1)(X, X[:2])
    assert not fused.unwanted(recwarn)


def test_a_host_op_has_nothing_to_fuse():
    for op in (ops.rosenbrock, ops.solve_sylvester, sample_ops.host_sin()):
        with pytest.raises(ArgumentError) as found:
            bind(op, fused=True)
        assert str(found.value).startswith(f"{op.label}: fused=True") and bind(op)


def test_a_host_rule_of_an_array_op_runs_as_it_is(recwarn, monkeypatch):
    fused.of_torch_operations(monkeypatch)
    op = sample_ops.cube(rules="none")
    op.def_vjp(lambda xp, ct, out, x: 300 * x**2 * ct, host=True)
    f = bind(op, fused=1)
    torch.testing.assert_close(_backward(f, X), 300 * X**2)
    assert not fused.unwanted(recwarn)


MODES = {
    "call": lambda f: f(X),
    "backward": lambda f: _backward(f, X),
    "vmap of grad": lambda f: vmap(grad(f))(X),
    "jacfwd": lambda f: jacfwd(f)(X),
    "in a thread": lambda f: _in_thread(lambda: _backward(f, X)),
}


def _in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@pytest.mark.parametrize("mode", MODES)
def test_an_op_that_nobody_holds_is_freed_with_its_kernels(mode, monkeypatch):
    fused.of_torch_operations(monkeypatch)
    calls = fused.Calls(monkeypatch)
    op = sample_ops.cube()
    MODES[mode](bind(op, fused=1))
    held = [weakref.ref(op), *map(weakref.ref, calls.kernels)]
    assert len(held) > 1
    del op
    calls.kernels.clear()
    gc.collect()
    assert [ref() for ref in held if ref() is not None] == []


def _call(op, *x, **static):
    leaves = [torch.full((3,), v, dtype=torch.float64).requires_grad_() for v in x]
    bind(op, fused=1)(*leaves, **static).sum().backward()


@pytest.mark.parametrize(
    ("count", "sort"),
    [
        (100, "array"),
        *[pytest.param(10_000, s, marks=pytest.mark.slow) for s in ("array", "static")],
    ],
)
def test_a_call_keeps_nothing(count, sort, monkeypatch):
    """Of the values of a static parameter the first 32 get kernels; then nothing is compiled."""
    fused.of_torch_operations(monkeypatch)
    assert sort in SORTS
    found = grow(_call, sort, count=count, warm=count, trace=count < 1000)
    assert found.traced < 2000, found
    assert count < 1000 or (found.resident < 1000 and found.slower < 1.5), found


@functools.cache
def _large():
    return torch.linspace(-3.0, -1e-3, 2**15, dtype=torch.float64)


def test_inductor_compiles_the_kernels_with_the_formulas_for_compiled_code(monkeypatch):
    """As `expm1` of Inductor is inaccurate near 0, a rule must know there that it is compiled."""
    calls = fused.Calls(monkeypatch)
    op = ops.log1mexp
    f, plain = bind(op, fused=True), bind(op)
    near = -torch.logspace(-30, -1, 2**15, dtype=torch.float64)
    assert calls.of(lambda: _backward(f, near)) == 2
    torch.testing.assert_close(f(near), plain(near), rtol=1e-14, atol=0)
    torch.testing.assert_close(_backward(f, near), _backward(plain, near), rtol=1e-14, atol=0)
    assert calls.of(lambda: vmap(grad(f))(_large())) == 2
    torch.testing.assert_close(
        _backward(f, _large()), _backward(plain, _large()), rtol=1e-14, atol=0
    )
