"""Sizes that are none, and results of another size: errors with the names and numbers found."""

import numpy as np
import pytest

from tests.op.test_result_dtypes import bound, each_binder, given
from tests.sized_ops import OPS, nufft
from twingrad.interop import (
    ArgumentError,
    RuleError,
    ShapeError,
    SignatureError,
    define,
    from_numpy,
)
from twingrad.interop.numpy import bind


@each_binder
@pytest.mark.parametrize("value", [-1, 2.5, True, "3", None, (3,)])
@pytest.mark.parametrize("host", [False, True])
def test_a_value_that_is_no_size_is_refused_by_name(framework, value, host):
    op = bound(framework, nufft(host))
    x = [given(framework, v) for v in OPS["nufft"].inputs()]
    with pytest.raises(ArgumentError) as caught:
        op(*x, n_modes=value)
    for part in ("nufft (n),(n)->(n_modes)", "'n_modes'", f"found {value!r}", "not negative"):
        assert part in str(caught.value)


@pytest.mark.parametrize("integer", [np.int64(3), np.uint8(3)])
def test_whole_numbers_of_numpy_are_sizes(integer):
    assert bind(nufft())(*OPS["nufft"].inputs(), n_modes=integer).shape == (3,)


@each_binder
def test_a_missing_size_is_named(framework):
    op = define("(n)->(k)")(lambda xp, x, *, k: xp.broadcast_to(x[..., :1], (*x.shape[:-1], k)))
    x = given(framework, np.ones(3))
    assert bound(framework, op)(x, k=2).shape == (2,)
    with pytest.raises(ArgumentError, match="'k' is missing"):
        bound(framework, op)(x)


@pytest.mark.parametrize("text", ["(n)->(m)", "(n)->(n+m)", "(m+1),(n)->(n)"])
def test_a_size_that_nothing_gives_is_refused_with_both_ways_out(text):
    with pytest.raises(SignatureError) as caught:
        define(text)(lambda xp, *x, other=1: x)
    for part in (text, "the size m is in no argument", "n//2+1", "keyword-only", "mask"):
        assert part in str(caught.value)
    with pytest.raises(SignatureError, match="the size m is in no argument"):
        from_numpy(lambda *x, other=1: x, signature=text)


def test_a_default_that_is_no_size_is_refused_by_define():
    with pytest.raises(SignatureError, match=r"'k' is a size .* found 0.5, as the default"):
        define("(n)->(k)")(lambda xp, x, *, k=0.5: x)


@each_binder
def test_a_negative_size_says_what_it_is_and_of_what(framework):
    op = bound(framework, define("(n),(m)->(n-m+1)")(lambda xp, x, y: x))
    with pytest.raises(ShapeError, match=r"the size n-m\+1 is -2 at n = 2 and m = 5; it must not"):
        op(given(framework, np.ones(2)), given(framework, np.ones(5)))


def test_a_division_by_a_size_of_zero_is_named():
    op = bind(define("(n)->(n//k)")(lambda xp, x, *, k=1: x))
    with pytest.raises(ShapeError, match="n//k divides by zero at n = 3 and k = 0"):
        op(np.ones(3), k=0)


@each_binder
@pytest.mark.parametrize("host", [False, True])
def test_a_result_of_another_size_shows_the_promised_one(framework, host):
    op = define("(n)->(n//2+1)", host=host)(lambda xp, x: x)
    with pytest.raises(Exception, match=r"\(n\)->\(n//2\+1\).*expected \(.*3,?\).*n//2\+1 = 3"):
        bound(framework, op)(given(framework, np.ones(4)))


@pytest.mark.parametrize("host", [False, True])
def test_a_cotangent_or_gradient_of_another_size_is_refused(host):
    op = bind(nufft(host))
    c, x = OPS["nufft"].inputs()
    assert op.vjp(np.ones(6) + 0j, c, x)[0].shape == c.shape
    assert op.vjp(np.ones(3) + 0j, c, x, n_modes=3)[0].shape == c.shape
    text = r"nufft .*: a cotangent has shape \(3,\); expected \(6,\).*, n_modes = 6"
    with pytest.raises(ShapeError, match=text):
        op.vjp(np.ones(3) + 0j, c, x)
    wrong = define("(n)->(2*n)", host=host)(lambda xp, x: xp.concat([x, x], axis=-1))
    wrong.def_vjp(lambda xp, ct, out, x: ct)
    with pytest.raises(RuleError, match=r"<lambda>.*\(2\*n"):
        bind(wrong).vjp(np.ones(6), np.ones(3))


@each_binder
def test_a_length_that_depends_on_the_numbers_is_refused_with_a_way_out(framework):
    op = bound(framework, from_numpy(lambda x: x[:, x[0] > 0], signature="(n)->(n)", name="kept"))
    x = given(framework, np.array([1.0, -1.0, 2.0]))
    with pytest.raises(RuleError, match=r"kept \(n\)->\(n\): .*\(1, 2\).*\(1, 3\).*longest.*mask"):
        op(x)
