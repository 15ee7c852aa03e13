"""NumPy code by request: adjoints that see `out`, and differences for some arguments only."""

import pickle

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_side, side_of
from twingrad.interop import (
    ArgumentError,
    Host,
    MissingRuleError,
    SignatureError,
    complex_step,
    finite_difference,
    from_jacobian,
    from_numpy,
)
from twingrad.interop.check import check

X, THETA = np.array([0.3, -1.2, 2.0]), np.array(0.7)
EXACT = (2 * X * np.sin(THETA), np.cos(THETA) * np.sum(X**2))
WAYS = {"differences": finite_difference, "complex step": complex_step}
each_way = pytest.mark.parametrize("way", WAYS)


def simulate(x, theta):
    """sin(theta) sum x^2, for a batch or for one sample."""
    return np.sin(theta) * (x * x).sum(-1)


def in_the_state(ct, x, theta):
    return 2 * x * (ct * np.sin(theta))[..., None], None


class Counted:
    def __init__(self, function):
        self.function, self.sizes = function, []

    def __call__(self, x, theta):
        self.sizes.append(max(len(x), len(theta)))
        return self.function(x, theta)


@each_side
@each_way
def test_only_what_is_wanted_is_perturbed(framework, way):
    side, counted = side_of(framework), Counted(simulate)
    f = side.function(WAYS[way](counted, signature="(n),()->()"))
    central = 2 if way == "differences" else 1
    for argnums, numbers in ((0, 3), (1, 1), ((0, 1), 4)):
        counted.sizes.clear()
        found = side.once(side.grad(f, argnums=argnums))(side.array(X), side.array(THETA))
        wanted = [EXACT[argnums]] if isinstance(argnums, int) else EXACT
        for g, want in zip(found if len(wanted) > 1 else [found], wanted, strict=True):
            np.testing.assert_allclose(as_numpy(g), want, rtol=1e-8)
        assert max(counted.sizes) == central * numbers, argnums


@each_side
@each_way
@pytest.mark.parametrize("argnums", ["theta", 1, ["theta"], -1])
def test_numeric_in_one_argument_and_written_for_another(framework, way, argnums):
    side, counted, calls = side_of(framework), Counted(simulate), []

    def adjoint(ct, x, theta, *, needs):
        calls.append(tuple(needs))
        return in_the_state(ct, x, theta)

    op = WAYS[way](counted, signature="(n),()->()", argnums=argnums, vjp=adjoint)
    f, x, theta = side.function(op), side.array(X), side.array(THETA)
    both = side.once(side.grad(f, argnums=(0, 1)))(x, theta)
    np.testing.assert_array_equal(as_numpy(both[0]), in_the_state(np.array(1.0), X, THETA)[0])
    np.testing.assert_allclose(as_numpy(both[1]), EXACT[1], rtol=1e-8)
    assert calls == [(True, False)]
    side.once(side.grad(f, argnums=1))(x, theta)
    assert len(calls) == 1  # the written one is not called for theta
    counted.sizes.clear()
    side.once(side.grad(f))(x, theta)
    assert max(counted.sizes, default=1) == 1  # nor are differences taken for the state
    many = side.once(side.vmap(side.grad(f, argnums=1), (0, None)))(side.array([X, 2 * X]), theta)
    np.testing.assert_allclose(as_numpy(many), EXACT[1] * np.array([1, 4]), rtol=1e-8)


@pytest.mark.parametrize("vectorize", [False, True])
def test_the_doctor_passes_it_with_forward_mode_by_rows(vectorize):
    op = finite_difference(
        simulate,
        signature="(n),()->()",
        argnums="theta",
        vjp=in_the_state,
        host=Host(vectorize=vectorize),
        step=1e-5,
    )
    with pytest.raises(MissingRuleError, match="its jvp has no formula for x"):
        bound("numpy", op).jvp((X, None), X, THETA)
    assert bound("numpy", op).jvp((None, 1.0), X, THETA) == pytest.approx(EXACT[1])
    op.def_jvp_by_rows()
    for made in (op, pickle.loads(pickle.dumps(op))):
        assert check(made, X, THETA, framework=None).passed


@each_way
def test_without_a_written_one_the_other_gradients_raise(way):
    op = WAYS[way](simulate, signature="(n),()->()", argnums="theta")
    vjp = bound("numpy", op).vjp
    assert vjp(1.0, X, THETA, wanted=["theta"])[1] == pytest.approx(EXACT[1])
    with pytest.raises(MissingRuleError, match="no formula for x"):
        vjp(1.0, X, THETA)


