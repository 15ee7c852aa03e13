"""torch as the suite sees it: the ways to differentiate, batch and compile a function.

`side_jax` offers the same names, so that each property is written once, in `properties`.
"""

import contextlib
import functools
from types import SimpleNamespace

import numpy as np
import torch

from tests.fixed import hold
from tests.op_row import COMPLEX
from tests.pairs import Split, split, whole
from tests.structured import called
from twingrad.interop.torch import bind

NAME = "torch"
TRACES = 1  # calls of an op's function for its value
CONJUGATES = True  # a gradient is the conjugate transpose of a tangent
LIB = SimpleNamespace(
    log=torch.log, exp=torch.exp, erf=torch.erf, sum=torch.sum, ones_like=torch.ones_like
)
LIB.real, LIB.imag, LIB.conj, LIB.complex = torch.real, torch.imag, torch.conj, torch.complex
LIB.is_complex = torch.is_complex

grad, jacrev, jacfwd = torch.func.grad, torch.func.jacrev, torch.func.jacfwd
vjp, jvp, linearize = torch.func.vjp, torch.func.jvp, torch.func.linearize


def function(op):
    """The bound op, of those of its arguments that can move."""
    return hold(op, called(op, bind), _at_hand)


def _at_hand(x):
    """An integer array as a function of the tensor whose device it must be on."""
    tensor = torch.from_numpy(x)
    return lambda like: tensor.to(getattr(like, "device", None))


def array(x):
    return torch.from_numpy(np.array(x))


def numpy(x):
    return x.detach().resolve_conj().numpy()


def reference(row):
    return functools.partial(row.textbook, LIB)


LIB.stack = torch.stack
# not linalg.solve: its batching rule takes A of higher rank than b for a batch of vectors, and
# vmap, so jacrev too, is silently wrong (asked in the review of pytorch/pytorch#82814); not a
# matrix product: over a batch of none forward mode fails in it ("has_fw_view() INTERNAL ASSERT")
LIB.solve = lambda A, b: (torch.linalg.inv(A)[..., None] * b[..., None, :, :]).sum(-2)


def cast(x, dtype):
    return x.to(getattr(torch, COMPLEX[dtype] if x.is_complex() else dtype))


def dtype_of(x):
    return str(x.dtype).removeprefix("torch.")


def vmap(f, in_dims=0, out_dims=0):
    return torch.func.vmap(f, in_dims=in_dims, out_dims=out_dims)


