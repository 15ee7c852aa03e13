"""Which arrays a rule reads is found from its code; what is not read is not kept in torch."""

import functools
import gc
import inspect
import sys
import weakref

import numpy as np
import pytest

from twingrad.interop import Host, define, from_numpy
from twingrad.interop.numpy import bind as bind_numpy
from twingrad.interop.op.rules.reads import arrays_read
from twingrad.interop.op.signature import Signature

torch = pytest.importorskip("torch")

from torch.func import hessian, jacfwd, jacrev, jvp, vmap  # noqa: E402

from twingrad.interop.torch import bind  # noqa: E402

ONE, TWO = Signature.parse("(n),()->()"), Signature.parse("(n),()->(),(n)")
EVERYTHING_OF_ONE, EVERYTHING_OF_TWO = (True,) * 3, (True,) * 4


def _augmented(xp, ct, out, x, s):
    x += 1
    return ct, ct


def _in_closure(xp, ct, out, x, s):
    return [i * x for i in range(3)], (lambda: s)()


def _stored_only(xp, ct, out, x, s):
    x = s = ct
    return x, s


def _locals(xp, ct, out, x, s):
    return locals()["x"], ct


def _frames(xp, ct, out, x, s):
    return sys._getframe().f_locals["x"], inspect.currentframe()


def _starred(xp, ct, out, *inputs):
    return [ct for _ in inputs]


def _unpacked(xp, ct, out, x, s):
    value, aux = out
    return aux, ct[0]


def _unpacked_twice(xp, ct, out, x, s):
    (_a, _b), c = out, out[-2]
    return c


def _looped(xp, ct, out, x, s):
    return [y for y in out], x


@pytest.mark.parametrize(
    ("rule", "signature", "expected"),
    [
        (lambda xp, ct, out, x, s: (ct, ct), ONE, (False, False, False)),
        (lambda xp, ct, out, x, s: (ct * x, ct), ONE, (True, False, False)),
        (lambda xp, ct, out, x, s: (ct * out, ct), ONE, (False, False, True)),
        (lambda xp, ct, out, x, s: x.shape, ONE, (True, False, False)),
        (_augmented, ONE, (True, False, False)),
        (_in_closure, ONE, (True, True, False)),
        (_stored_only, ONE, EVERYTHING_OF_ONE[:2] + (False,)),
        (_locals, ONE, EVERYTHING_OF_ONE),
        (_frames, ONE, EVERYTHING_OF_ONE),
        (_starred, ONE, (True, True, False)),
        (lambda *args: args[1], ONE, EVERYTHING_OF_ONE),
        (functools.partial(_stored_only), ONE, EVERYTHING_OF_ONE),
        (lambda xp, ct, out, x, s: out[1] * out[-1], TWO, (False, False, False, True)),
        (lambda xp, ct, out, x, s: out[ct], TWO, (False, False, True, True)),
        (lambda xp, ct, out, x, s: len(out), TWO, (False, False, True, True)),
        (lambda xp, ct, out, x, s: [out for _ in ct], TWO, (False, False, True, True)),
        (_unpacked, TWO, (False, False, False, True)),
        (_looped, TWO, (True, False, True, True)),
        (_stored_only, TWO, (True, True, False, False)),
    ],
)
def test_the_arrays_that_a_rule_reads(rule, signature, expected):
    assert arrays_read(rule, signature) == expected


def scale(host=False, reads="s"):
    """x s; its rules read only s (and x for the gradient in s, where `reads` says so)."""

    @define("(n),()->(n)", host=host)
    def scale(xp, x, s):
        return x * s[..., None]

    if reads == "s":
        scale.def_vjp(lambda xp, ct, out, x, s: (ct * s[..., None], None))
        scale.def_jvp(lambda xp, t, out, x, s: t[0] * s[..., None])
    else:
        scale.def_vjp(lambda xp, ct, out, x, s: (ct * s[..., None], (ct * x).sum(-1)))
    return scale


def bytes_saved(f):
    """What autograd holds for the backward pass of f(), in bytes."""
    seen = {}

    def pack(x):
        seen[x.untyped_storage()._cdata] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = f()
    assert out.requires_grad
    return sum(seen.values())


@pytest.mark.parametrize("host", [False, True])
def test_only_what_the_rule_reads_is_saved(host):
    x, s = torch.ones(1000, 3, requires_grad=True), torch.ones(1000)
    volume = 4 * 1000 * 3
    assert bytes_saved(lambda: bind(scale(host))(x, s)) < 4 * 1000 + 100
    assert volume < bytes_saved(lambda: bind(scale(host, "both"))(x, s)) < volume + 4 * 1000 + 100
    plain = from_numpy(lambda x: 2 * x, signature="(n)->(n)", vjp=lambda ct, x: 2 * ct)
    assert bytes_saved(lambda: bind(plain)(x)) < 100


