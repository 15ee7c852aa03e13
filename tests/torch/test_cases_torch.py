"""Public bug reports about hand-written gradients in torch, each done with twingrad: it is right.

A test's name begins with the number of its case; the reports are named in the docstrings.
"""

import functools

import numpy as np
import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from tests import sample_ops
from twingrad.interop import MissingRuleError, RuleError, define
from twingrad.interop.torch import bind

close = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
tensor = functools.partial(torch.tensor, dtype=torch.float64)
NESTINGS = [(a, b) for a in (jacrev, jacfwd) for b in (jacrev, jacfwd)]


def leaf(value):
    return torch.as_tensor(value).detach().clone().requires_grad_()


def test_r01_vmap_of_grad_without_a_setup_context_of_ones_own():
    """pytorch/functorch#207"""
    v = tensor([1.0, -2.0, 0.5])
    close(vmap(grad(bind(sample_ops.cube())))(v), 3 * v * v)


@pytest.mark.parametrize("in_dim", [0, 1, -1])
def test_r02_a_host_op_is_called_once_per_vmap(in_dim):
    """flatironinstitute/pytorch-finufft#95"""
    energy, recorder = sample_ops.host_energy()
    x = torch.randn(4, 3, dtype=torch.float64)
    out = vmap(bind(energy), (in_dim, None))(x.movedim(0, in_dim), tensor(2.0))
    close(out, 2 * (x * x).sum(-1))
    assert [x.shape for x in recorder.calls[0]] == [(4, 3), (1,)] and recorder.counts == (1, 0)


@pytest.mark.parametrize("host", [False, True])
def test_r04_a_gradient_of_the_wrong_shape_raises_instead_of_being_summed(host):
    """pytorch/pytorch#65244"""

    @define("(n)->()", host=host)
    def total(xp, x):
        return x.sum(-1)

    total.def_vjp(lambda xp, ct, out, x: xp.ones((5, 3)))
    with pytest.raises(RuleError, match=r"total.*shape \(5, 3\)"):
        bind(total)(leaf(torch.zeros(3))).backward()


@pytest.mark.parametrize("rules", ["vjp", "jvp", "both"])
def test_r07_r08_forward_mode_follows_from_either_rule(rules):
    """flatironinstitute/pytorch-finufft#110, pytorch/pytorch#121084"""
    f = bind(sample_ops.multiply(rules))
    args, dots = (tensor(2.0), tensor(5.0)), (tensor(1.0), tensor(10.0))
    close(jvp(f, args, dots)[1], tensor(25.0))
    close(vmap(lambda a: jvp(f, (a, args[1]), dots)[1])(tensor([2.0, 3.0])), tensor([25.0, 35.0]))


@pytest.mark.parametrize(("outer", "inner"), NESTINGS)
def test_r10_r11_r12_second_derivatives_are_right_next_to_another_path(outer, inner):
    """pytorch/pytorch#197867, #58509, #76185: 0, or only the other path"""
    t = tensor(0.3)
    s = torch.sigmoid(t)
    f = bind(sample_ops.softplus_hidden())
    close(outer(inner(lambda t: f(t) + t**2))(t), s * (1 - s) + 2)
    assert torch.autograd.gradgradcheck(lambda t: f(t) * t, leaf(t))


@pytest.mark.parametrize("order", ["backward", "func"])
def test_r13_a_numpy_rule_never_drops_a_second_derivative(order):
    """pytorch/pytorch#89860"""
    right = 6 - np.sin(1.0)
    f, opaque = bind(sample_ops.host_sin()), bind(sample_ops.host_sin(second=False))

    def second(f):
        if order == "func":
            return grad(grad(lambda t: f(t) + t**3))(tensor(1.0))
        t = leaf(tensor(1.0))
        (g,) = torch.autograd.grad(f(t) + t**3, t, create_graph=True)
        return torch.autograd.grad(g, t)[0]

    close(second(f), tensor(right))
    with pytest.raises(MissingRuleError, match="host_sin"):
        second(opaque)


