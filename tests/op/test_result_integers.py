"""Integer results keep a dtype of their own, or raise where they would be rounded."""

import numpy as np
import pytest

from tests.op.test_result_dtypes import (
    HOST,
    X,
    as_numpy,
    bound,
    each_binder,
    each_side,
    given,
    side_of,
)
from twingrad.interop import define, from_numpy


@each_binder
def test_an_integer_result_is_exact_or_raises(framework):
    big = np.zeros(2**24 + 4, np.float32)
    big[-3] = 1

    def largest(x):
        return x.argmax(-1)

    f = bound(framework, from_numpy(largest, signature="(n)->()", dtypes="int64"))
    assert int(f(given(framework, big))) == 2**24 + 1
    assert f(given(framework, big)).dtype == given(framework, np.arange(3)).dtype
    undeclared = bound(framework, from_numpy(largest, signature="(n)->()"))
    with pytest.raises(Exception, match=r"largest .*integer 16777217.*dtypes='int64'"):
        as_numpy(undeclared(given(framework, big)))


@each_binder
@pytest.mark.parametrize(("name", "exact"), [("float16", 2048), ("bfloat16", 256)])
def test_an_integer_is_not_rounded_to_a_low_precision_either(framework, name, exact):
    def last(x):
        return np.full(len(x), x.shape[1])

    dtype = np.float16 if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    undeclared = bound(framework, from_numpy(last, signature="(n)->()"))
    declared = bound(framework, from_numpy(last, signature="(n)->()", dtypes="int64"))
    for size in (exact, exact + 1):
        x = np.zeros(size, np.float32)
        low = side_of("torch").cast(given(framework, x), name) if framework == "torch" else None
        low = given(framework, x.astype(dtype)) if low is None else low
        assert int(declared(low)) == size
        if size == exact:
            assert float(undeclared(low)) == size and name in str(undeclared(low).dtype)
            continue
        with pytest.raises(Exception, match=rf"last .*integer {size}, which {name} cannot hold"):
            as_numpy(undeclared(low))
        assert float(undeclared(given(framework, x))) == size  # float32 has it


def ranked(host):
    """The largest entry, its place and whether it is positive, of a host or an array op."""

    @define("(n)->(),(),()", host=host, dtypes=(None, "int64", "bool"))
    def ranked(xp, x):
        top = xp.max(x, axis=-1)
        return top, xp.argmax(x, axis=-1), top > 0

    @ranked.def_vjp
    def _(xp, ct, out, x):
        return (
            ct[0][..., None] * xp.astype(x == out[0][..., None], x.dtype)
            if not host
            else (ct[0][..., None] * (x == out[0][..., None]))
        )

    @ranked.def_jvp
    def _(xp, tangents, out, x):
        return xp.sum(tangents[0] * (x == out[0][..., None]), axis=-1), None, None

    return ranked


@each_side
@pytest.mark.parametrize("host", HOST)
def test_integer_outputs_in_every_mode(framework, host):
    side = side_of(framework)
    f, raw = side.function(ranked(host)), np.stack([X, -X - 3])
    x, hot = side.array(raw), (raw == raw.max(-1, keepdims=True)).astype(float)
    for call in (f, side.once(f), side.vmap(f)):
        top, place, positive = map(as_numpy, call(x))
        np.testing.assert_allclose(top, raw.max(-1))
        assert place.dtype == np.int64 and place.tolist() == [2, 1]
        assert positive.dtype == bool and positive.tolist() == [True, False]

    def top(x):
        return f(x)[0]

    def tangent(x, t):
        return side.jvp(top, (x,), (t,))[1]

    slope = side.grad(lambda x: side.LIB.sum(top(x)))
    np.testing.assert_allclose(as_numpy(side.once(slope)(x)), hot)
    np.testing.assert_allclose(as_numpy(side.once(side.vmap(side.grad(top)))(x)), hot)
    np.testing.assert_allclose(as_numpy(side.once(tangent)(x, x)), raw.max(-1))
    np.testing.assert_allclose(as_numpy(side.once(side.vmap(tangent))(x, x)), raw.max(-1))
    outs, dots = side.jvp(lambda x: f(x), (x,), (x,))
    np.testing.assert_allclose(as_numpy(dots[0]), raw.max(-1))
    assert as_numpy(outs[1]).tolist() == [2, 1]
    if not host:
        second = side.once(side.jacfwd(side.jacfwd(top)))(x[0])
        np.testing.assert_array_equal(as_numpy(second), 0)


def test_integer_outputs_compiled_and_as_dual_numbers_in_torch():
    torch = pytest.importorskip("torch")
    side = side_of("torch")
    from torch.autograd import forward_ad

    for host in (True, False):
        f, x = side.function(ranked(host)), side.array(X)
        compiled = side.compiler("aot_eager")

        def top(x, f=f):
            return f(x)[0]

        for got, want in zip(compiled(f)(x), f(x), strict=True):
            assert got.dtype == want.dtype and torch.equal(got, want)
        slope = compiled(torch.func.grad(top))(x)
        assert slope.tolist() == [0, 0, 1, 0]
        push = compiled(lambda x, top=top: torch.func.jvp(top, (x,), (x,))[1])
        assert float(push(x)) == X.max()
        leaf = x.clone().requires_grad_()
        f(leaf)[0].backward()
        assert leaf.grad.tolist() == [0, 0, 1, 0]
        with forward_ad.dual_level():
            top, place, _ = f(forward_ad.make_dual(x, x))
            assert float(forward_ad.unpack_dual(top).tangent) == X.max()
            assert forward_ad.unpack_dual(place).tangent is None


def test_int64_without_x64_is_int32_or_raises():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(False):
        for n, fits in ((2**31 - 1, True), (2**31, False)):
            op = from_numpy(lambda x, n=n: np.full(x.shape, n), signature="()->()", dtypes="int64")
            f = bound("jax", op)
            if fits:
                assert f(1.0).dtype == np.int32 and int(f(1.0)) == n
                continue
            with pytest.raises(Exception, match=r"integer 2147483648.*jax_enable_x64"):
                as_numpy(f(1.0))
        half = bound("jax", from_numpy(lambda k: k / 2, signature="()->()", name="half"))
        assert half(np.array([3])).dtype == np.float32  # integer inputs only