@pytest.mark.parametrize("host", [False, True])
def test_an_output_that_no_rule_reads_is_freed_and_may_be_changed(host):
    w, s = torch.ones(2, 3, requires_grad=True), torch.tensor([2.0, 3.0])
    f = bind(scale(host))
    y = f(w * 1, s)
    y += 1
    y.sum().backward()
    torch.testing.assert_close(w.grad, s[:, None].expand(2, 3))
    y = f(w * 1, s)
    kept, total = weakref.ref(y), y.sum()
    del y
    gc.collect()
    assert kept() is None and total.requires_grad


def test_an_output_that_a_rule_reads_may_not_be_changed():
    @define("()->()")
    def exp(xp, x):
        return xp.exp(x)

    exp.def_vjp(lambda xp, ct, out, x: ct * out)
    w = torch.ones(3, requires_grad=True)
    y = bind(exp)(w)
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("host", [False, True, Host(vectorize=True)], ids=str)
def test_what_is_not_read_still_gives_its_shape_in_every_mode(host):
    f = bind(scale(host))
    x = torch.arange(12.0, dtype=torch.float64).reshape(2, 2, 3)
    s = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    right = s[..., None].expand(2, 2, 3)
    for g in (
        torch.func.grad(lambda x: f(x, s).sum())(x),
        vmap(torch.func.grad(lambda x, s: f(x, s).sum()))(x, s),
        vmap(vmap(torch.func.grad(lambda x, s: f(x, s).sum()), (0, None)), (0, 0))(x, s[:, 0]),
        jvp(lambda x: f(x, s), (x,), (torch.ones_like(x),))[1],
        vmap(lambda x, s: jvp(lambda x: f(x, s), (x,), (torch.ones_like(x),))[1])(x, s),
        torch.func.linearize(lambda x: f(x, s), x)[1](torch.ones_like(x)),
        jacrev(lambda x: f(x, s))(x).sum((0, 1, 2)),
    ):
        torch.testing.assert_close(g, right)
    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: f(x, s), leaf, check_batched_grad=True)


def test_second_derivatives_of_a_rule_that_does_not_read_an_input():
    for f in (bind(scale(reads="both")), bind(scale())):
        x, s = torch.ones(3, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
        for second in (hessian, lambda g: jacfwd(jacfwd(g))):
            assert not second(lambda x, f=f, s=s: f(x, s).sum())(x).any()
    mixed = jacrev(jacrev(bind(scale(reads="both")), 0), 1)(x, s)
    torch.testing.assert_close(mixed, torch.eye(3, dtype=torch.float64))


def test_a_rule_that_is_set_again_or_put_in_place_gets_what_it_reads():
    op = scale()
    f, x, s = bind(op), torch.ones(3, requires_grad=True), torch.tensor(2.0)
    op.def_vjp(lambda xp, ct, out, x, s: (ct * (x + out), None))
    for g in (f, bind(op)):
        torch.testing.assert_close(torch.autograd.grad(g(x, s).sum(), x)[0], torch.full((3,), 3.0))
    op.vjp = lambda xp, ct, out, x, s: (ct * out * 5, None)
    torch.testing.assert_close(torch.autograd.grad(f(x, s).sum(), x)[0], torch.full((3,), 10.0))


def test_the_numpy_binder_gives_none_for_what_is_not_read():
    op = scale()
    f, x = bind_numpy(op), np.ones((2, 3))
    np.testing.assert_array_equal(f.vjp(np.ones((2, 3)), x, 2.0)[0], 2 * x)
    np.testing.assert_array_equal(f.jvp((x, 0.0), x, 2.0), 2 * x)


@pytest.mark.compile
@pytest.mark.parametrize("host", [False, True])
def test_what_is_not_read_when_compiled(host):
    torch._dynamo.reset()
    f, s = bind(scale(host)), torch.tensor([2.0, 3.0])
    x = torch.ones(2, 3, requires_grad=True)
    compiled = torch.compile(lambda x: f(x, s).sum(), backend="aot_eager", fullgraph=True)
    compiled(x).backward()
    torch.testing.assert_close(x.grad, s[:, None].expand(2, 3))
    g = torch.compile(
        torch.func.grad(lambda x: f(x, s).sum()), backend="aot_eager", fullgraph=True
    )(x.detach())
    torch.testing.assert_close(g, s[:, None].expand(2, 3))
