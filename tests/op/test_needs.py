"""A rule that asks is told which derivatives are wanted, and computes no others."""

import copy
import pickle
from concurrent.futures import Executor, Future

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_side, side_of
from twingrad.interop import Host, SignatureError, define, from_linear, from_numpy
from twingrad.interop.op.rules.asked import Needs

X, S = np.array([1.0, 2.0, 3.0]), np.array(0.5)
HOSTS = {"array": False, "host": True, "host, one by one": Host(vectorize=True)}
every_host = pytest.mark.parametrize("host", HOSTS)
BY_X, BY_S = 0.5 * X, np.array(14.0)
ARGNUMS = {0: (True, False), 1: (False, True), (0, 1): (True, True)}
FOUND = {0: [BY_X], 1: [BY_S], (0, 1): [BY_X, BY_S]}


def energy(host, seen):
    """s^2 sum x^2; `seen` gets what each call of a rule is told."""

    @define("(n),()->()", host=host)
    def energy(xp, x, s):
        return s * s * (x * x).sum(-1)

    @energy.def_vjp
    def _(xp, ct, out, x, s, *, needs):
        seen.append((needs.x, needs.s))
        assert needs == (needs.x, needs.s) and all(type(n) is bool for n in needs)
        x_bar = 2 * x * (ct * s * s)[..., None] if needs.x else None
        return x_bar, 2 * ct * s * (x * x).sum(-1) if needs.s else None

    return energy


def with_jvp(op, seen):
    @op.def_jvp
    def _(xp, tangents, out, x, s, *, needs):
        seen.append(tuple(needs))
        x_dot, s_dot = tangents
        along_x = 2 * s * s * (x * x_dot).sum(-1) if needs.x else 0
        return along_x + (2 * s * s_dot * (x * x).sum(-1) if needs.s else 0)

    return op


def agree(got, argnums):
    got = got if isinstance(got, tuple | list) else [got]
    for g, want in zip(got, FOUND[argnums], strict=True):
        np.testing.assert_allclose(as_numpy(g), want, rtol=1e-12)


def ways(side, f):
    """name -> the gradients of f, for argnums and the two inputs."""

    def vmapped(argnums):
        return lambda x, s: [
            g[0] for g in _several(side.vmap(side.grad(f, argnums=argnums), (0, None))(x[None], s))
        ]

    def compiled(argnums):
        plain = side.grad(f, argnums=argnums)
        return side.compiler("aot_eager")(plain) if side.NAME == "torch" else side.once(plain)

    def of_vmap(argnums):
        def total(x, s):
            return side.vmap(f, (0, None))(x[None], s).sum()

        return side.grad(total, argnums=argnums)

    def rev(argnums):
        return side.jacrev(f, argnums=argnums)

    plain = {"grad": lambda argnums: side.grad(f, argnums=argnums), "jacrev": rev}
    return plain | {"vmap of grad": vmapped, "grad of vmap": of_vmap, "compiled": compiled}


def _several(found):
    return found if isinstance(found, tuple) else (found,)


@each_side
@every_host
@pytest.mark.parametrize("way", ["grad", "jacrev", "vmap of grad", "grad of vmap", "compiled"])
def test_a_vjp_is_told_what_is_wanted(framework, host, way):
    side, seen = side_of(framework), []
    f = side.function(energy(HOSTS[host], seen))
    for argnums, needs in ARGNUMS.items():
        seen.clear()
        agree(ways(side, f)[way](argnums)(side.array(X), side.array(S)), argnums)
        assert set(seen) == {needs}, argnums


@each_side
def test_in_second_derivatives(framework):
    side, seen = side_of(framework), []
    f = side.function(with_jvp(energy(False, seen), seen))
    for outer in (side.jacfwd, side.jacrev):
        seen.clear()
        got = outer(side.grad(f))(side.array(X), side.array(S))
        np.testing.assert_allclose(as_numpy(got), 0.5 * np.eye(3))
        assert set(seen) == {(True, False)}


@every_host
def test_backward_of_torch(host):
    torch = pytest.importorskip("torch")
    side, seen = side_of("torch"), []
    f = side.function(energy(HOSTS[host], seen))
    for run in (f, side.compiler("aot_eager")(f)):
        for argnums, needs in ARGNUMS.items():
            seen.clear()
            leaves = [side.array(v).requires_grad_(n) for v, n in zip((X, S), needs, strict=True)]
            run(*leaves).backward()
            agree([v.grad for v in leaves if v.requires_grad], argnums)
            assert set(seen) == {needs}
    seen.clear()
    x, s = (side.array(v).requires_grad_() for v in (X, S))
    agree(torch.autograd.grad(f(x, s), x), 0)
    assert seen == [(True, True)]  # torch says which require a gradient, not which are asked for


def test_the_bare_custom_vjp_and_programs_of_jax():
    jax = pytest.importorskip("jax")
    for host in (False, True):
        seen = []
        op = energy(host, seen)
        bare, f = bound("jax", op).custom_vjp, bound("jax", op)

        def scanned(x, s, f=f):
            return jax.lax.scan(lambda c, _: (c + f(x, s), None), 0.0, None, length=1)[0]

        runs = [lambda *a, b=bare: b(*a)[0], jax.jit(f), jax.checkpoint(f), scanned]
        for run in runs:
            for argnums, needs in ARGNUMS.items():
                seen.clear()
                agree(jax.jit(jax.grad(run, argnums=argnums))(X, S), argnums)
                assert set(seen) == {needs}


