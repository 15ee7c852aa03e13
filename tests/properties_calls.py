"""The properties of `properties`, continued: what is called, and how it is called.

Which rules run, how often and on what shapes; bad input; many threads at once.
"""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.closeness import as_numpy, assert_close
from tests.copies import copy, function_of
from tests.properties import Setting, arrays, random_like
from tests.references.expected import Expected
from twingrad.interop import ArgumentError, ShapeError

BATCH = 5


class Counted:
    """A copy of a row's op that notes each call of its function and rules: kind and shape."""

    def __init__(self, row):
        self.calls = []
        op = row.op
        self.op = copy(
            op,
            self._noting("function", function_of(op), 0),
            self._noting("vjp", op.vjp, 2),
            self._noting("jvp", op.jvp, 2),
        )

    def _noting(self, kind, rule, before):
        if rule is None:
            return None

        @functools.wraps(rule)
        def noted(xp, *args, **static):
            self.calls.append((kind, tuple(args[before].shape)))
            return rule(xp, *args, **static)

        return noted

    def during(self, function, *args):
        """The calls that this call makes, in order."""
        self.calls.clear()
        found = function(*args)
        for array in found if isinstance(found, tuple | list) else (found,):
            as_numpy(array)  # JAX computes when it is asked
        return list(self.calls)


def check_native_batching(side, row):
    """vmap calls the function and each rule as often for a batch as for one sample: once.

    Of a linear op the tangent is its function, too, at another place.
    """
    counted = Counted(row)
    f, x, single = side.function(counted.op), arrays(side, row, (BATCH,)), arrays(side, row)
    every, whole = tuple(range(len(x))), (BATCH, *row.cores[0])
    ct = side.array(random_like(Expected(row, row.inputs()).value(), 7))
    gradient = side.grad(side.weighted(f, ct), argnums=every)

    def tangent(*x):
        return side.jvp(f, x, x)[1]  # a tangent of each sample

    for function in (f, gradient, tangent):
        one = counted.during(side.once(function), *single)
        with side.no_loop_over_samples():
            many = counted.during(side.once(side.vmap(function)), *x)
        kinds = [kind for kind, _ in many]
        assert kinds == [kind for kind, _ in one] and kinds
        most = {"function": side.TRACES * (2 if row.op.linear else 1), "vjp": 1, "jvp": 1}
        assert all(kinds.count(kind) <= most[kind] for kind in kinds)
        if side.NAME == "torch" or row.op.host:  # JAX traces one sample, then batches the trace
            assert {shape for kind, shape in many if kind == "function"} <= {whole}


def check_only_rules_needed(side, row):
    """No rule runs for a value, nor for the gradient of something else; each runs once."""
    counted = Counted(row)
    f, x = side.function(counted.op), arrays(side, row, (2,))
    other = side.array(np.ones(2))

    def beside(other, x):
        y = f(*x)
        return side.LIB.sum(other) * side.inner(side.LIB.ones_like(y), y)

    def kinds(function, *args):
        return [kind for kind, _ in counted.during(function, *args)]

    assert set(kinds(f, *x)) == {"function"}
    assert set(kinds(lambda o: side.grad(beside)(o, x), other)) == {"function"}
    ct = side.LIB.ones_like(f(*x))
    found = kinds(lambda: side.REFERENCE_REVERSE(f, ct, x))
    assert found.count("vjp") == 1 and found.count("jvp") == 0


def check_bad_input(side, row):
    """Each mistake is named, with the op, its signature and the argument."""
    f, x, names = side.function(row.op), arrays(side, row, (3,)), row.names
    label = row.op.label
    missing = f"{label}: the argument {names[-1]!r} is missing"
    mistakes = [(ArgumentError, (None, *x[1:]), f"{label}: {names[0]} is a NoneType")]
    mistakes += [(ArgumentError, x[:-1], missing)] if len(x) > 1 else []
    for i, (name, core) in enumerate(zip(names, row.cores, strict=True)):
        if core:
            flat = side.array(np.ones(()))
            mistakes.append((ShapeError, (*x[:i], flat, *x[i + 1 :]), f"{label}: {name} has shape"))
        if len(x) > 1:
            other = side.array(row.inputs((2,))[i])
            text = f"{label}: the batch shapes do not broadcast"
            mistakes.append((ShapeError, (*x[:i], other, *x[i + 1 :]), text))
    for error, args, text in mistakes:
        with pytest.raises(error) as caught:
            f(*args)
        assert str(caught.value).startswith(text)


def check_threads(side, row):
    """Eight threads at once get what one gets, each for inputs of its own."""
    f, settings = side.function(row.op), [Setting(side, row, (n,)) for n in (1, 2)]
    gradient = side.once(lambda ct, x: side.REFERENCE_REVERSE(f, ct, x))
    want = [setting.expected.pull(setting.raw_ct) for setting in settings]

    def work(i):
        return gradient(settings[i % 2].ct, settings[i % 2].x)

    with ThreadPoolExecutor(8) as pool:
        for i, found in enumerate(pool.map(work, range(32))):
            for g, w in zip(found, want[i % 2], strict=True):
                assert_close(g, w, f"call {i}")
