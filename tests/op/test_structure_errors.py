"""Errors of structured arguments name the array that is meant, by its path."""

import re

import numpy as np
import pytest

from tests.op.test_result_dtypes import bound, each_binder, given
from tests.structured_ops import Plain, of_numpy
from twingrad.interop import (
    ArgumentError,
    MissingRuleError,
    RuleError,
    ShapeError,
    SignatureError,
    define,
    finite_difference,
    from_jacobian,
    from_linear,
    from_numpy,
    unknown,
)

SIMULATE = "{rate: (), shift: (n)}, (t), (n)? -> (t)"


def simulate(xp, params, t, offset=None):
    return params["rate"][..., None] * t


op = define(SIMULATE)(simulate)
layers = define("[{w: (_,_), b: (_)}, ...], (n) -> (n)")(lambda xp, layers, x: x)
pair = define("[(), (n)] -> (n)")(lambda xp, pair: pair[1])
names = define("{...: (n)} -> (n)")(lambda xp, parts: next(iter(parts.values())))
several = define("(n)... -> (n)")(lambda xp, *xs: xs[0])


def ok(n=3):
    return np.ones(n)


CALLS = {
    "a missing field": (op, lambda x: ({"rate": 1.0}, x(3)), "params.shift is missing"),
    "a missing argument": (op, lambda x: ({"rate": 1.0, "shift": x(3)},), "argument 't' is miss"),
    "an array for a dict": (op, lambda x: (x(3), x(3)), "params is a .*; expected a dict or an o"),
    "a list for a dict": (op, lambda x: ([x(3)], x(3)), "params is a list; expected a dict"),
    "None for a dict": (op, lambda x: (None, x(3)), "params is a NoneType; expected a dict"),
    "a string for an array": (
        op,
        lambda x: ({"rate": "fast", "shift": x(3)}, x(3)),
        "params.rate is a str; expected",
    ),
    "an array that has no name": (
        op,
        lambda x: ({"rate": 1.0, "shift": x(3), "grid": x(4)}, x(3)),
        "params.grid is an array that the signature does not name",
    ),
    "an array in a field": (
        op,
        lambda x: (Plain(1.0, x(3), x(2)), x(3)),
        "params.power is an array that the signature does not name",
    ),
    "a list in a field": (op, lambda x: (Plain(1.0, x(3), [1]), x(3)), "params.power is a list"),
    "a function with an array": (
        op,
        lambda x: ({"rate": 1.0, "shift": x(3), "f": (lambda y: lambda: y)(x(2))}, x(3)),
        "params.f.* holds a",
    ),
    "a shape": (
        op,
        lambda x: ({"rate": 1.0, "shift": x(3)}, x(3), x(2)),
        r"dimension n is 3 in params.shift \(shape \(3,\)\) but 2 in offset",
    ),
    "a rank": (op, lambda x: ({"rate": 1.0, "shift": 1.0}, x(3)), r"params.shift has shape \(\)"),
    "an unknown keyword": (
        op,
        lambda x: ({"rate": 1.0, "shift": x(3)}, x(3), {"colour": 1}),
        "unknown argument 'colour'; it takes params, t, offset",
    ),
    "in a list": (
        layers,
        lambda x: ([{"w": x(3), "b": x(3)}, {"w": x(3)}], x(3)),
        r"layers\[1\].b is missing",
    ),
    "a rank in a list": (
        layers,
        lambda x: ([{"w": x(3), "b": x(3)}], x(3)),
        r"layers\[0\].w has shape \(3,\)",
    ),
    "no list": (layers, lambda x: (x(3), x(3)), "layers is a .*; expected a list or tuple"),
    "another length": (pair, lambda x: ([x(3)],), "pair is a list of 1; expected a list or tup"),
    "keys that are no names": (names, lambda x: ({0: x(3)},), "expected a dict whose keys are st"),
    "one of several": (several, lambda x: (x(3), "no"), r"xs\[1\] is a str"),
    "the shape of one of several": (several, lambda x: (x(3), x(2)), r"but 2 in xs\[1\]"),
}


@each_binder
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_does_not_fit_says_where(framework, name):
    op, make, text = CALLS[name]
    args = make(lambda n: given(framework, np.ones(n)))
    kwargs = args[-1] if isinstance(args[-1], dict) and "colour" in args[-1] else {}
    if "holds a" in text and framework == "numpy":
        pytest.skip("arrays of NumPy never have a gradient")
    with pytest.raises((ArgumentError, ShapeError), match=text) as caught:
        bound(framework, op)(*(args[:-1] if kwargs else args), **kwargs)
    assert str(caught.value).startswith(op.label + ":"), "it names the op and its signature"
    assert op.notation.text in op.label


RULES = {
    "nothing for a leaf": (lambda ct, p, t, o: ({"rate": 1.0 * ct[..., 0]}, ct, o), "params.shift"),
    "another name": (
        lambda ct, p, t, o: ({"rate": None, "shift": None, "shfit": ct}, ct, o),
        "something for params.shfit, which is no argument; expected rate, shift",
    ),
    "an array for a dict": (lambda ct, p, t, o: (ct, ct, o), "for params; expected one with rate"),
    "a dict for an array": (lambda ct, p, t, o: (None, {"t": ct}, o), "a dict for t; expected an"),
    "too few": (lambda ct, p, t, o: (None, ct), "2 values; expected a tuple of 3"),
    "a shape": (
        lambda ct, p, t, o: ({"rate": ct, "shift": None}, ct, o),
        r"gradient of shape \(4,\) for params.rate of shape \(\)",
    ),
}