@each_way
@pytest.mark.parametrize("argnums", ["t", 2, -3, ["theta", "t"]])
def test_an_argument_that_is_none_is_named(way, argnums):
    with pytest.raises(ArgumentError, match=r"simulate .*argnums has .* it takes x, theta"):
        WAYS[way](simulate, signature="(n),()->()", argnums=argnums)


def test_a_written_one_of_another_length_raises():
    op = finite_difference(
        simulate, signature="(n),()->()", argnums=1, vjp=lambda ct, x, theta: (ct, ct, ct)
    )
    with pytest.raises(ValueError, match="returned 3 values; expected 2"):
        bound("numpy", op).vjp(1.0, X, THETA)


def rooted(x):
    return np.sqrt(x)


def by_out(ct, x, *, out):
    return ct / (2 * out)


HOSTS = {"batches": True, "one by one": Host(vectorize=True)}


@each_side
@pytest.mark.parametrize("host", HOSTS)
def test_an_adjoint_sees_out(framework, host):
    side = side_of(framework)
    op = from_numpy(
        rooted,
        signature="()->()",
        vjp=by_out,
        jvp=lambda tangents, x, *, out: tangents[0] / (2 * out),
        host=HOSTS[host],
    )
    f, x = side.function(op), side.array([1.0, 4.0, 16.0])
    want = [0.5, 0.25, 0.125]
    np.testing.assert_allclose(as_numpy(side.once(side.grad(lambda x: f(x).sum()))(x)), want)
    np.testing.assert_allclose(as_numpy(side.once(side.vmap(side.grad(f)))(x)), want)
    pushed = side.once(lambda x, t: side.jvp(f, (x,), (t,))[1])(x, x)
    np.testing.assert_allclose(as_numpy(pushed), want * as_numpy(x))
    if framework == "torch":
        compiled = side.compiler("aot_eager")(side.grad(lambda x: f(x).sum()))
        np.testing.assert_allclose(as_numpy(compiled(x)), want)


def test_several_outputs_are_a_tuple_and_needs_goes_with_it():
    seen = []

    def adjoint(ct, x, s, *, out, needs):
        seen.append(tuple(needs))
        assert isinstance(out, tuple)
        return ct[0] * out[0] + ct[1] * s, ct[1] * x if needs.s else None

    op = from_numpy(lambda x, s: (np.exp(x), x * s), signature="(),()->(),()", vjp=adjoint)
    found = bound("numpy", op).vjp((1.0, 1.0), np.array(0.5), np.array(3.0), wanted=["x"])
    np.testing.assert_allclose(found[0], np.exp(0.5) + 3)
    assert seen == [(True, False)]


@each_side
def test_a_jacobian_sees_out(framework):
    side = side_of(framework)

    def f(x, *, k=1.0):
        return np.exp(k * x)

    def jac(x, *, out, k=1.0):
        return np.diag(k * out)

    def hess(x, *, k=1.0):
        return np.einsum("ij,jk->ijk", np.diag(k**2 * np.exp(k * x)), np.eye(len(x)))

    x, want = side.array(X), np.exp(2 * X)
    for second in (None, hess):
        op = from_jacobian(f, jac, signature="(n)->(n)", hess=second)
        bare = bound(framework, op)

        def call(x, bare=bare):
            return bare(x, k=2.0)

        for jacobian in (side.jacrev, side.jacfwd):
            np.testing.assert_allclose(as_numpy(side.once(jacobian(call))(x)), np.diag(2 * want))
        gradient = side.grad(lambda x, call=call: call(x).sum())
        for outer in (side.jacrev, side.jacfwd):
            if second is None:
                with pytest.raises(Exception, match="hess"):
                    as_numpy(outer(gradient)(x))
            else:
                got = as_numpy(side.once(outer(gradient))(x))
                np.testing.assert_allclose(got, np.diag(4 * want))


def test_a_static_parameter_called_out_is_refused_where_a_rule_asks():
    def f(x, *, out=None):
        return x

    with pytest.raises(SignatureError, match="'out' is a static parameter"):
        from_numpy(f, signature="()->()", vjp=lambda ct, x, *, out: ct)
    with pytest.raises(SignatureError, match="'out' is a static parameter"):
        from_jacobian(f, lambda x, *, out: x, signature="()->()")
    assert bound("numpy", from_numpy(f, signature="()->()"))(2.0) == 2.0
