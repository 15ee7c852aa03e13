"""Structured ops travel, are shared by threads, and keep a bounded number of structures."""

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from dataclasses import make_dataclass

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_binder, given
from tests.structured_ops import CASES, PARAMS, Plain
from twingrad.interop import ArgumentError, define, from_numpy
from twingrad.interop.check import check
from twingrad.interop.op.rules.reads import kept
from twingrad.interop.op.statics.static import KEPT

SIGNATURE = "{rate: (), shift: (n)}, (t) -> (t)"


@define(SIGNATURE)
def line(xp, params, t):
    return params.rate[..., None] * t + xp.sum(params.shift, axis=-1)[..., None]


@line.def_vjp
def _(xp, ct, out, params, t):
    total = xp.sum(ct, axis=-1)
    found = {
        "rate": xp.sum(ct * t, axis=-1),
        "shift": total[..., None] * xp.ones_like(params.shift),
    }
    return found, ct * params.rate[..., None]


def plain_line(params, t):
    return params.rate[..., None] * t + params.shift.sum(-1)[..., None]


of_numpy = from_numpy(plain_line, signature=SIGNATURE, name="made")
P, T = Plain(np.array(2.0), np.ones(3)), np.arange(4.0)


@pytest.mark.parametrize("name", ["by name", "by recipe"])
def test_the_op_and_that_of_a_structure_are_pickled(name):
    op = line if name == "by name" else of_numpy
    again = pickle.loads(pickle.dumps(op))
    assert (again is op) == (name == "by name")
    np.testing.assert_array_equal(bound("numpy", again)(P, T), 2 * T + 3)
    flat = op.flatten((P, T), {})[0]
    other = pickle.loads(pickle.dumps(flat))
    assert other.names == flat.names == ("params.rate", "params.shift", "t")
    np.testing.assert_array_equal(bound("numpy", other)(2.0, np.ones(3), T), 2 * T + 3)


def test_bound_functions_are_pickled_and_copied():
    f = bound("numpy", line)
    assert pickle.loads(pickle.dumps(f)) is f
    assert copy.deepcopy(line) is line and copy.copy(line) is line
    flat = line.flatten((P, T), {})[0]
    assert copy.deepcopy(flat) is flat


@each_binder
def test_a_bound_function_says_what_it_takes(framework):
    f = bound(framework, CASES["simulator of a dict"].structured())
    assert f.__name__ == "value" and "offset=None" in str(f.__signature__)
    assert "{rate: (), shift: (n)}, (t), (m)? -> (t)" in f.__doc__
    assert str(bound(framework, CASES["product"].structured()).__signature__) == "(*xs)"


@each_binder
@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ten_thousand_structures_leave_a_few(framework, count):
    f = bound(framework, line)
    x = [given(framework, v) for v in (np.array(2.0), np.ones(3), T)]
    for i in range(count):
        f(Plain(x[0], x[1], i), x[2])
    assert line.flat.cache_info().currsize <= KEPT


def test_a_class_that_is_gone_goes_from_a_structure_too():
    fields = [("rate", object), ("shift", object)]
    cls = make_dataclass("Gone", fields)
    gone = weakref.ref(cls)
    op = define(SIGNATURE)(lambda xp, params, t: params.rate[..., None] * t)
    bound("numpy", op)(cls(np.array(1.0), np.ones(2)), T)
    del cls, op
    gc.collect()
    assert gone() is None


def test_an_op_that_nobody_holds_is_freed():
    op = define(SIGNATURE)(lambda xp, params, t: params.rate[..., None] * t)
    bound("numpy", op)(P, T)
    found = weakref.ref(op)
    del op
    gc.collect()
    assert found() is None


@each_binder
def test_threads_share_a_structured_op(framework):
    f, wrong = bound(framework, line), []
    rate, shift, t = (given(framework, v) for v in (np.array(2.0), np.ones(3), T))

    def work(number):
        for i in range(40):
            make = list(PARAMS.values())[(number + i) % 2 + 2]
            if not np.array_equal(as_numpy(f(make(rate, shift, number), t)), 2 * T + 3):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_check_takes_a_structured_op_and_names_the_leaf(framework):
    pytest.importorskip(framework)
    report = check(line, P, T, framework=framework, second_order=False)
    assert report.passed, report
    drawn = check(line, draw=lambda rng: (P, rng.normal(size=4)), framework=framework)
    assert drawn.passed, drawn
    with pytest.raises(ArgumentError, match="give inputs, or draw="):
        check(line, framework=framework)

    @define(SIGNATURE)
    def wrong(xp, params, t):
        return params.rate[..., None] * t + xp.sum(params.shift**2, axis=-1)[..., None]

    @wrong.def_vjp
    def _(xp, ct, out, params, t):
        total = xp.sum(ct, axis=-1)[..., None]
        return Plain(xp.sum(ct * t, axis=-1), total * params.shift), ct * params.rate[..., None]

    report = check(wrong, P, T, framework=framework, second_order=False)
    assert not report.passed and "params.shift" in str(report) and SIGNATURE in str(report)


def test_the_core_of_structured_arguments_needs_no_framework():
    code = (
        "import sys, numpy as np\n"
        "from twingrad.interop import define\n"
        "from twingrad.interop.numpy import bind\n"
        "op = define('{a: ()} -> ()')(lambda xp, p: p['a'] * 2)\n"
        "print(bind(op)({'a': 3.0}), sorted({'torch', 'jax'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "6.0 []", done.stderr


@each_binder
def test_the_order_of_the_keys_does_not_matter(framework):
    op = CASES["energy"].structured()
    f = bound(framework, op)
    a, b = (given(framework, v) for v in CASES["energy"].inputs())
    one, other = f({"angle": a, "bond": b}), f({"bond": b, "angle": a})
    np.testing.assert_array_equal(as_numpy(one), as_numpy(other))
    assert op.flat.cache_info().misses == 1


def test_a_rule_that_is_set_again_is_the_one_that_runs():
    op = define(SIGNATURE)(lambda xp, params, t: params.rate[..., None] * t)
    f = bound("numpy", op)
    for factor in (1.0, 2.0):
        op.def_vjp(lambda xp, ct, out, params, t, *, factor=factor: (None, factor * ct))
        np.testing.assert_array_equal(f.vjp(np.ones(4), P, T)[1], np.full(4, factor))


def test_what_a_rule_does_not_read_is_not_kept():
    op = define(SIGNATURE)(lambda xp, params, t: params.rate[..., None] * t)
    op.def_vjp(lambda xp, ct, out, params, t: (None, ct * params.rate[..., None]))
    flat = op.flatten((P, T), {})[0]
    assert kept(flat, "vjp") == (True, True, False, False)  # rate, shift, t, out
