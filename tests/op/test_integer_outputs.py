"""An output of integers has no derivative: the others keep theirs, in every mode."""

import numpy as np
import pytest

from twingrad.interop import define

X = np.array([[1.0, 3.0, 2.0], [5.0, 1.0, 4.0]])
HOT = (X == X.max(-1, keepdims=True)).astype(float)
SQUARE, GRADIENT = X.max(-1) ** 2, 2 * X * HOT
RULES = ["vjp", "jvp", "both"]


def _hot(xp, x):
    return xp.astype(x == xp.max(x, axis=-1, keepdims=True), x.dtype)


def top(rules, alone=False):
    """The square of the largest entry, and its place as an int32; with `alone` only that."""

    @define("(n)->()" if alone else "(n)->(),()")
    def top(xp, x):
        place = xp.astype(xp.argmax(x, axis=-1), xp.int32)
        return place if alone else (xp.max(x, axis=-1) ** 2, place)

    if rules != "jvp":
        zero = lambda xp, x: xp.zeros_like(x)  # noqa: E731
        top.def_vjp(
            (lambda xp, ct, out, x: zero(xp, x))
            if alone
            else (lambda xp, ct, out, x: 2 * x * _hot(xp, x) * ct[0][..., None])
        )
    if rules != "vjp":
        top.def_jvp(
            (lambda xp, t, out, x: None)
            if alone
            else (lambda xp, t, out, x: (xp.sum(2 * x * _hot(xp, x) * t[0], axis=-1), None))
        )
    return top


def _close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


@pytest.mark.parametrize("rules", RULES)
def test_torch(rules):
    torch = pytest.importorskip("torch")
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vmap

    from twingrad.interop.torch import bind

    f, x = bind(top(rules)), torch.from_numpy(X)
    first, total = (lambda x: f(x)[0]), (lambda x: f(x)[0].sum())
    assert f(x)[1].dtype == torch.int32
    for values, tangents in (
        jvp(f, (x,), (x,)),
        vmap(lambda x: jvp(f, (x,), (x,)))(x),
        (f(x), linearize(f, x)[1](x)),
    ):
        assert values[1].tolist() == [1, 0] and not tangents[1].any()
        _close(tangents[0], 2 * SQUARE)
    for found in (grad(total)(x), jacfwd(total)(x), vmap(grad(first))(x), vmap(jacfwd(first))(x)):
        _close(found, GRADIENT)
    with torch.autograd.forward_ad.dual_level():
        value, place = f(torch.autograd.forward_ad.make_dual(x, x))
        _close(torch.autograd.forward_ad.unpack_dual(value).tangent, 2 * SQUARE)
        assert torch.autograd.forward_ad.unpack_dual(place).tangent is None
    for second in (
        hessian(total),
        jacfwd(jacfwd(total)),
        jacrev(jacfwd(total)),
        jacrev(grad(total)),
    ):
        _close(second(x).reshape(6, 6), np.diag(2 * HOT.ravel()))


@pytest.mark.compile
@pytest.mark.parametrize("rules", RULES)
def test_torch_compiled(rules):
    torch = pytest.importorskip("torch")
    from torch.func import jvp

    from twingrad.interop.torch import bind

    torch._dynamo.reset()
    f, x = bind(top(rules)), torch.from_numpy(X)
    pushed = torch.compile(lambda x: jvp(f, (x,), (x,)), backend="aot_eager", fullgraph=True)(x)
    assert pushed[0][1].tolist() == [1, 0]
    _close(pushed[1][0], 2 * SQUARE)


@pytest.mark.parametrize("rules", RULES)
def test_torch_with_no_other_output(rules):
    torch = pytest.importorskip("torch")
    from torch.func import jvp, vmap

    from twingrad.interop.torch import bind

    f, x = bind(top(rules, alone=True)), torch.from_numpy(X)
    for value, tangent in (jvp(f, (x,), (x,)), vmap(lambda x: jvp(f, (x,), (x,)))(x)):
        assert value.tolist() == [1, 0] and not tangent.any()
    assert not f(x.clone().requires_grad_()).requires_grad


@pytest.mark.parametrize("rules", RULES)
def test_jax(rules):
    jax = pytest.importorskip("jax")
    from twingrad.interop.jax import bind

    f, x = bind(top(rules)), jax.numpy.asarray(X)
    first, total = (lambda x: f(x)[0]), (lambda x: f(x)[0].sum())
    assert f(x)[1].dtype == "int32"
    push = lambda x: jax.jvp(f, (x,), (x,))  # noqa: E731
    for values, tangents in (
        push(x),
        jax.jit(push)(x),
        jax.vmap(push)(x),
        (f(x), jax.linearize(f, x)[1](x)),
    ):
        assert values[1].tolist() == [1, 0] and tangents[1].dtype == jax.dtypes.float0
        _close(tangents[0], 2 * SQUARE)
    for found in (jax.grad(total)(x), jax.jacfwd(total)(x), jax.vmap(jax.grad(first))(x)):
        _close(found, GRADIENT)
    second = jax.jit(jax.hessian(total) if rules == "both" else jax.jacrev(jax.grad(total)))
    _close(second(x).reshape(6, 6), np.diag(2 * HOT.ravel()))
    alone = bind(top(rules, alone=True))
    value, tangent = jax.jvp(alone, (x,), (x,))
    assert value.tolist() == [1, 0] and tangent.dtype == jax.dtypes.float0
