"""What an op returns in torch has its numbers in memory, with no conjugate left to be done.

`Tensor.numpy()` and DLPack refuse a tensor with a lazy conjugate or minus.
"""

import pytest
import torch
from torch.func import grad, jvp, vmap

from tests import sample_ops
from tests.side_torch import no_loop_over_samples
from twingrad.interop import define
from twingrad.interop.torch import bind

A = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128)
B = torch.tensor([2 - 1j, 1j], dtype=torch.complex128)


def conjugate():
    """The conjugate of 2 x and the imaginary part, both lazy in torch, by rules that are lazy."""

    @define("()->(),()")
    def conjugate(xp, x):
        return (2 * x).conj(), xp.imag(x.conj())

    @conjugate.def_jvp
    def _(xp, t, out, x):
        return (2 * t[0]).conj(), xp.imag(t[0].conj())

    return conjugate


def _first(f, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(torch.view_as_real(f(x)).pow(2).sum(), x)


def _second(f, x):
    x = x.detach().requires_grad_()
    (g,) = torch.autograd.grad(torch.view_as_real(f(x)).pow(2).sum(), x, create_graph=True)
    return torch.autograd.grad(torch.view_as_real(g).pow(2).sum(), x)


def _loss(f):
    return lambda x: torch.view_as_real(f(x)).pow(2).sum()


MODES = {
    "value": lambda f, x: [f(x)],
    "vmap": lambda f, x: [vmap(f)(x)],
    "jvp": lambda f, x: jvp(f, (x,), (B,)),
    "backward": _first,
    "second": _second,
    "grad": lambda f, x: [grad(_loss(f))(x)],
    "vmap(grad)": lambda f, x: [vmap(grad(_loss(f)))(x)],
    "jvp(grad)": lambda f, x: jvp(grad(_loss(f)), (x,), (B,)),
    "grad(grad)": lambda f, x: [grad(lambda x: _loss(grad(_loss(f)))(x))(x)],
}


@pytest.mark.parametrize("rules", ["vjp", "jvp", "both"])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_values_tangents_and_gradients_of_complex_inputs(mode, lazy, rules):
    op = bind(sample_ops.multiply(rules))
    x = A.conj() if lazy else A
    found = MODES[mode](lambda x: op(x, B), x)
    right = MODES[mode](lambda x: x * B, x)
    for y, expected in zip(found, right, strict=True):
        torch.testing.assert_close(torch.from_numpy(y.detach().numpy()), expected.resolve_conj())


@pytest.mark.parametrize("lazy", [False, True])
def test_a_function_and_a_rule_that_return_lazy_conjugates(lazy):
    f, x = bind(conjugate()), A.conj() if lazy else A
    # torch's own views do not take a lazy primal with a plain tangent
    for transformed in (f,) if lazy else (f, vmap(f)):
        values, tangents = jvp(transformed, (x,), (B,))
        for (one, other), at in ((values, x), (tangents, B)):
            torch.testing.assert_close(torch.from_numpy(one.numpy()), (2 * at).conj())
            torch.testing.assert_close(torch.from_numpy(other.numpy()), -at.imag.resolve_neg())


def test_a_real_input_of_a_complex_op_gets_a_plain_gradient():
    op = bind(sample_ops.multiply())
    x = A.real.clone().requires_grad_()
    torch.view_as_real(op(x, B)).sum().backward()
    torch.testing.assert_close(torch.from_numpy(x.grad.numpy()), (B.real + B.imag))


@pytest.mark.parametrize("part", ["imag", "conj"])
def test_a_rule_takes_the_parts_of_a_cotangent_under_vmap(part):
    """Its cotangent is a conjugate; of a lazy one torch's vmap has no imaginary part."""

    @define("()->()")
    def same(xp, x):
        return 1 * x

    @same.def_vjp
    def _(xp, ct, out, x):
        return xp.conj(xp.conj(ct)) if part == "conj" else xp.real(ct) + 1j * xp.imag(ct)

    f = bind(same)

    def loss(w, x):
        return (w.conj() * f(x)).real

    def of_parts(re, im):
        return (f(torch.complex(re, im)) ** 2).real.sum()

    with no_loop_over_samples():
        torch.testing.assert_close(vmap(grad(loss, 1))(B, A), B)
        hessian = torch.func.hessian(of_parts, (0, 1))(A.real, A.imag)
    for i, j, want in ((0, 0, 2.0), (0, 1, 0.0), (1, 0, 0.0), (1, 1, -2.0)):
        torch.testing.assert_close(hessian[i][j], want * torch.eye(2, dtype=torch.float64))
