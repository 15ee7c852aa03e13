"""Ops from functions that stand already: from_numpy and from_jacobian, in both frameworks."""

import functools
import importlib

import numpy as np
import pytest
import scipy.optimize

from tests.closeness import as_numpy
from twingrad.interop import (
    ArgumentError,
    Host,
    MissingRuleError,
    RuleError,
    SignatureError,
    define,
    from_jacobian,
    from_numpy,
)

each_side = pytest.mark.parametrize("framework", ["torch", "jax"])
close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
ONE = Host(vectorize=True)


def side_of(framework):
    pytest.importorskip(framework)
    return importlib.import_module(f"tests.side_{framework}")


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0
        functools.update_wrapper(self, function)

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.function(*args, **kwargs)


def energy(x, s, *, power=2):
    """s sum |x|^power, for a batch."""
    return s * (x**power).sum(-1)


def energy_vjp(ct, x, s, *, power=2):
    weight = (ct * s)[:, None]
    return weight * power * x ** (power - 1), ct * (x**power).sum(-1)


X = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
S = np.array([2.0, 0.5])


@each_side
def test_a_function_with_its_adjoint_is_an_op(framework):
    side, f, back = side_of(framework), Counted(energy), Counted(energy_vjp)
    op = from_numpy(f, signature="(n),()->()", vjp=back)
    assert op.name == "energy" and op.names == ("x", "s") and "sum |x|^power" in op.__doc__
    g, (x, s) = side.function(op), map(side.array, (X, S))
    close(as_numpy(g(x, s)), energy(X, S))
    close(as_numpy(g(x, s, power=3)), energy(X, S, power=3))
    f.calls = 0
    found = side.vmap(side.grad(g, argnums=(0, 1)))(x, s)
    for got, want in zip(found, energy_vjp(np.ones(2), X, S), strict=True):
        close(as_numpy(got), want)
    assert back.calls == 1 and f.calls <= 1


@each_side
def test_forward_mode_by_rows_is_a_choice(framework):
    side = side_of(framework)

    def twist(x, s):
        return np.stack([x[:, 0] * s, x[:, 1] * x[:, 2]], -1)

    def twist_vjp(ct, x, s):
        first, second = ct[:, 0], ct[:, 1]
        gx = np.stack([first * s, second * x[:, 2], second * x[:, 1]], -1)
        return gx, first * x[:, 0]

    back = Counted(twist_vjp)
    op = from_numpy(twist, signature="(3),()->(2)", vjp=back)
    g, (x, s) = side.function(op), map(side.array, (X, S))
    tangents = side.array(np.ones((2, 3))), side.array(np.array([1.0, -1.0]))
    push = side.once(lambda x, s, t: side.jvp(g, (x, s), t)[1])
    with pytest.raises(MissingRuleError, match=r"twist .*def_jvp.*twist.def_jvp_by_rows\(\)"):
        push(x, s, tangents)
    op.def_jvp_by_rows()
    g, back.calls = side.function(op), 0
    want = np.stack([S + np.array([1.0, -1.0]) * X[:, 0], X[:, 1] + X[:, 2]], -1)
    close(as_numpy(push(x, s, tangents)), want)
    assert back.calls == 1
    jacobian = side.once(side.vmap(side.jacfwd(g)))(x, s)
    close(as_numpy(jacobian)[0], [[2, 0, 0], [0, 3, 2]])
    with pytest.raises(MissingRuleError, match="higher derivative"):
        side.once(side.jacfwd(side.jacfwd(g)))(x[0], s[0])


def rosen_both(x):
    return scipy.optimize.rosen(x), scipy.optimize.rosen_der(x)


FORMS = {
    "apart": lambda: (Counted(scipy.optimize.rosen), Counted(scipy.optimize.rosen_der)),
    "jac=True": lambda: (Counted(rosen_both), True),
}


@each_side
@pytest.mark.parametrize("form", FORMS)
def test_scipy_s_own_form_is_an_op_with_both_modes(framework, form):
    side, (f, jac) = side_of(framework), FORMS[form]()
    op = from_jacobian(f, jac, signature="(n)->()", hess=scipy.optimize.rosen_hess)
    g, x = side.function(op), side.array(X)
    slope = np.stack([scipy.optimize.rosen_der(x) for x in X])
    close(as_numpy(g(x)), [scipy.optimize.rosen(x) for x in X])
    f.calls = 0
    close(as_numpy(side.vmap(side.grad(g))(x)), slope)
    if form == "jac=True":
        assert f.calls == 0  # kept from the value before
        fresh = side.array(X + 1)
        side.REFERENCE_REVERSE(g, side.array(np.ones(2)), (fresh,))
        assert f.calls == 2  # two samples
    else:
        assert jac.calls == 2
    close(as_numpy(side.jvp(g, (x,), (side.array(np.ones((2, 3))),))[1]), slope.sum(-1))
    for outer in (side.jacrev, side.jacfwd):
        for inner in (side.jacrev, side.jacfwd):
            found = side.once(outer(inner(g)))(side.array(X[0]))
            close(as_numpy(found), scipy.optimize.rosen_hess(X[0]))
    with pytest.raises(MissingRuleError, match="rosen"):
        side.once(
            side.grad(lambda x: side.LIB.sum(side.grad(lambda x: side.LIB.sum(side.grad(g)(x)))(x)))
        )(side.array(X[0]))


