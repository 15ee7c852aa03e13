"""Sizes of results that are static parameters or computed from others, in every mode."""

import functools
import importlib
import itertools
import pickle

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_binder, each_side, given, side_of
from tests.sized_ops import OPS, nufft, rfft
from twingrad.interop import MissingRuleError, ShapeError, Signature, define
from twingrad.interop.numpy import bind
from twingrad.interop.op.sizes import Size

each_op = pytest.mark.parametrize("name", OPS)
VALUES = [
    pytest.param(name, static, id=f"{name} {static}") for name in OPS for static in OPS[name].static
]
each_value = pytest.mark.parametrize(("name", "static"), VALUES)


def library(framework):
    return importlib.import_module(
        {"torch": "torch", "jax": "jax.numpy", "numpy": "numpy"}[framework]
    )


def pair(framework, name, static=None):
    """The op and the framework's own function."""
    static = static or {}
    op = functools.partial(bound(framework, OPS[name].make()), **static)
    return op, functools.partial(OPS[name].plain, library(framework), **static)


def loss_of(lib, f):
    """A real number that every entry of the result counts in, squared."""

    def loss(*x):
        y = f(*x)
        weights = lib.arange(1.0, len(y) + 1)
        return lib.sum(weights * lib.real(y * lib.conj(y)))

    return loss


def close(found, expected, name):
    tolerance = 1e-5 if name == "differences" else 1e-10
    found, expected = map(as_numpy, (found, expected))
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@each_binder
@each_value
def test_the_value_has_the_size_that_was_given(framework, name, static):
    op, plain = pair(framework, name, static)
    x = [given(framework, v) for v in OPS[name].inputs()]
    close(op(*x), plain(*x), name)


@each_side
@each_value
def test_the_gradient_is_that_of_the_framework(framework, name, static):
    side, lib, count = side_of(framework), library(framework), len(OPS[name].sizes)
    op, plain = pair(framework, name, static)
    x = [side.array(v) for v in OPS[name].inputs()]
    every = tuple(range(count))
    mine, theirs = (side.once(side.grad(loss_of(lib, f), argnums=every))(*x) for f in (op, plain))
    for found, expected in zip(mine, theirs, strict=True):
        close(found, expected, name)


def parts_of(lib, f):
    """Real numbers with every part of the result: torch's jacfwd refuses complex ones."""

    def parts(*x):
        y = f(*x)
        return lib.real(y) + 0.5 * lib.real(1j * y)

    return parts


MODES = {
    "vmap": lambda side, f, loss: side.vmap(f),
    "vmap of grad": lambda side, f, loss: side.vmap(side.grad(loss)),
    "compiled grad": lambda side, f, loss: _compiled(side, side.vmap(side.grad(loss))),
    "compiled call": lambda side, f, loss: _compiled(side, side.vmap(f)),
    "jacfwd": lambda side, f, loss: side.vmap(side.jacfwd(f)),
    "jacrev": lambda side, f, loss: side.vmap(side.jacrev(loss)),
    "forward over reverse": lambda side, f, loss: side.vmap(side.jacfwd(side.grad(loss))),
    "reverse over forward": lambda side, f, loss: side.vmap(side.jacrev(side.jacfwd(loss))),
}


def _compiled(side, f):
    return side.jit(f) if side.NAME == "jax" else side.compiled(f)


EVERY = [
    pytest.param(
        *each,
        id="-".join(each),
        marks=[pytest.mark.slow]
        * (each[0] == "jax" and each[1] not in ("nufft on the host", "rfft")),
    )
    for each in itertools.product(("torch", "jax"), OPS, MODES)
]


@pytest.mark.parametrize(("framework", "name", "mode"), EVERY)
def test_every_mode_is_right(framework, name, mode):
    side, lib, case = side_of(framework), library(framework), OPS[name]
    static = case.static[-1]
    op, plain = pair(framework, name, static)
    x = [side.array(v) for v in case.inputs((2,))]
    seen = [parts_of(lib, f) if mode == "jacfwd" else f for f in (op, plain)]
    run = MODES[mode](side, seen[0], loss_of(lib, op))
    run = run if mode.startswith("compiled") else side.once(run)
    if "over" in mode and case.order == 1:
        with pytest.raises(MissingRuleError, match=r"\."):
            run(*x)
        return
    other = (
        "vmap" if mode == "compiled call" else "vmap of grad" if mode == "compiled grad" else mode
    )
    expected = MODES[other](side, seen[1], loss_of(lib, plain))
    close(run(*x), side.once(expected)(*x), name)


