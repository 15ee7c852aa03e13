"""Host ops on torch's first vmap, which is_grads_batched=True and vectorize=True still run on."""

import pytest
import torch
from torch.autograd import grad
from torch.autograd.functional import hessian, jacobian

from tests import sample_ops
from twingrad.interop.torch import bind
from twingrad.interop.torch.graphs.names import name_of

close = torch.testing.assert_close
X = torch.tensor([[0.5, -1.0, 2.0], [0.1, 0.2, 0.3]], dtype=torch.float64)
S = torch.tensor([2.0, -3.0], dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 4])
def test_a_batch_of_cotangents_calls_the_adjoint_once(size):
    op, recorder = sample_ops.host_energy()
    x, s = X.clone().requires_grad_(), S.clone().requires_grad_()
    cts = torch.linspace(-1, 1, 2 * size, dtype=torch.float64).reshape(size, 2)
    y = bind(op)(x, s)
    recorder.clear()
    x_bar, s_bar = grad(y, (x, s), cts, is_grads_batched=True)
    assert recorder.counts == (0, 1)
    close(x_bar, 2 * X * (cts * S)[..., None])
    close(s_bar, cts * (X * X).sum(-1))


def test_a_cotangent_with_no_batch_at_the_inner_level():
    op, recorder = sample_ops.host_energy()
    x = X.clone().requires_grad_()
    y = bind(op)(x, S)
    found = torch._vmap_internals._vmap(
        lambda a: torch._vmap_internals._vmap(
            lambda b: grad(y, x, a * y.detach() + 0 * b, retain_graph=True)[0]
        )(torch.ones(3, dtype=torch.float64))
    )(torch.tensor([1.0, 2.0], dtype=torch.float64))
    right = 2 * X * (y.detach() * S)[:, None]
    close(found, torch.stack([right, 2 * right])[:, None].expand(2, 3, 2, 3))
    assert recorder.counts[1] == 1


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_vectorized_jacobian_and_hessian(strategy):
    f = bind(sample_ops.host_sin())
    found = jacobian(f, X, vectorize=True, strategy=strategy)
    close(found.reshape(6, 6), torch.diag(X.cos().ravel()))
    found = hessian(lambda x: f(x).sum(), X, vectorize=True)
    close(found.reshape(6, 6), torch.diag(-X.sin().ravel()))


def test_torch_func_vmap_over_the_bare_operator():
    op, recorder = sample_ops.host_energy()
    name = name_of(bind(op).Function.kernel)
    host = torch.ops.twingrad.host
    (found,) = torch.func.vmap(lambda x: host([x, S[0]], name), in_dims=1)(X)
    close(found, (X * X).sum(0) * S[0])
    assert recorder.counts == (1, 0)
