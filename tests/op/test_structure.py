"""Structured arguments: the same numbers as the same op of their arrays, in every mode."""

import itertools

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_binder, given, side_of
from tests.structured_ops import CASES, arrays_in
from twingrad.interop.numpy import bind

each_case = pytest.mark.parametrize("name", CASES)


def pair(framework, name):
    """The structured op as a function of arrays, and the plain op of them."""
    case = CASES[name]
    return case.of_arrays(bound(framework, case.structured())), bound(framework, case.flat())


def same(found, expected):
    found, expected = as_numpy(found), as_numpy(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@each_binder
@each_case
@pytest.mark.parametrize("batch", [(), (3,), (0,)], ids=str)
def test_the_value_is_that_of_the_plain_op(framework, name, batch):
    mine, plain = pair(framework, name)
    x = [given(framework, v) for v in CASES[name].inputs(batch)]
    same(mine(*x), plain(*x))


@each_case
def test_numpy_rules_take_and_return_the_structure(name):
    case = CASES[name]
    mine, plain = bind(case.structured()), bind(case.flat())
    x, t = case.inputs((2,)), case.inputs((2,))[::1]
    args, ct = case.pack(*x), np.cos(plain(*x))
    found = mine.vjp(ct, *args)
    assert [type(g) for g in found] == [type(v) for v in args]
    for g, e in zip(arrays_in(values_of(found)), plain.vjp(ct, *x), strict=True):
        same(g, e)
    if hasattr(case.maths, "dots"):
        same(mine.jvp(case.pack(*t), *args), plain.jvp(tuple(t), *x))


def values_of(found):
    """Objects as tuples of their fields."""
    return [
        g if isinstance(g, dict | list | tuple | np.ndarray) else (g and [g.rate, g.shift])
        for g in found
    ]


QUICK = ("simulator of a registered", "simulator without offset on the host", "product")


def every(modes):
    """Each framework, op and mode that there is; in JAX few of them are quick."""
    return [
        pytest.param(
            *each,
            id="-".join(each),
            marks=[pytest.mark.slow] * (each[0] == "jax" and each[1] not in QUICK),
        )
        for each in itertools.product(("torch", "jax"), CASES, modes)
        if CASES[each[1]].order > 1 or " over " not in each[2]
    ]


@pytest.mark.parametrize(("framework", "name", "kind"), every(("reverse", "forward")))
def test_first_derivatives_are_those_of_the_plain_op(framework, name, kind):
    side = side_of(framework)
    mine, plain = pair(framework, name)
    x = [side.array(v) for v in CASES[name].inputs((2,))]
    y = plain(*x)
    for mode in (side.REVERSE if kind == "reverse" else side.FORWARD).values():
        seed = side.wave(y, 1) if kind == "reverse" else [side.wave(v, 2) for v in x]
        found, expected = mode(mine, seed, x), mode(plain, seed, x)
        if kind == "forward":
            found, expected = [found], [expected]
        for g, e in zip(found, expected, strict=True):
            same(g, e)


def loss(side, f):
    return lambda *x: side.total(f(*x) ** 2)


MODES = {
    "vmap": lambda side, f: side.vmap(f),
    "vmap of one": lambda side, f: (
        lambda x, *rest: side.vmap(f, (0, *(None,) * len(rest)))(x, *(r[0] for r in rest))
    ),
    "vmap of grad": lambda side, f: side.vmap(side.grad(loss(side, f))),
    "grad of vmap": lambda side, f: side.grad(loss(side, side.vmap(f))),
    "vmap of jacfwd": lambda side, f: side.vmap(side.jacfwd(f)),
    "forward over reverse": lambda side, f: side.vmap(side.jacfwd(side.grad(loss(side, f)))),
    "reverse over forward": lambda side, f: side.vmap(side.jacrev(side.jacfwd(loss(side, f)))),
    "forward over forward": lambda side, f: side.vmap(side.jacfwd(side.jacfwd(loss(side, f)))),
}


@pytest.mark.parametrize(("framework", "name", "mode"), every(MODES))
def test_transforms_are_those_of_the_plain_op(framework, name, mode):
    side = side_of(framework)
    x = [side.array(v) for v in CASES[name].inputs((2,))]
    run = [side.once(MODES[mode](side, f)) for f in pair(framework, name)]
    same(run[0](*x), run[1](*x))
