"""The contract as NumPy shows it, without any framework: host calls, dtypes, checks of rules."""

import itertools

import numpy as np
import pytest

from tests import sample_ops
from twingrad.interop import ArgumentError, MissingRuleError, RuleError, define
from twingrad.interop.numpy import bind


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("float64", "float64", "float64"),
        ("float32", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("float16", "float16", "float16"),
        ("float32", 2, "float32"),
        ("float32", 2.5, "float32"),
        ("complex64", "float32", "complex64"),
        ("complex64", "float64", "complex128"),
        ("float32", 2j, "complex64"),
    ],
)
def test_results_have_the_dtype_that_numpy_would_give(first, second, result):
    a = np.full(2, 3, first)
    b = np.full(2, 2, second) if isinstance(second, str) else second
    assert bind(sample_ops.multiply())(a, b).dtype == result == (a * b).dtype


def test_a_result_never_changes_dtype_because_a_rule_did():
    op = sample_ops.cube(rules="none")
    op.def_vjp(lambda xp, ct, out, x: (3 * x**2 * ct).astype(np.complex128))
    op.def_jvp(lambda xp, t, out, x: (3 * x**2 * t[0]).astype(np.float64))
    x = np.ones(2, np.float32)
    assert bind(op).vjp(x, x)[0].dtype == np.float32
    assert bind(op).jvp((x,), x).dtype == np.float32


def test_integer_and_boolean_inputs_have_no_gradient():
    gx, gk, flag = bind(sample_ops.pick()).vjp(1.0, np.arange(3.0), np.array(1), np.array(True))
    np.testing.assert_array_equal(gx, [0, 1, 0])
    assert gk is None and flag is None


def test_an_unused_output_has_a_zero_cotangent_and_a_hidden_one_none():
    seen = []
    np.testing.assert_array_equal(
        bind(sample_ops.moments(seen)).vjp((0.0, 1.0), np.arange(3.0))[0], 2 * np.arange(3.0)
    )
    assert len(seen[0]) == 2
    seen.clear()
    bind(sample_ops.softplus_hidden(seen)).vjp(1.0, 0.3)
    assert seen[0][1] is None


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda xp, ct, out, x, s, b: (ct,), "returned 1 values; expected 3"),
        (lambda xp, ct, out, x, s, b: (ct[None] * np.ones((5, 1)), s, b), r"\(5, 3\) for x"),
        (lambda xp, ct, out, x, s, b: (ct, ct, b), r"shape \(3,\) for s"),
    ],
)
def test_a_vjp_of_wrong_count_or_shape_raises(rule, text):
    with pytest.raises(RuleError, match=rf"affine \(n\),\(\),\(\)->\(n\): its vjp.*{text}"):
        bind(sample_ops.affine(rule)).vjp(np.ones(3), np.ones(3), 2.0, 1.0)


BATCHES = [(), (1,), (4,), (2, 1), (2, 4), (0,), (3, 2, 4)]


@pytest.mark.parametrize(("x_batch", "s_batch"), itertools.product(BATCHES, BATCHES))
def test_a_host_function_sees_one_batch_dimension_read_only_and_contiguous(x_batch, s_batch):
    energy, recorder = sample_ops.host_energy()
    x = np.asfortranarray(np.arange(3.0 * np.prod(x_batch, dtype=int)).reshape(*x_batch, 3))
    s = np.arange(1.0 + np.prod(s_batch, dtype=int))[1:].reshape(s_batch)
    try:
        batch = np.broadcast_shapes(x_batch, s_batch)
    except ValueError:
        with pytest.raises(ValueError, match="do not broadcast"):
            bind(energy)(x, s)
        return
    out = bind(energy)(x, s)
    np.testing.assert_allclose(out, (x * x).sum(-1) * s)
    assert out.shape == batch
    gx, gs = bind(energy).vjp(np.ones(batch), x, s)
    assert gx.shape == x.shape and gs.shape == s.shape
    size = np.prod(batch, dtype=int)
    for call in recorder.calls + recorder.adjoint_calls:
        for a in call:
            assert a.shape[0] in (1, size) and a.flags.c_contiguous and not a.flags.writeable
            assert a.ndim in (1, 2)


def test_complex_rules_are_plain_transposes():
    ga, gb = bind(sample_ops.multiply()).vjp(1j, 1 + 2j, 3 - 1j)
    assert ga == 1j * (3 - 1j) and gb == 1j * (1 + 2j)
    ga, _ = bind(sample_ops.multiply()).vjp(1j, 2.0, 3 - 1j)
    assert ga == 1 and not np.iscomplexobj(ga)


@pytest.mark.parametrize("host", [False, True])
def test_a_missing_rule_is_named(host):
    @define("()->()", host=host)
    def bare(xp, x):
        return x

    with pytest.raises(MissingRuleError, match=r"bare \(\)->\(\).*def_vjp"):
        bind(bare).vjp(1.0, 1.0)


@pytest.mark.parametrize("value", [[1.0], "x", None, {"a": 1}])
def test_an_argument_that_is_no_array_is_named(value):
    with pytest.raises(ArgumentError, match=rf"cube \(\)->\(\): x is a {type(value).__name__}"):
        bind(sample_ops.cube())(value)


def test_the_wrong_number_of_cotangents_or_tangents_is_explained():
    moments, dot = bind(sample_ops.moments()), bind(sample_ops.dot())
    with pytest.raises(ArgumentError, match="moments .*expected 2 cotangents, found 1"):
        moments.vjp((1.0,), np.ones(3))
    with pytest.raises(ArgumentError, match="dot .*expected 2 tangents, found 1"):
        dot.jvp((np.ones(3),), np.ones(3), np.ones(3))