def straight_through():
    @define("()->()")
    def clip(xp, t):
        return xp.clip(t, -1.0, 1.0)

    clip.def_vjp(lambda xp, ct, out, t: ct)
    return clip


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_r15_compiled_func_grad_keeps_a_straight_through_rule(backend):
    """pytorch/pytorch#193279"""
    f = bind(straight_through())
    x = torch.tensor([-3.0, 0.0, 3.0])
    g = torch.compile(grad(lambda t: f(t).sum()), backend=backend, fullgraph=True)
    assert torch.equal(g(x), torch.ones(3))


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_r18_a_forward_that_adds_in_place_to_a_temporary_is_routed_right(backend):
    """pytorch/pytorch#180642"""

    @define("(),()->()")
    def add_scaled(xp, a, b):
        out = 2 * a
        out += 3 * b
        return out

    add_scaled.def_vjp(lambda xp, ct, out, a, b: (2 * ct, 3 * ct))
    f = torch.compile(bind(add_scaled), backend=backend, fullgraph=True)
    a, b = leaf(torch.ones(2)), leaf(torch.ones(2))
    f(a, b).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([2, 2], [3, 3])


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("mapped", [False, True])
def test_r19_vmap_inside_compile_keeps_the_rule(mapped, backend):
    """pytorch/pytorch#129845"""
    op = bind(sample_ops.cube(10))
    f = (lambda t: vmap(op)(t).sum()) if mapped else (lambda t: op(t).sum())
    t = leaf(torch.ones(2))
    torch.compile(f, backend=backend, fullgraph=True)(t).backward()
    assert t.grad.tolist() == [30, 30]


def test_r20_r22_the_hessian_of_an_op_with_only_a_vjp():
    """jax-ml/jax#16049 and google/jaxopt#474, in torch"""
    f = bind(sample_ops.cube(rules="vjp"))
    x = tensor([1.0, 2.0])
    close(hessian(lambda x: f(x).sum())(x), torch.diag(6 * x))
    close(jvp(f, (x,), (torch.ones(2).double(),))[1], 3 * x**2)


def matrix_product():
    a = np.array([[1.0, 2.0], [3.0, 4.0]])

    @define("(2)->(2)", host=True)
    def product(xp, v):
        return v @ a.T

    @define("(2)->(2)", host=True)
    def transposed(xp, v):
        return v @ a

    product.def_vjp(lambda xp, ct, out, v: transposed(xp, ct), host=False)
    product.def_jvp(lambda xp, t, out, v: product(xp, t[0]), host=False)
    transposed.def_vjp(lambda xp, ct, out, v: product(xp, ct), host=False)
    transposed.def_jvp(lambda xp, t, out, v: transposed(xp, t[0]), host=False)
    return product


def test_r23_a_linear_host_op_has_both_modes():
    """jax-ml/jax#30401, in torch"""
    f = bind(matrix_product())
    v = torch.ones(2).double()
    close(jvp(f, (v,), (v,))[1], tensor([3.0, 7.0]))
    close(grad(lambda v: f(v).sum())(v), tensor([4.0, 6.0]))
    for outer, inner in NESTINGS:
        close(outer(inner(f))(v), torch.zeros(2, 2, 2).double())


def test_r25_r26_a_traced_value_as_an_argument_is_differentiated():
    """jax-ml/jax#2912, #4008, in torch: masks and scales are array arguments"""
    f = bind(sample_ops.multiply())
    x, m = torch.ones(3).double(), tensor([1.0, 0.0, 2.0])
    close(grad(lambda x, m: f(x, m).sum(), (0, 1))(x, m), (m, x))
    close(vmap(grad(lambda s: f(s, tensor(2.0))))(m), torch.full((3,), 2.0).double())