@every_host
def test_numpy(host):
    seen = []
    vjp = bound("numpy", energy(HOSTS[host], seen)).vjp
    agree(vjp(1.0, X, S), (0, 1))
    agree(vjp(1.0, X, S, wanted=["x"])[0], 0)
    agree(vjp(1.0, X, S, wanted=["s"])[1], 1)
    assert seen == [(True, True), (True, False), (False, True)]


@every_host
def test_integers_need_nothing(host):
    seen = []
    bound("numpy", energy(HOSTS[host], seen)).vjp(1.0, X, np.array(2))
    assert seen == [(True, False)]


@each_side
@every_host
def test_a_jvp_is_told_which_tangents_there_are(framework, host):
    side, seen = side_of(framework), []
    f = side.function(with_jvp(energy(HOSTS[host], []), seen))
    x, s = side.array(X), side.array(S)
    got = side.once(lambda x, t: side.jvp(lambda x: f(x, s), (x,), (t,))[1])(x, x)
    assert float(got) == pytest.approx(7.0) and set(seen) == {(True, False)}
    seen.clear()
    agree(side.once(side.jacfwd(f, argnums=1))(x, s), 1)
    assert set(seen) == {(False, True)}


@each_side
def test_rules_that_follow_from_it_hand_it_on(framework):
    side = side_of(framework)
    for host in (False, True):
        seen = []
        op = energy(host, seen)
        if host:
            op.def_jvp_by_rows()
        f = side.function(op)
        agree(side.once(side.jacfwd(f, argnums=1))(side.array(X), side.array(S)), 1)
        assert set(seen) == {(False, True)}
    seen = []
    op = with_jvp(energy(False, []), seen)
    op.vjp = None
    f = side.function(op)
    agree(side.once(side.grad(f))(side.array(X), side.array(S)), 0)
    assert set(seen) == {(True, False)}


def adjoint(ct, x, s, *, needs):
    return (
        2 * x * (ct * s * s)[..., None] if needs.x else None,
        2 * ct * s * (x * x).sum(-1) if needs.s else None,
    )


def value(x, s):
    return s * s * (x * x).sum(-1)


@each_side
def test_an_adjoint_of_numpy_code_asks_as_well(framework):
    side, seen = side_of(framework), []

    def told(ct, x, s, *, needs):
        seen.append(tuple(needs))
        return adjoint(ct, x, s, needs=needs)

    f = side.function(from_numpy(value, signature="(n),()->()", vjp=told))
    for argnums, needs in ARGNUMS.items():
        seen.clear()
        agree(side.once(side.grad(f, argnums=argnums))(side.array(X), side.array(S)), argnums)
        assert seen == [needs]


class Elsewhere(Executor):
    """Runs what it is given from pickled bytes, as another process would."""

    def submit(self, function, /, *args, **keywords):
        function, args, keywords = pickle.loads(pickle.dumps((function, args, keywords)))
        future = Future()
        future.set_result(function(*args, **keywords))
        return future


def test_it_goes_to_other_processes():
    host = Host(vectorize=True, executor=Elsewhere())
    op = from_numpy(value, signature="(n),()->()", vjp=adjoint, host=host)
    found = bound("numpy", op).vjp(1.0, X, S, wanted=["s"])
    assert found[0] is None
    agree(found[1], 1)


def test_names_of_arguments_come_before_those_of_tuples():
    needs = Needs(("index", "count"), (False, True))
    for made in (needs, pickle.loads(pickle.dumps(needs)), copy.copy(needs)):
        assert made.index is False and made.count is True and made == (False, True)
    with pytest.raises(AttributeError, match="no argument 'x'.*index, count"):
        _ = needs.x


def test_a_static_parameter_cannot_have_its_name():
    with pytest.raises(SignatureError, match=r"f \(\)->\(\): 'needs' cannot be a static"):

        @define("()->()")
        def f(xp, x, *, needs=1):
            return x

    def g(x, *, needs=1):
        return x

    with pytest.raises(SignatureError, match=r"g \(\)->\(\): 'needs' cannot be a static"):
        from_numpy(g, signature="()->()")


def test_static_parameters_are_handed_on_beside_it():
    seen = []

    @define("()->()")
    def power(xp, x, *, k=2):
        return x**k

    @power.def_vjp
    def _(xp, ct, out, x, *, k, needs):
        seen.append((k, needs.x))
        return ct * k * x ** (k - 1)

    assert bound("numpy", power).vjp(1.0, np.array(2.0), k=3)[0] == 12.0 and seen == [(3, True)]


def test_the_adjoint_of_a_linear_op_may_ask():
    seen = []

    @define("(n),()->(n)", host=True, linear="x")
    def scale(xp, x, p):
        return x * p[:, None]

    @scale.def_vjp
    def _(xp, ct, out, x, p, *, needs):
        seen.append(tuple(needs))
        return ct * p[:, None], (ct * x).sum(-1) if needs.p else None

    gx, gp = bound("numpy", scale).vjp(np.ones(3), X, S, wanted=["x"])
    assert gp is None and gx.tolist() == [0.5, 0.5, 0.5] and set(seen) == {(True, False)}
    assert bound("numpy", scale).vjp(np.ones(3), X, S)[1] == 6.0
    with pytest.raises(SignatureError, match="its adjoint cannot take"):
        from_linear(lambda x: x, lambda y, *, needs: y, signature="(n)->(n)")