@each_binder
@pytest.mark.parametrize("host", [False, True], ids=["array", "host"])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_returns_another_structure_says_where(framework, host, name):
    rule, text = RULES[name]
    made = define(SIMULATE, host=host)(simulate)
    made.def_vjp(lambda xp, ct, out, params, t, offset: rule(ct, params, t, offset))
    if host and name == "a shape":
        text = "params.rate|shape"
    with pytest.raises((RuleError, Exception), match=text):
        gradients(framework, made)


def gradients(framework, op):
    """The gradients in the rate and in t, by whatever the framework has."""
    f = bound(framework, op)
    x = [given(framework, v) for v in (np.array(2.0), np.ones(3), np.ones(4))]
    if framework == "numpy":
        return f.vjp(np.ones(4), {"rate": x[0], "shift": x[1]}, x[2])
    if framework == "torch":
        import torch

        return torch.func.grad(lambda r, s, t: f({"rate": r, "shift": s}, t).sum(), (0, 1, 2))(*x)
    import jax

    return jax.grad(lambda r, s, t: f({"rate": r, "shift": s}, t).sum(), (0, 1, 2))(*x)


@each_binder
def test_a_gradient_that_has_no_formula_raises_by_its_path(framework):
    made = define(SIMULATE)(simulate)
    made.def_vjp(lambda xp, ct, out, params, t, offset: (unknown, ct, None))
    with pytest.raises(MissingRuleError, match=r"no formula for params\.rate"):
        gradients(framework, made)


@each_binder
def test_none_for_an_argument_is_zero_in_all_of_it(framework):
    made = define(SIMULATE)(simulate)
    made.def_vjp(lambda xp, ct, out, params, t, offset: (None, ct, None))
    found = gradients(framework, made)
    if framework == "numpy":
        assert found[0] == {"rate": None, "shift": None} and found[2] is None
    else:
        assert not np.asarray(found[1]).any()


DEFINITIONS = {
    "another name": (lambda: define("p: {a: ()}, t: () -> ()")(lambda xp, q, t: t), "calls 'q'"),
    "too many": (lambda: define("{a: ()} -> ()")(lambda xp, q, t: t), "takes 2 .* signature has 1"),
    "a star in the signature alone": (lambda: define("()... -> ()")(lambda xp, x: x), r"\*xs"),
    "a vjp of another arity": (
        lambda: from_numpy(lambda p: p, signature="{a: ()} -> ()", vjp=lambda ct, p, q: ct),
        "its vjp takes 2 arguments .*; the signature has 1",
    ),
    "no result": (
        lambda: from_numpy(len, signature="{a: ()} -> "),
        "no",
    ),
    "a rule of another arity": (
        lambda: define(SIMULATE)(simulate).def_vjp(lambda xp, ct, out, params: None),
        "its vjp takes 1 arguments .*; the signature has 3",
    ),
    "unknown names": (
        lambda: define(SIMULATE)(simulate).def_jvp(
            lambda xp, tangents, out, params, t, offset: None, unknown=("params.rat",)
        ),
        "unknown has 'params.rat', which is no argument",
    ),
    "linear names": (
        lambda: define(SIMULATE, linear="params.rat")(simulate),
        "linear has 'params.rat', which is no argument",
    ),
    "argnums": (
        lambda: finite_difference(of_numpy(simulate), signature=SIMULATE, argnums="params.rat"),
        "argnums has 'params.rat', which is no argument",
    ),
    "a place": (
        lambda: finite_difference(of_numpy(simulate), signature=SIMULATE, argnums=7),
        "argnums has 7, which is no argument",
    ),
    "a size in no argument": (
        lambda: define("{a: (n)} -> (m)")(lambda xp, p: p),
        "size m is in no",
    ),
    "a size of its own in a result": (
        lambda: define("{a: (_)} -> (_)")(lambda xp, p: p),
        "cannot have the size _",
    ),
    "a dtype": (lambda: define("{a: ()} -> ()", dtypes="re")(lambda xp, p: p), "dtypes has 're'"),
    "two fields of one name": (lambda: define("{a: (), a: ()} -> ()"), "not a signature"),
    "an open bracket": (lambda: define("{a: () -> ()"), r"written as in \"\{rate"),
    "a hessian": (
        lambda: from_jacobian(len, len, hess=len, signature="{a: ()} -> ()"),
        "from_jacobian's hess does not take",
    ),
    "what is no function": (lambda: from_numpy(3, signature="{a: ()} -> ()"), "f is a int"),
    "an adjoint of another arity": (
        lambda: from_linear(lambda p: p, lambda y, z: y, signature="{a: ()} -> ()"),
        "its adjoint takes 1 arguments .*; the signature has 0",
    ),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_that_does_not_fit_is_refused_at_once(name):
    make, text = DEFINITIONS[name]
    with pytest.raises((SignatureError, ArgumentError), match=text):
        make()


def test_no_message_shows_how_structures_are_kept():
    with pytest.raises(ArgumentError) as caught:
        bound("numpy", op)({"rate": 1.0}, np.ones(3))
    assert not re.search(r"frame|key|leaf|skeleton", str(caught.value))