@pytest.mark.parametrize(
    ("dtype", "other"), [(torch.bfloat16, "float32"), (torch.float32, "float64")]
)
def test_r29_a_gradient_has_its_inputs_dtype(dtype, other):
    """jax-ml/jax#23779"""

    @define("()->()")
    def double(xp, x):
        return 2 * x

    double.def_vjp(lambda xp, ct, out, x: xp.astype(2 * ct, getattr(xp, other)))
    t = leaf(torch.ones(2, dtype=dtype))
    bind(double)(t).sum().backward()
    assert t.grad.dtype == dtype and t.grad.tolist() == [2, 2]
    assert grad(bind(double))(t.detach()[0]).dtype == dtype


def test_r32_keyword_arguments():
    """jax-ml/jax#13302"""
    f = bind(sample_ops.power())
    close(grad(f)(tensor(3.0)), tensor(6.0))
    close(grad(functools.partial(f, p=3.0))(tensor(3.0)), tensor(27.0))
    close(vmap(lambda x: f(x=x, p=3))(tensor([1.0, 2.0])), tensor([1.0, 8.0]))


def test_r34_the_adjoint_is_not_called_when_nobody_asks():
    """jax-ml/jax#11208"""
    energy, recorder = sample_ops.host_energy()
    f = bind(energy)
    x, s = tensor([1.0, 2.0]), tensor(2.0)
    f(x, s)
    f(leaf(x), s)
    with torch.no_grad():
        f(leaf(x), s)
    assert recorder.counts == (3, 0)
    seen = []

    @define("(),()->()")
    def watch(xp, a, b):
        return a + b

    watch.def_vjp(lambda xp, ct, out, a, b: (seen.append(1), (ct, ct))[1])
    a = leaf(tensor(1.0))
    (a * 2 + bind(watch)(tensor(1.0), tensor(2.0))).backward()
    assert not seen


def test_r35_batching_and_gradient_compose_both_ways():
    """jax-ml/jax#14150, in torch"""
    f = bind(sample_ops.dot(10))
    x = torch.randn(4, 3).double()
    close(vmap(grad(lambda x: f(x, x)))(x), 20 * x)
    close(grad(lambda x: vmap(f)(x, x).sum())(x), 20 * x)


def test_r47_rules_may_read_the_memory_of_what_they_are_given():
    """Dao-AILab/flash-attention#355: host adjoints see contiguous arrays, whatever the strides"""
    energy, recorder = sample_ops.host_energy()
    f = bind(energy)
    x = leaf(torch.randn(4, 3).double())
    out = torch.stack([f(x.T.contiguous().T, tensor(3.0)), torch.zeros(4).double()], 1)
    w = torch.arange(8.0).double().reshape(4, 2)
    for scale in (w, tensor(1.0)):  # sliced, and expanded with strides 0
        x.grad = None
        (out * scale).sum().backward(retain_graph=True)
        close(x.grad, 6 * x.detach() * scale.expand(4, 2)[:, :1])
    given = [a for call in recorder.calls + recorder.adjoint_calls for a in call]
    assert given and all(a.flags.c_contiguous and not a.flags.writeable for a in given)


def test_r67_r68_a_host_function_cannot_write_into_its_input():
    """pytorch/pytorch#96852, #5871"""

    @define("(n)->(n)", host=True)
    def clip(xp, a):
        np.clip(a, 0, 1, out=a)
        return a.copy()

    clip.def_vjp(lambda xp, ct, out, a: ct)
    u = torch.tensor([-2.0, 0.5, 3.0])
    with pytest.raises(ValueError, match="read-only"):
        bind(clip)(u)
    assert u.tolist() == [-2.0, 0.5, 3.0]


def test_r71_one_complex_rule_is_right_and_a_real_input_gets_a_real_gradient():
    """jax-ml/jax#9110"""
    f = bind(sample_ops.multiply())
    b = torch.tensor(3 - 1j)
    for start in (1 + 2j, 2.0):
        found = []
        for g in (f, torch.mul):
            t = leaf(torch.tensor(start))
            torch.view_as_real(g(t, b)).sum().backward()
            found.append(t.grad)
        assert found[0].dtype == t.dtype
        torch.testing.assert_close(*found)