@each_side
@pytest.mark.parametrize("host", [False, True])
def test_the_number_of_modes_changes_from_call_to_call(framework, host):
    side, lib, op = side_of(framework), library(framework), bound(framework, nufft(host))
    c, x = (side.array(v) for v in OPS["nufft"].inputs())
    for n in (3, 8, 3, 0, 6):
        assert op(c, x, n_modes=n).shape == (n,)
    assert op(c, x).shape == (6,)

    def whole(c, x, n):
        return side.grad(loss_of(lib, functools.partial(op, n_modes=n)))(c, x)

    compiled = (
        side.compiled(whole) if framework == "torch" else library_jit(whole, static_argnums=2)
    )
    for n in (3, 8, 3):
        np.testing.assert_allclose(as_numpy(compiled(c, x, n)), as_numpy(whole(c, x, n)))


def library_jit(f, **options):
    return importlib.import_module("jax").jit(f, **options)


def test_a_second_call_computes_no_size(monkeypatch):
    op, x = bind(rfft()), np.ones(8)
    op(x)

    def refuse(*_):
        raise AssertionError("a size was computed again")

    for name in ("value_of", "with_values", "read_side"):
        monkeypatch.setattr(importlib.import_module(Signature.__module__), name, refuse)
    assert op(x).shape == (5,)
    with pytest.raises(AssertionError):
        op(np.ones(9))


@pytest.mark.parametrize(
    ("text", "again", "values"),
    [
        ("(n)->(n//2+1)", "(n)->(n//2+1)", 4),
        ("(n)->( (n + 1) * 2 )", "(n)->((n+1)*2)", 16),
        ("(n)->(n-(n-1))", "(n)->(n-(n-1))", 1),
        ("(n)->(n-n-1+3)", "(n)->(n-n-1+3)", 2),
        ("(n)->(2*(n*3))", "(n)->(2*(n*3))", 42),
        ("(n)->(n//(2*3))", "(n)->(n//6)", 1),
        ("(n)->(8-3*2)", "(n)->(2)", 2),
        ("(n)->(n//2//2)", "(n)->(n//2//2)", 1),
        ("(n)->(n//(n//2))", "(n)->(n//(n//2))", 2),
    ],
)
def test_expressions_are_read_as_python_reads_them(text, again, values):
    found = Signature.parse(text)
    assert str(found) == again and " " not in again  # names of graphs are cut at spaces
    assert str(Signature.parse(again)) == again
    assert found.plan(((2, 7),)).outputs == ((2, values),)
    assert eval(text.partition("->")[2], {"n": 7}) == values


def test_a_size_of_an_argument_can_be_computed_too():
    op = define("(n),(n-1)->(n)")(lambda xp, x, y: x + xp.sum(y, axis=-1, keepdims=True))
    assert bind(op)(np.ones(3), np.ones(2)).tolist() == [3, 3, 3]
    with pytest.raises(ShapeError, match=r"n-1 is 3 in y \(shape \(3,\)\); expected 2, as n = 3"):
        bind(op)(np.ones(3), np.ones(3))


def test_a_static_parameter_fixes_the_size_of_an_argument():
    @define("(k),(n)->(n)")
    def shifted(xp, c, x, *, k=2):
        return x + xp.sum(c, axis=-1, keepdims=True)

    assert bind(shifted)(np.ones(2), np.ones(3)).shape == (3,)
    text = r"dimension k is 2 in the parameter k but 3 in c \(shape \(3,\)\)"
    with pytest.raises(ShapeError, match=text):
        bind(shifted)(np.ones(3), np.ones(3))
    assert bind(shifted)(np.ones(3), np.ones(3), k=3).shape == (3,)


def test_signatures_with_expressions_are_pickled_and_share_their_plans():
    found = Signature.parse("(n),(m)->(n+m-1,k)")
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(found)
    assert found.at({"k": 2}) is found.at({"k": 2})
    assert found.at({"k": 2}).plan(((3,), (4,))).outputs == ((6, 2),)
    assert Size("+", "n", 1) == Size("+", "n", 1)