@contextlib.contextmanager
def no_loop_over_samples():
    """torch raises where vmap would fall back to a loop over the samples."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(True)


def once(f):
    """A function that is called once: torch runs it as it is."""
    return f


def inner(ct, y):
    """The scalar whose gradient in y is the cotangent ct."""
    return torch.sum(torch.real(ct.conj() * y))


def weighted(f, ct):
    """The scalar sum(ct * f(...)), whose gradient is the vjp with the cotangent ct."""
    return lambda *x: inner(ct, f(*x))


def contract(jacobian, tangents):
    """J t, from the Jacobian of each argument."""
    parts = [torch.tensordot(j, t, dims=t.dim()) for j, t in zip(jacobian, tangents, strict=True)]
    return sum(parts)


def _everything(x):
    return tuple(range(len(x)))


def _backward(f, ct, x):
    leaves = [v.detach().clone().requires_grad_() for v in x]
    f(*leaves).backward(ct)
    return [v.grad for v in leaves]


def _grad(f, ct, x):
    return grad(weighted(f, ct), argnums=_everything(x))(*x)


def _vjp(f, ct, x):
    return vjp(f, *x)[1](ct)


def _jacrev(f, ct, x):
    pairs, ct = Split(LIB, f, x), split(LIB, ct)
    found = jacrev(pairs, argnums=_everything(x))(*pairs.x)
    gradients = [torch.tensordot(ct, j, dims=ct.dim()) for j in found]
    return [whole(LIB, g, paired) for g, paired in zip(gradients, pairs.paired, strict=True)]


def _jvp(f, t, x):
    return jvp(f, tuple(x), tuple(t))[1]


def _jacfwd(f, t, x):
    pairs, t = Split(LIB, f, x), [split(LIB, v) for v in t]
    found = contract(jacfwd(pairs, argnums=_everything(x))(*pairs.x), t)
    return whole(LIB, found, LIB.is_complex(f(*x)))


def _forward_ad(f, t, x):
    with torch.autograd.forward_ad.dual_level():
        dual = [torch.autograd.forward_ad.make_dual(v, d) for v, d in zip(x, t, strict=True)]
        return torch.autograd.forward_ad.unpack_dual(f(*dual)).tangent


def _linearize(f, t, x):
    return linearize(f, *x)[1](*t)


def transposed(f, ct, x):
    """The linear function of the tangents, transposed: its own vjp."""
    return vjp(lambda *t: jvp(f, tuple(x), t)[1], *x)[1](ct)


# name -> (f, cotangent, inputs) -> one gradient for each input
REVERSE = {"backward": _backward, "grad": _grad, "vjp": _vjp, "jacrev": _jacrev}
# name -> (f, tangents, inputs) -> the tangent of the output
FORWARD = {"jvp": _jvp, "jacfwd": _jacfwd, "forward_ad": _forward_ad, "linearize": _linearize}
REFERENCE_REVERSE, REFERENCE_FORWARD = _backward, _jvp


def reverse_modes(op):
    """Each way to a vjp, and the function to use it on."""
    return {name: (mode, function(op)) for name, mode in REVERSE.items()}


def compiler(backend):
    """torch.compile of a whole function, for one of its backends."""
    torch._dynamo.reset()
    return functools.partial(torch.compile, fullgraph=True, backend=backend)


# What `tests.chains` needs besides.

LIB.sin = torch.sin


def lay_out(x, layout):
    """The same values, except for `expanded`, in another place in memory."""
    if layout == "transposed" and x.dim() > 1:
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "expanded" and x.dim() and x.shape[0]:
        return x[:1].expand(x.shape)
    if layout == "sliced" and x.dim():
        return torch.stack([x, x], -1).flatten(-2)[..., ::2]
    return x


def wave(x, number):
    """A direction (or cotangent) like x, the same in every call, no two entries equal."""
    steps = torch.arange(x.numel(), dtype=x.dtype, device=x.device).reshape(x.shape)
    return torch.cos(0.7 * steps + number) + 0.1


def vmap_whole(f, into, out):
    """vmap; where `out` is not 0 the result is made to depend on the mapped argument.

    Else torch puts the axis of a result that does not in the wrong place, or crashes
    (pytorch/pytorch#178425), as second derivatives of linear functions do.
    """

    def whole(x):
        return f(x) + torch.zeros_like(x).sum()

    def mapped(x):
        if out == 0 or x.shape[into] == 0:
            y = torch.func.vmap(f, in_dims=into)(x)
            return y.movedim(0, out)
        return torch.func.vmap(whole, in_dims=into, out_dims=out)(x)

    return mapped


def plain(y):
    return y.numpy(force=True)  # the zeros that autodiff makes have no memory of their own


def nudge(x):
    """A small number that depends on every entry of x."""
    return 0.1 * torch.sin(total(x))


total = torch.sum


def backward(f):
    """The gradient by a plain backward pass, which can be differentiated again."""

    def gradient(x):
        x = x if x.requires_grad else x.detach().requires_grad_()
        y = f(x)
        if not y.requires_grad:  # as the gradient of a linear function
            return torch.zeros_like(x)
        return torch.autograd.grad(y, x, create_graph=True, materialize_grads=True)[0]

    return gradient


def checkpoint(f):
    return lambda x: torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)


def compiled(f):
    torch._dynamo.reset()
    return torch.compile(f, backend="aot_eager", fullgraph=True)
