"""A Jacobian that asks is told which are wanted, and computes no others."""

import itertools
import pickle

import numpy as np
import pytest

from tests.op.test_needs import Elsewhere
from tests.op.test_result_dtypes import as_numpy, bound, each_side, side_of
from twingrad.interop import Host, RuleError, SignatureError, from_jacobian

A, B, C = np.array([1.0, 2.0]), np.array(0.5), np.array([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]])
S = "(m),(),(m,n)->(n)"
SUBSETS = [s for r in (1, 2, 3) for s in itertools.combinations(range(3), r)]
SLOPES = [B * C.T, A @ C, B * np.einsum("m,jn->jmn", A, np.eye(3))]
HOSTS = {"one by one": None, "batches": True, "elsewhere": "elsewhere"}


def value(a, b, c):
    """b a^T c."""
    return b[..., None] * np.einsum("...m,...mn->...n", a, c)


def slopes(a, b, c):
    eye = np.eye(c.shape[-1])
    return (
        b[..., None, None] * np.swapaxes(c, -1, -2),
        np.einsum("...m,...mn->...n", a, c),
        b[..., None, None, None] * a[..., None, :, None] * eye[:, None, :],
    )


SEEN = []


def told(a, b, c, *, needs):
    assert needs == (needs.a, needs.b, needs.c)
    SEEN.append(tuple(needs))
    pairs = zip(slopes(a, b, c), needs, strict=True)
    return tuple(s if need else None for s, need in pairs)


def told_with_out(a, b, c, *, needs, out):
    assert np.allclose(out, value(a, b, c))
    found = told(a, b, c, needs=needs)
    return (found[0], None if not needs.b else out / b[..., None], found[2])


def make(host, jac=told):
    host = Host(vectorize=True, executor=Elsewhere()) if host == "elsewhere" else host
    SEEN.clear()
    return from_jacobian(value, jac, signature=S, host=host)


def check_seen(which):
    assert set(SEEN) == {tuple(i in which for i in range(3))}


def cases():
    """Every subset for one kind of call, and one for each of the others."""
    for which in SUBSETS:
        yield "batches", told, which
    for host, jac in itertools.product(HOSTS, (told, told_with_out)):
        yield host, jac, (1,)


@each_side
@pytest.mark.parametrize(("host", "jac", "which"), cases())
def test_only_the_wanted_jacobians_are_made(framework, host, jac, which):
    side = side_of(framework)
    f = bound(framework, make(HOSTS[host], jac))
    inputs = [side.array(x) for x in (A, B, C)]
    modes = [side.jacrev]
    if which == (1,):
        modes += [side.jacfwd]
        modes += [_compiled(side), _mapped(side)] if host == "batches" else []
    for mode in modes:
        SEEN.clear()
        found = mode(f, which)(*inputs)
        for got, i in zip(found, which, strict=True):
            np.testing.assert_allclose(as_numpy(got), SLOPES[i], rtol=1e-12)
        check_seen(which)


def _compiled(side):
    def mode(f, which):
        total = side.jacrev(f, argnums=which)
        return side.compiler("aot_eager")(total) if side.NAME == "torch" else side.once(total)

    return mode


def _mapped(side):
    def mode(f, which):
        def run(*inputs):
            found = side.vmap(side.jacrev(f, argnums=which), (0, None, 0))(
                inputs[0][None], inputs[1], inputs[2][None]
            )
            return [g[0] for g in found]

        return run

    return mode


def test_backward_and_numpy():
    torch = pytest.importorskip("torch")
    op = make(True)
    x = [torch.tensor(v, requires_grad=i == 1) for i, v in enumerate((A, B, C))]
    bound("torch", op)(*x).sum().backward()
    assert float(x[1].grad) == pytest.approx(SLOPES[1].sum())
    check_seen((1,))
    SEEN.clear()
    found = bound("numpy", op).vjp(np.ones(3), A, B, C, wanted=["c"])
    assert found[:2] == (None, None)
    np.testing.assert_allclose(found[2], SLOPES[2].sum(0))
    check_seen((2,))


def test_integers_need_none():
    bound("numpy", make(True)).vjp(np.ones(3), A, np.array(2), C)
    check_seen((0, 2))


def test_it_is_pickled_and_what_is_missing_raises():
    sent = pickle.loads(pickle.dumps(make(True)))
    found = bound("numpy", sent).vjp(np.ones(3), A, B, C, wanted=["a"])
    np.testing.assert_allclose(found[0], SLOPES[0].sum(0))
    for wrong, why in ((lambda a, b, c, *, needs: (None,) * 3, "NoneType"), (_two, "2 values")):
        with pytest.raises(RuleError, match=rf"value.jac .*{why}"):
            bound("numpy", make(True, wrong)).vjp(np.ones(3), A, B, C, wanted=["a"])
    with pytest.raises(SignatureError, match="its jac cannot take"):
        make(True, lambda a, b, *, needs: None)


def _two(a, b, c, *, needs):
    return slopes(a, b, c)[:2]


@each_side
def test_second_derivatives_with_a_hessian(framework):
    side = side_of(framework)
    op = from_jacobian(
        lambda x: (x**3).sum(),
        lambda x, *, needs: 3 * x**2 if needs.x else None,
        hess=lambda x: np.diag(6 * x),
        signature="(n)->()",
    )
    f = bound(framework, op)
    for outer in (side.jacrev, side.jacfwd):
        got = outer(side.jacrev(f))(side.array(A))
        np.testing.assert_allclose(as_numpy(got), np.diag(6 * A))
