"""The contract of an op in torch: several outputs, integers, static parameters, dtypes, complex."""

import functools

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from tests import sample_ops
from twingrad.interop import ArgumentError, RuleError, define
from twingrad.interop.torch import bind

close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
tensor = functools.partial(torch.tensor, dtype=torch.float64)
X = tensor([1.0, -2.0, 0.5])


def leaves(*values):
    return [v.clone().requires_grad_() for v in values]


@pytest.mark.parametrize("form", ["bound", "Function"])
def test_gradients_of_broadcast_inputs_have_the_shape_of_the_inputs(form):
    f = bind(sample_ops.affine())
    f = f if form == "bound" else f.Function.apply
    x, s, b = leaves(torch.ones(2, 1, 3), torch.arange(4.0), torch.tensor(1.0))
    out = f(x, s, b)
    assert out.shape == (2, 4, 3)
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2, 1, 3), 6.0))
    torch.testing.assert_close(s.grad, torch.full((4,), 6.0))
    torch.testing.assert_close(b.grad, torch.tensor(24.0))


@pytest.mark.parametrize("mode", ["backward", "grad", "jacrev"])
@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda xp, ct, out, x, s, b: (ct,), "returned 1 values; expected 3"),
        (lambda xp, ct, out, x, s, b: (ct, s, b, b), "returned 4 values; expected 3"),
        (lambda xp, ct, out, x, s, b: (ct[None] * xp.ones((5, 1)), s, b), r"shape \(5, 3\) for x"),
        (lambda xp, ct, out, x, s, b: (ct, ct, b), r"shape \(3,\) for s"),
    ],
)
def test_a_vjp_of_wrong_count_or_shape_raises(rule, text, mode):
    f = bind(sample_ops.affine(rule))
    args = leaves(torch.ones(3), torch.tensor(2.0), torch.tensor(1.0))
    total = lambda *a: f(*a).sum()  # noqa: E731
    with pytest.raises(RuleError, match=rf"affine \(n\),\(\),\(\)->\(n\): its vjp.*{text}"):
        if mode == "backward":
            total(*args).backward()
        else:
            {"grad": grad(total, (0, 1, 2)), "jacrev": jacrev(f, (0, 1, 2))}[mode](*args)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda xp, t, out, x: (t[0], t[0]), "returned 2 values; expected 1"),
        (lambda xp, t, out, x: t[0][..., None] * xp.ones((2,)), r"tangent of shape \(2,\)"),
    ],
)
def test_a_jvp_of_wrong_count_or_shape_raises(rule, text):
    op = sample_ops.cube(rules="none")
    op.def_jvp(rule)
    with pytest.raises(RuleError, match=rf"cube \(\)->\(\): its jvp.*{text}"):
        jvp(bind(op), (tensor(1.0),), (tensor(1.0),))


