"""Defining an op: its function, its rules, its static parameters, and the errors of each."""

import inspect
import pickle

import numpy as np
import pytest

from tests import sample_ops
from twingrad.interop import (
    ArgumentError,
    MissingRuleError,
    Op,
    RuleError,
    SignatureError,
    TwingradError,
    define,
)
from twingrad.interop.numpy import bind


def test_the_function_must_have_one_parameter_per_input():
    with pytest.raises(SignatureError, match="expected xp and 2 inputs"):
        define("(n),()->()")(lambda xp, x: x)


def test_the_function_must_take_xp():
    with pytest.raises(SignatureError):
        define("()->()")(lambda x: x)


@pytest.mark.parametrize("kind", ["def_vjp", "def_jvp"])
def test_a_rule_must_have_one_parameter_per_input(kind):
    op = sample_ops.dot()
    with pytest.raises(SignatureError, match="2 inputs") as caught:
        getattr(op, kind)(lambda xp, ct, out, x: x)
    assert "dot (n),(n)->()" in str(caught.value)


def test_a_rule_may_take_its_inputs_as_a_list():
    op = sample_ops.dot()
    op.def_vjp(lambda xp, ct, out, *inputs: (ct[..., None] * inputs[1], None))
    gx, gy = bind(op).vjp(np.float64(2), np.ones(3), np.arange(3.0))
    assert gy is None or not np.any(gy)
    np.testing.assert_array_equal(gx, 2 * np.arange(3.0))


def test_define_without_a_signature_says_how_to_write_it():
    with pytest.raises(SignatureError, match="signature in the brackets"):

        @define
        def op(xp, x):
            return x


@pytest.mark.parametrize("hidden", [-1, 1, 2])
def test_at_least_one_output_must_be_visible(hidden):
    with pytest.raises(SignatureError, match=f"hidden={hidden}"):
        define("()->()", hidden=hidden)


def test_hidden_outputs_are_the_last_ones_and_are_not_returned():
    op = sample_ops.softplus_hidden()
    assert op.visible == 1 and op.hidden == 1
    assert bind(op)(0.0) == pytest.approx(np.log(2))
    assert op.label == "softplus ()->()"


@pytest.mark.parametrize("brackets", [False, True])
@pytest.mark.parametrize("kind", ["def_vjp", "def_jvp"])
def test_rules_can_be_set_by_decorator_with_and_without_brackets_and_by_call(kind, brackets):
    op = sample_ops.cube(rules="none")

    def rule(xp, seed, out, x):
        return 5 * (seed[0] if kind == "def_jvp" else seed)

    found = getattr(op, kind)()(rule) if brackets else getattr(op, kind)(rule)
    assert found is rule
    assert bind(op).vjp(1.0, 2.0) == (5.0,) if kind == "def_vjp" else True
    assert bind(op).jvp((1.0,), 2.0) == 5.0 if kind == "def_jvp" else True


def test_a_rule_replaced_after_binding_is_the_one_that_runs():
    op = sample_ops.cube()
    assert bind(op).vjp(1.0, 1.0) == (3.0,)
    op.def_vjp(lambda xp, ct, out, x: 7 * ct)
    assert bind(op).vjp(1.0, 1.0) == (7.0,)


def test_another_op_can_be_the_vjp():
    @define("(),()->()")
    def slope(xp, ct, x):
        return 100 * ct * x**2

    op = sample_ops.cube(rules="none")
    assert op.def_vjp(slope) is slope
    assert bind(op).vjp(1.0, 2.0) == (400.0,)


@pytest.mark.parametrize("kind", ["def_vjp", "def_jvp"])
def test_another_op_as_a_rule_must_fit_the_signature(kind):
    @define("(),(),()->()")
    def wrong(xp, a, b, c):
        return a

    with pytest.raises(TwingradError, match="cube"):
        getattr(sample_ops.cube(rules="none"), kind)(wrong)