@each_side
def test_without_a_hess_a_second_derivative_raises(framework):
    side = side_of(framework)
    op = from_jacobian(scipy.optimize.rosen, scipy.optimize.rosen_der, signature="(n)->()")
    g, x = side.function(op), side.array(X[0])
    for outer in (side.jacrev, side.jacfwd):
        for inner in (side.grad, side.jacfwd):
            with pytest.raises(MissingRuleError, match=r"rosen.*from_jacobian a hess"):
                side.once(outer(inner(g)))(x)


def residuals(p, t, y):
    """y - p0 exp(-p1 t)"""
    return y - p[0] * np.exp(-p[1] * t)


def residuals_jac(p, t, y):
    decay = np.exp(-p[1] * t)
    by_t = np.diag(p[0] * p[1] * decay)
    return np.stack([-decay, p[0] * t * decay], -1), by_t, np.eye(len(t))


@each_side
def test_a_jacobian_of_several_inputs_and_a_vector_of_outputs(framework):
    side = side_of(framework)
    op = from_jacobian(residuals, residuals_jac, signature="(2),(m),(m)->(m)")
    g = side.function(op)
    raw = np.array([2.0, 0.5]), np.linspace(0, 1, 4), np.ones(4)
    x, want = tuple(map(side.array, raw)), residuals_jac(*raw)
    for jacobian in (side.jacrev, side.jacfwd):
        for got, j in zip(side.once(jacobian(g, argnums=(0, 1, 2)))(*x), want, strict=True):
            close(as_numpy(got), j)
    many = side.vmap(g, (None, 0, None))(x[0], side.array(np.stack([raw[1]] * 3)), x[2])
    close(as_numpy(many), np.stack([residuals(*raw)] * 3))


@each_side
def test_a_batched_jacobian_is_called_once(framework):
    side = side_of(framework)
    f = Counted(lambda x: ((x**3).sum(-1), 3 * x**2))
    g = side.function(from_jacobian(f, True, signature="(n)->()", host=True, name="cubes"))
    close(as_numpy(side.vmap(side.grad(g))(side.array(X))), 3 * X**2)
    assert f.calls == 1


def test_what_does_not_fit_is_explained():
    with pytest.raises(SignatureError, match=r"energy \(n\)->\(\): its function cannot take 1"):
        from_numpy(energy, signature="(n)->()")
    with pytest.raises(SignatureError, match=r"energy .*its vjp cannot take 3"):
        from_numpy(energy, signature="(n),()->()", vjp=lambda ct, x: x)
    with pytest.raises(ArgumentError, match="f is a float; expected a function"):
        from_numpy(1.0, signature="(n)->()")
    with pytest.raises(ArgumentError, match="rosen .*jac is a ndarray; expected a function"):
        from_jacobian(scipy.optimize.rosen, np.ones(3), signature="(n)->()")
    with pytest.raises(SignatureError, match="one output"):
        from_jacobian(energy, energy, signature="(n)->(),()")
    with pytest.raises(SignatureError, match="hess is for one input"):
        from_jacobian(energy, energy, signature="(n),()->()", hess=energy)


def test_a_jacobian_of_the_wrong_shape_is_named():
    torch = pytest.importorskip("torch")
    side = side_of("torch")
    op = from_jacobian(scipy.optimize.rosen, lambda x: x[:2], signature="(n)->()", name="short")
    with pytest.raises(RuleError, match=r"short.jac \(n\)->\(n\).*shape \(1, 2\)"):
        torch.func.grad(side.function(op))(side.array(X[0]))


def test_a_built_in_function_and_a_ufunc_are_taken():
    side = side_of("torch")
    f = side.function(from_numpy(np.hypot, signature="(),()->()"))
    assert float(f(side.array(3.0), side.array(4.0))) == 5


@each_side
@pytest.mark.parametrize("host", [Host(finite=True), Host(finite=True, vectorize=True)])
def test_a_result_that_is_not_finite_raises_where_that_is_asked(framework, host):
    side = side_of(framework)

    @define("()->()", host=host)
    def inverse(xp, x):
        with np.errstate(divide="ignore"):
            return 1 / x

    with pytest.raises(Exception, match=r"inverse \(\)->\(\).*not finite for sample 1 of 3"):
        as_numpy(side.function(inverse)(side.array(np.array([1.0, 0.0, 2.0]))))
    close(as_numpy(side.function(inverse)(side.array(np.array([2.0])))), [0.5])
