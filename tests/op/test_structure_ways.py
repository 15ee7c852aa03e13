"""Structured arguments in everything that makes an op, and in what a rule may ask for."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_binder, each_side, given, side_of
from tests.structured_ops import PARAMS, Plain, Tupled
from twingrad.interop import (
    Host,
    MissingRuleError,
    complex_step,
    define,
    finite_difference,
    from_jacobian,
    from_linear,
    from_numpy,
    gaussian_smoothing,
    spsa,
    unknown,
)
from twingrad.interop.numpy import bind

RATE, SHIFT, T = np.array(1.5), np.array([0.3, -0.2, 0.5]), np.array([1.0, 2.0, 3.0, 4.0])
SIGNATURE = "{rate: (), shift: (n)}, (t) -> (t)"


def curve(params, t):
    return params.rate[..., None] * t**2 + (params.shift**3).sum(-1)[..., None]


def gradients(framework, op, *more):
    """Those of the weighted sum in rate, shift and t."""
    weights = np.array([1.0, 2.0, 0.5, -1.0])
    f = bound(framework, op)
    if framework == "numpy":
        params, t_bar, *_ = f.vjp(weights, Plain(RATE, SHIFT), T, *more)
        return params.rate, params.shift, t_bar
    side = side_of(framework)
    x = [side.array(v) for v in (RATE, SHIFT, T)]

    def loss(rate, shift, t):
        return side.total(side.array(weights) * f(Plain(rate, shift), t, *more))

    return [as_numpy(g) for g in side.once(side.grad(loss, argnums=(0, 1, 2)))(*x)]


def close(found, tolerance=1e-7):
    weights = np.array([1.0, 2.0, 0.5, -1.0])
    expected = ((weights * T**2).sum(), 3 * SHIFT**2 * weights.sum(), weights * 2 * RATE * T)
    for g, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(as_numpy(g), e, rtol=tolerance, atol=tolerance)


@each_binder
def test_differences_are_in_the_structure(framework):
    close(gradients(framework, finite_difference(curve, signature=SIGNATURE)))
    close(gradients(framework, complex_step(curve, signature=SIGNATURE)), 1e-13)
    close(gradients(framework, finite_difference(curve, signature=SIGNATURE, step=(1e-5, 1e-4))))


def written(ct, params, t):
    """The adjoint in t, and none in the parameters."""
    return unknown, ct * 2 * params.rate[..., None] * t


@each_binder
@pytest.mark.parametrize("argnums", ["params", 0, ["params.rate", "params.shift"]], ids=str)
def test_numeric_in_some_and_written_in_others(framework, argnums):
    op = finite_difference(curve, signature=SIGNATURE, argnums=argnums, vjp=written)
    close(gradients(framework, op))


def test_what_is_neither_numeric_nor_written_raises_by_its_path():
    op = finite_difference(curve, signature=SIGNATURE, argnums="params.rate", vjp=written)
    with pytest.raises(MissingRuleError, match=r"no formula for params\.shift"):
        gradients("numpy", op)


@each_binder
@pytest.mark.parametrize("make", [spsa, gaussian_smoothing], ids=lambda m: m.__name__)
def test_estimators_take_a_seed_after_the_structure(framework, make):
    width = {"step": 1e-3} if make is spsa else {"sigma": 1e-3}
    op = make(curve, signature=SIGNATURE, directions=4000, **width)
    assert op.names == ("params", "t", "seed")
    found = gradients(framework, op, 3)
    close(found, 1.5)
    for g, e in zip(found, gradients(framework, op, 3), strict=True):
        np.testing.assert_array_equal(g, e)


def both(params, t):
    return curve(params, t), jac(params, t)


def jac(params, t):
    ones = np.ones((len(t), 1))
    return {"rate": t**2, "shift": ones * 3 * params.shift**2}, np.diag(2 * params.rate * t)


@each_binder
def test_a_jacobian_in_the_structure(framework):
    close(gradients(framework, from_jacobian(curve, jac, signature=SIGNATURE)), 1e-13)
    close(gradients(framework, from_jacobian(both, True, signature=SIGNATURE)), 1e-13)


def blend(parts, weights):
    return weights[..., None] * parts["a"] + parts["b"].sum(-1)[..., None]


def unblend(y, weights):
    return {"a": weights[..., None] * y, "b": y.sum(-1)[..., None] * np.ones(2)}


@each_side
def test_a_linear_op_of_a_structure(framework):
    op = from_linear(blend, unblend, signature="{a: (n), b: (m)}, () -> (n)")
    assert op.flat(op.notation.example()).linear == ("parts.a", "parts.b")
    side, f = side_of(framework), bound(framework, op)
    a, b, w = (side.array(v) for v in (np.ones(3), np.ones(2), np.array(2.0)))

    def of_arrays(a, b):
        return f({"a": a, "b": b}, w)

    value = of_arrays(a, b)
    np.testing.assert_array_equal(as_numpy(value), [4.0, 4.0, 4.0])
    seed = side.array(np.array([1.0, 2.0, 3.0]))
    for mode in side.REVERSE.values():
        a_bar, b_bar = mode(of_arrays, seed, [a, b])
        np.testing.assert_array_equal(as_numpy(a_bar), [2.0, 4.0, 6.0])
        np.testing.assert_array_equal(as_numpy(b_bar), [6.0, 6.0])
    for mode in side.FORWARD.values():
        np.testing.assert_array_equal(as_numpy(mode(of_arrays, [a, b], [a, b])), as_numpy(value))


@dataclass
class Told:
    """What a rule was told."""

    host: bool
    found: Any = None

    def op(self):
        @define("{rate: (), shift: (n)}, [(), (t)], (n)? -> (t)", host=self.host)
        def curve(xp, params, pair, offset=None):
            return params["rate"][..., None] * pair[1] + pair[0][..., None]

        @curve.def_vjp
        def _(xp, ct, out, params, pair, offset, *, needs):
            self.found = (
                needs.params.rate,
                needs.params["shift"],
                bool(needs.params),
                list(needs.pair),
                needs[1][0],
                needs.offset,
            )
            rate_bar = xp.sum(ct * pair[1], axis=-1) if needs.params.rate else None
            return {"rate": rate_bar, "shift": None}, [xp.sum(ct, axis=-1), None], None

        return curve


@each_side
@pytest.mark.parametrize("host", [False, True], ids=["array", "host"])
def test_needs_is_in_the_structure(framework, host):
    side, told = side_of(framework), Told(host)
    f = bound(framework, told.op())
    rate, shift, first, t = (side.array(v) for v in (RATE, SHIFT, np.array(1.0), T))

    def loss(rate, first):
        return side.total(f({"rate": rate, "shift": shift}, [first, t]))

    side.once(side.grad(loss, argnums=0))(rate, first)
    assert told.found == (True, False, True, [False, False], False, False)
    side.once(side.grad(loss, argnums=1))(rate, first)
    assert told.found == (False, False, False, [True, False], True, False)


@each_binder
@pytest.mark.parametrize("host", [False, True], ids=["array", "host"])
def test_static_parameters_defaults_and_keywords(framework, host):
    @define("{rate: (), shift: (n)}, (t), (), (t)? -> (t)", host=host)
    def line(xp, params, t, scale=2.0, offset=None, *, power=1):
        y = scale[..., None] * params.rate[..., None] * t**power
        return y if offset is None else y + offset

    line.def_vjp(lambda xp, ct, out, params, t, scale, offset, *, power: (None, ct, None, ct))
    f = bound(framework, line)
    p, t = Plain(*(given(framework, v) for v in (RATE, SHIFT))), given(framework, T)
    for found, expected in (
        (f(p, t), 3 * T),
        (f(t=t, params=p), 3 * T),
        (f(p, t, 1.0), 1.5 * T),
        (f(p, scale=1.0, t=t, power=2), 1.5 * T**2),
        (f(p, offset=t, t=t), 4 * T),
        (f(p, t, 2.0, None, power=2), 3 * T**2),
    ):
        np.testing.assert_allclose(as_numpy(found), expected)


@each_binder
@pytest.mark.parametrize("host", [False, True], ids=["array", "host"])
def test_a_number_as_default_may_be_left_out_of_plain_ops_too(framework, host):
    @define("(n),(),() -> (n)", host=host)
    def scaled(xp, x, scale=2.0, shift=1):
        return x * scale[..., None] + shift[..., None]

    f, t = bound(framework, scaled), given(framework, T)
    np.testing.assert_array_equal(as_numpy(f(t)), 2 * T + 1)
    np.testing.assert_array_equal(as_numpy(f(t, shift=0.0)), 2 * T)
    np.testing.assert_array_equal(as_numpy(f(x=t, scale=3.0)), 3 * T + 1)
    made = from_numpy(lambda x, scale=2.0: x * scale[..., None], signature="(n),()->(n)")
    np.testing.assert_array_equal(as_numpy(bound(framework, made)(t)), 2 * T)


@each_binder
@pytest.mark.parametrize("host", [False, True], ids=["array", "host"])
def test_constants_reach_function_and_rule(framework, host):
    @define("{rate: (), shift: (n)} -> (4)", host=host, constants=("grid",))
    def on_grid(xp, params, *, grid):
        return params.rate[..., None] * grid + 0 * xp.sum(params.shift, axis=-1)[..., None]

    @on_grid.def_vjp
    def _(xp, ct, out, params, *, grid):
        return Plain(xp.sum(ct * grid, axis=-1), None)

    f = bound(framework, on_grid.with_constants(grid=T))
    assert on_grid.with_constants(grid=T.copy()) is on_grid.with_constants(grid=T)
    p = Plain(*(given(framework, v) for v in (RATE, SHIFT)))
    np.testing.assert_array_equal(as_numpy(f(p)), 1.5 * T)
    if framework == "numpy":
        assert f.vjp(np.ones(4), p)[0].rate == T.sum()
    other = bound(framework, on_grid.with_constants(grid=2 * T))
    np.testing.assert_array_equal(as_numpy(other(p)), 3 * T)


def one_curve(params, t):
    assert params.shift.ndim == 1 and t.ndim == 1
    return params.rate * t


POOLS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "threads": lambda: ThreadPoolExecutor(2),
}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", ["NamedTuple", "dataclass", "registered"])
def test_a_function_of_one_sample_gets_that_of_each_array(pool, kind):
    executor = POOLS[pool]()
    host = Host(vectorize=True, executor=executor)
    op = from_numpy(one_curve, signature=SIGNATURE, host=host)
    try:
        rates = np.array([1.0, 2.0])
        found = bind(op)(PARAMS[kind](rates, np.ones((2, 3))), T)
    finally:
        if executor is not None:
            executor.shutdown()
    np.testing.assert_array_equal(found, rates[:, None] * T)


@each_side
def test_another_structured_op_is_called_in_a_rule_or_is_the_rule(framework):
    side = side_of(framework)

    def line(xp, params, t):
        return params.rate[..., None] * t + 0 * xp.sum(params.shift, axis=-1)[..., None]

    inner = define(SIGNATURE)(line)
    inner.def_vjp(
        lambda xp, ct, out, p, t: (Tupled(xp.sum(ct * t, axis=-1), None), ct * p.rate[..., None])
    )

    @define("ct: (t), params: {rate: (), shift: (n)}, t: (t) -> (), (n), (t)")
    def adjoint(xp, ct, params, t):
        return xp.sum(ct * t, axis=-1), 0 * params.shift, ct * params.rate[..., None]

    outer = define(SIGNATURE)(lambda xp, params, t: inner(xp, params, t))
    outer.def_vjp(adjoint)
    f = bound(framework, outer)
    x = [side.array(v) for v in (RATE, SHIFT, T)]
    found = side.once(side.grad(lambda r, s, t: side.total(f(Tupled(r, s), t)), argnums=(0, 1, 2)))(
        *x
    )
    for g, e in zip(found, (T.sum(), 0 * SHIFT, RATE * np.ones(4)), strict=True):
        np.testing.assert_array_equal(as_numpy(g), e)
