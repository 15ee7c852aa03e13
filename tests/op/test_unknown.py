"""A rule says that it has no formula for an argument: that gradient raises, and no other does."""

import pickle

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_side, side_of
from twingrad.interop import Host, MissingRuleError, SignatureError, define, from_numpy, unknown
from twingrad.interop.check import check

X, S = np.array([1.0, 2.0, 3.0]), np.array(0.5)
HOSTS = {"array": False, "host": True, "host, one by one": Host(vectorize=True)}


def energy(host, missing=unknown, **options):
    """s^2 sum x^2, with no formula for s."""

    @define("(n),()->()", host=host)
    def energy(xp, x, s):
        return s * s * (x * x).sum(-1)

    @energy.def_vjp
    def _(xp, ct, out, x, s):
        return 2 * x * (ct * s * s)[..., None], missing

    if options.get("rows"):
        energy.def_jvp_by_rows()
    return energy


every_host = pytest.mark.parametrize("host", HOSTS)


@each_side
@every_host
def test_the_gradient_of_that_argument_raises_and_others_do_not(framework, host):
    side = side_of(framework)
    f, x, s = side.function(energy(HOSTS[host])), side.array(X), side.array(S)
    np.testing.assert_allclose(as_numpy(side.once(side.grad(f))(x, s)), 0.5 * X)
    many = side.once(side.vmap(side.grad(f), (0, None)))(side.array(np.stack([X, 2 * X])), s)
    np.testing.assert_allclose(as_numpy(many), [0.5 * X, X])
    for argnums in (1, (0, 1)):
        with pytest.raises(
            Exception, match=r"energy \(n\),\(\)->\(\): its vjp has no formula for s"
        ):
            as_numpy(side.once(side.grad(f, argnums=argnums))(x, s)[-1])


@each_side
def test_eager_gradients_raise_the_type_of_ours(framework):
    side = side_of(framework)
    for host in HOSTS.values():
        f, x, s = side.function(energy(host)), side.array(X), side.array(S)
        with pytest.raises(MissingRuleError, match="no formula for s"):
            side.grad(f, argnums=1)(x, s)


@each_side
def test_a_gradient_that_falls_off_before_the_argument_is_not_asked_for(framework):
    side = side_of(framework)
    f, x = side.function(energy(True)), side.array(X)
    got = side.grad(lambda x: f(x, side.array(S)))(x)
    np.testing.assert_allclose(as_numpy(got), 0.5 * X)


def test_backward_and_compiled_in_torch():
    torch = pytest.importorskip("torch")
    side = side_of("torch")
    for host in (True, False):
        f = side.function(energy(host))
        x, s = (side.array(v).requires_grad_() for v in (X, S))
        f(x, s.detach()).backward()
        assert x.grad.tolist() == [0.5, 1.0, 1.5]
        with pytest.raises(MissingRuleError, match="no formula for s"):
            f(x, s).backward()
        compiled = side.compiler("aot_eager")
        got = compiled(torch.func.grad(f))(side.array(X), side.array(S))
        assert got.tolist() == [0.5, 1.0, 1.5]


def test_the_bare_custom_vjp_and_jit_in_jax():
    jax = pytest.importorskip("jax")
    for host in (True, False):
        bare = bound("jax", energy(host)).custom_vjp
        by_x, by_s = jax.grad(lambda *a, f=bare: f(*a)[0]), jax.grad(lambda s, f=bare: f(X, s)[0])
        for wrap in (jax.jit, lambda g: g):
            got = wrap(by_x)(X, S)
            np.testing.assert_allclose(got, 0.5 * X)
            with pytest.raises(Exception, match="no formula for s"):
                as_numpy(wrap(by_s)(S))


@each_side
@pytest.mark.parametrize("host", [True, False])
def test_forward_mode_that_follows_from_the_vjp_knows_it_too(framework, host):
    side = side_of(framework)
    f, x, s = side.function(energy(host, rows=host)), side.array(X), side.array(S)

    def push(x, t):
        return side.jvp(lambda x: f(x, s), (x,), (t,))[1]

    assert float(side.once(push)(x, x)) == pytest.approx(7.0)
    with pytest.raises(Exception, match="its vjp has no formula for s"):
        as_numpy(side.once(lambda s: side.jvp(lambda s: f(x, s), (s,), (s,))[1])(s))


@each_side
@pytest.mark.parametrize("host", [True, False])
def test_a_jvp_names_the_arguments_it_has_no_formula_for(framework, host):
    side, op = side_of(framework), energy(host)

    @op.def_jvp(unknown=["s"])
    def _(xp, tangents, out, x, s):
        return s * s * 2 * (x * tangents[0]).sum(-1)

    f, x, s = side.function(op), side.array(X), side.array(S)
    got = side.once(lambda x: side.jvp(lambda x: f(x, s), (x,), (x,))[1])(x)
    assert float(got) == pytest.approx(7.0)
    with pytest.raises(MissingRuleError, match="its jvp has no formula for s"):
        side.jvp(f, (x, s), (x, s))
    with pytest.raises(SignatureError, match="unknown='t', which is no argument"):
        op.def_jvp(lambda xp, t, out, x, s: x, unknown=["t"])


def test_numpy_asks_for_all_or_for_some():
    for host in HOSTS.values():
        vjp = bound("numpy", energy(host)).vjp
        with pytest.raises(MissingRuleError, match="no formula for s"):
            vjp(1.0, X, S)
        gx, gs = vjp(1.0, X, S, wanted=["x"])
        np.testing.assert_allclose(gx, 0.5 * X)
        assert gs is None


def test_from_numpy_hands_it_on():
    op = from_numpy(
        lambda x, s: s * (x * x).sum(-1),
        signature="(n),()->()",
        vjp=lambda ct, x, s: (2 * x * (ct * s)[:, None], unknown),
        name="energy",
    )
    with pytest.raises(MissingRuleError, match="energy .*no formula for s"):
        bound("numpy", op).vjp(1.0, X, S)


def test_an_integer_argument_may_be_unknown():
    op = from_numpy(
        lambda x, k: x**k, signature="(),()->()", vjp=lambda ct, x, k: (ct * k, unknown), name="p"
    )
    gx, gk = bound("numpy", op).vjp(1.0, np.array(2.0), np.array(3))
    assert gx == 3 and gk is None


def test_none_is_zero_and_check_says_where_it_is_not():
    for host in (True, False):
        op = energy(host, missing=None)
        gs = bound("numpy", op).vjp(1.0, X, S)[1]
        assert gs is None or gs == 0
        report = check(op, X, S, framework=None)
        assert not report.passed and "s" in {finding.argument for finding in report.failures}


def test_it_is_one_object_in_every_process():
    assert pickle.loads(pickle.dumps(unknown)) is unknown and repr(unknown) == "unknown"