def test_a_host_op_may_have_rules_that_are_not_on_the_host():
    op = sample_ops.host_sin()
    assert not op.vjp_on_host
    assert bind(op).vjp(2.0, 0.5)[0] == pytest.approx(2 * np.cos(0.5))
    assert sample_ops.host_sin(second=False).vjp_on_host


def test_static_parameters_have_defaults_and_are_handed_to_the_rules():
    power = bind(sample_ops.power())
    assert power(3.0) == 9.0 and power(3.0, p=3.0) == 27.0
    assert power.vjp(1.0, 3.0, p=3.0) == (27.0,)


def test_a_missing_static_parameter_is_named():
    @define("()->()")
    def needs(xp, x, *, p):
        return x**p

    assert bind(needs)(2.0, p=3) == 8.0
    with pytest.raises(ArgumentError, match=r"needs .*'p' is missing"):
        bind(needs)(2.0)


def test_an_unknown_argument_is_named_with_the_known_ones():
    with pytest.raises(ArgumentError, match=r"unknown argument 'q'.*x, p"):
        bind(sample_ops.power())(1.0, q=2)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, np.ones(2)])
def test_an_unhashable_static_parameter_is_refused_with_its_type(value):
    with pytest.raises(ArgumentError, match="hashable") as caught:
        bind(sample_ops.power())(1.0, p=value)
    assert type(value).__name__ in str(caught.value)


def test_array_arguments_can_be_given_by_keyword_in_any_order():
    dot = bind(sample_ops.dot())
    x, y = np.arange(3.0), np.ones(3)
    assert dot(y=y, x=x) == dot(x, y=y) == dot(x, y)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((1.0,), {}, "'y' is missing"),
        ((), {"y": 1.0}, "'x' is missing"),
        ((1.0, 2.0, 3.0), {}, "found 3"),
        ((1.0, 2.0), {"x": 1.0}, "'x' was given twice"),
    ],
)
def test_wrong_arguments_are_told_apart(args, kwargs, text):
    with pytest.raises(ArgumentError, match=text) as caught:
        bind(sample_ops.dot())(*args, **kwargs)
    assert "dot (n),(n)->()" in str(caught.value)
    assert isinstance(caught.value, TypeError)


def test_an_argument_that_is_no_array_is_named_with_its_type():
    with pytest.raises(ArgumentError, match="y is a list"):
        bind(sample_ops.dot())(np.ones(2), [1.0, 2.0])


def test_an_op_without_rules_raises_for_each_mode():
    op = bind(sample_ops.cube(rules="none"))
    with pytest.raises(MissingRuleError, match=r"cube .*def_vjp"):
        op.vjp(1.0, 1.0)
    with pytest.raises(MissingRuleError, match=r"cube .*def_jvp"):
        op.jvp((1.0,), 1.0)
    assert issubclass(MissingRuleError, NotImplementedError)


@pytest.mark.parametrize("value", [lambda x: (x, x), lambda x: np.ones((*x.shape, 2))])
def test_a_function_that_breaks_its_promise_is_named(value):
    @define("()->()")
    def broken(xp, x):
        return value(x)

    with pytest.raises(RuleError, match=r"broken \(\)->\(\): its function returned"):
        bind(broken)(np.ones(3))


def test_the_bound_function_presents_the_op():
    power = sample_ops.power()
    found = bind(power)
    assert found is bind(power)
    assert found.__name__ == "power" and found.op is power
    assert "x^p" in sample_ops.power.__doc__ and "numpy.ndarray" in found.__doc__
    assert str(inspect.signature(found)) == "(x, *, p=2.0)"


def test_an_op_of_a_module_is_pickled_by_reference():
    op = sample_ops.module_level
    assert isinstance(op, Op)
    assert pickle.loads(pickle.dumps(op)) is op


def test_the_functions_of_the_package_are_pickled_by_reference():
    from twingrad.ops.numpy import log1mexp

    assert pickle.loads(pickle.dumps(log1mexp)) is log1mexp