def test_none_from_a_vjp_is_zero():
    f = bind(sample_ops.affine(lambda xp, ct, out, x, s, b: (None, None, xp.sum(ct, axis=-1))))
    args = X, tensor(2.0), tensor(1.0)
    found = grad(lambda *a: f(*a).sum(), (0, 1, 2))(*args)
    close(found, (torch.zeros_like(X), tensor(0.0), tensor(3.0)))
    x, s, b = leaves(*args)
    f(x, s, b).sum().backward()
    assert x.grad is None or not x.grad.any()
    close(b.grad, tensor(3.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_have_the_dtype_of_the_input_whatever_the_rule_returns(dtype):
    op = sample_ops.cube(rules="none")
    op.def_vjp(lambda xp, ct, out, x: (3 * x**2 * ct).to(torch.float64))
    op.def_jvp(lambda xp, t, out, x: (3 * x**2 * t[0]).to(torch.float64))
    f = bind(op)
    x = torch.tensor(2.0, dtype=dtype)
    assert f(x).dtype == dtype
    for g in (grad(f)(x), torch.autograd.grad(f(y := leaves(x)[0]), y)[0]):
        assert g.dtype == dtype and g == 12
    assert jvp(f, (x,), (x,))[1].dtype == dtype


def test_integer_and_boolean_inputs_have_no_gradient():
    f = bind(sample_ops.pick())
    k, flag = torch.tensor(1), torch.tensor(True)
    close(grad(f)(X, k, flag), tensor([0, 1, 0]))
    close(grad(f)(X, k, torch.tensor(False)), tensor([0, 0, 0]))
    close(vmap(grad(f), (None, 0, None))(X, torch.arange(3), flag), torch.eye(3).double())
    (x,) = leaves(X)
    f(x, k, flag).backward()
    close(x.grad, tensor([0, 1, 0]))
    close(hessian(lambda x: f(x, k, flag))(X), torch.zeros(3, 3).double())
    close(jvp(lambda x: f(x, k, flag), (X,), (X,))[1], tensor(-2.0))


def test_the_cotangent_of_an_unused_output_is_zeros():
    seen = []
    f = bind(sample_ops.moments(seen))
    close(grad(lambda x: f(x)[1])(X), 2 * X)
    (x,) = leaves(X)
    f(x)[1].backward()
    close(x.grad, 2 * X)
    for first, second in seen:
        assert first is not None and first.shape == second.shape == ()
    close(grad(lambda x: f(x)[0])(X), torch.ones_like(X))
    close(vmap(grad(lambda x: f(x)[1]))(torch.stack([X, X])), torch.stack([2 * X] * 2))
    close(jacfwd(f)(X)[1], 2 * X)


def test_the_cotangent_of_a_hidden_output_is_none_until_it_is_differentiated():
    seen = []
    f = bind(sample_ops.softplus_hidden(seen))
    x = tensor(0.3)
    s = torch.sigmoid(x)
    close(grad(f)(x), s)
    (y,) = leaves(x)
    close(torch.autograd.grad(f(y), y)[0], s)
    assert all(ct[1] is None for ct in seen)
    for d2 in (grad(grad(f)), jacfwd(grad(f)), jacrev(jacfwd(f)), jacfwd(jacfwd(f))):
        close(d2(x), s * (1 - s))
        close(vmap(d2)(x.expand(2)), (s * (1 - s)).expand(2))
    assert torch.autograd.gradgradcheck(f, y)


def test_static_parameters_do_not_mix():
    f = bind(sample_ops.power())
    g = grad(f)
    cubed = grad(lambda x: f(x, p=3.0))
    assert (g(tensor(3.0)), cubed(tensor(3.0)), g(tensor(3.0))) == (6, 27, 6)


def test_a_tensor_as_a_static_parameter_is_not_taken_for_a_number():
    """A tensor is hashable by identity, so it would be kept for ever and never differentiated."""
    with pytest.raises(ArgumentError, match=r"power .*'p' is a static parameter"):
        bind(sample_ops.power())(X, p=tensor(2.0))


def test_keyword_arrays_are_differentiated_and_vmapped():
    f = bind(sample_ops.dot())
    close(grad(lambda y: f(x=X, y=y))(X), X)
    close(vmap(lambda x: f(y=X, x=x))(torch.eye(3).double()), X)


F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
C64, C128 = torch.complex64, torch.complex128


@pytest.mark.parametrize(
    ("first", "second"),
    [(F64, F64), (F32, F32), (F32, F64), (F16, F16), (BF16, BF16), (BF16, F32), (F16, BF16)]
    + [(F32, 2), (BF16, 2.0), (F64, 2), (C64, F32), (C64, F64), (F32, 2j), (F32, C128), (F64, 2j)],
)
@pytest.mark.parametrize("shape", [(), (2,)])
def test_results_and_gradients_have_the_dtype_that_torch_would_give(first, second, shape):
    f = bind(sample_ops.multiply())
    a = torch.full(shape, 3, dtype=first)
    b = torch.full(shape, 2, dtype=second) if isinstance(second, torch.dtype) else second
    out = f(a, b)
    assert out.dtype == (a * b).dtype
    assert torch.equal(out, a * b)
    if not out.is_complex():
        g = grad(lambda a: f(a, b).sum())(a)
        assert g.dtype == first and bool((g == 2).all())


def test_a_0d_tensor_does_not_promote_a_larger_one():
    f = bind(sample_ops.multiply())
    assert f(torch.ones(3), tensor(2.0)).dtype == torch.float32
    assert f(torch.ones(3, dtype=BF16), torch.tensor(2.0)).dtype == BF16


def test_low_precision_is_computed_in_float32():
    seen = []

    @define("()->()")
    def watch(xp, x):
        seen.append(x.dtype)
        return x * 1

    watch.def_vjp(lambda xp, ct, out, x: (seen.append(ct.dtype), ct)[1])
    assert grad(bind(watch))(torch.ones((), dtype=BF16)).dtype == BF16
    assert set(seen) == {F32}


def test_inside_autocast_an_op_runs_in_float32():
    @define("(n,n),(n)->(n)")
    def apply(xp, a, x):
        return xp.matmul(a, x[..., None])[..., 0]  # matmul is what autocast lowers

    @apply.def_vjp
    def _(xp, ct, out, a, x):
        return ct[..., :, None] * x[..., None, :], xp.matmul(ct[..., None, :], a)[..., 0, :]

    f = bind(apply)
    a, x = leaves(torch.full((2, 2), 1 + 2.0**-12), torch.full((2,), 1 + 2.0**-12))
    exact = 2 * (1 + 2.0**-12) ** 2
    with torch.autocast("cpu", torch.bfloat16):
        out = f(a, x)
        low = f(a, x.bfloat16())
        ga, gx = torch.autograd.grad(out.sum(), (a, x))
        func = grad(lambda x: f(a, x).sum())(x)
        tangent = jvp(f, (a, x), (a, x))[1]
    assert out.dtype == low.dtype == tangent.dtype == ga.dtype == gx.dtype == F32
    close(out, torch.full((2,), exact))
    close(gx, a.sum(0))
    close(func, a.sum(0))
    close(tangent, torch.full((2,), 2 * exact))


@pytest.mark.parametrize("rules", ["vjp", "jvp", "both"])
def test_a_complex_rule_is_right_in_torch_which_conjugates(rules):
    f = bind(sample_ops.multiply(rules))
    a, b = tensor(1 + 2j, dtype=C128), tensor(3 - 1j, dtype=C128)
    loss = lambda f: lambda a, b: f(a, b).real + 2 * f(a, b).imag  # noqa: E731
    close(grad(loss(f), (0, 1))(a, b), grad(loss(torch.mul), (0, 1))(a, b))
    dots = (tensor(1j, dtype=C128), tensor(2 - 1j, dtype=C128))
    close(jvp(f, (a, b), dots)[1], a * dots[1] + b * dots[0])
    args = leaves(a, b)
    assert torch.autograd.gradcheck(f, args, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, args)


@pytest.mark.parametrize("rules", ["vjp", "jvp", "both"])
def test_a_real_input_of_a_complex_op_has_a_real_gradient(rules):
    f = bind(sample_ops.multiply(rules))
    a, b = leaves(tensor(2.0), tensor(3 - 1j, dtype=C128))
    assert torch.autograd.gradcheck(f, (a, b), check_forward_ad=True)
    g = torch.autograd.grad(f(a, b).real + 2 * f(a, b).imag, a)[0]
    assert g.dtype == F64
    close(g, tensor(1.0))
    assert torch.autograd.gradgradcheck(f, (a, b))
