"""Wrong torch.autograd.Function classes, as people post them, for the gradient check."""

import numpy as np
import torch

from tests.right_ops import uniform
from tests.wrong_gradients import Wrong

WRONG_TORCH = []


def add(name, patterns, wrong, *shapes):
    """Register a Function class under what is wrong with it."""

    def register(cls):
        made = Wrong(name, lambda: cls, patterns, wrong, uniform(*shapes))
        WRONG_TORCH.append(made)
        return cls

    return register


class _Base(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)


@add("exp: saved intermediate (r12)", ("second order only",), ("x0",), (3,))
class DetachedExp(_Base):
    @staticmethod
    def forward(x):
        return torch.exp(x)

    @staticmethod
    def backward(ctx, ct):
        return ct * ctx.saved_tensors[1].detach()


@add("sine: NumPy in backward (r13)", ("second order only",), ("x0",), (3,))
class NumpySine(_Base):
    generate_vmap_rule = False

    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def backward(ctx, ct):
        return ct * torch.from_numpy(np.cos(ctx.saved_tensors[0].detach().numpy()))


@add("cube: jvp and a jvp that is not differentiated (r10)", ("second order only",), ("x0",), (3,))
class Cube(_Base):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, ct):
        return 3 * ctx.saved_tensors[0] ** 2 * ct

    @staticmethod
    def jvp(ctx, t):
        return 3 * ctx.saved_tensors[0] ** 2 * t


@add("square: raw memory of the cotangent (r47)", ("raw memory",), ("x0",), (4,))
class RawSquare(_Base):
    generate_vmap_rule = False

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def backward(ctx, ct):
        memory = torch.zeros_like(ctx.saved_tensors[0])
        flat = ct.untyped_storage()
        values = torch.tensor([], dtype=ct.dtype).set_(flat, 0, (len(flat) // 8,))
        memory[: len(values)] = values[: len(memory)]
        return 2 * ctx.saved_tensors[0] * memory


@add("scale: a gradient of the wrong shape (r04)", ("shape",), ("x0",), (3,))
class WideScale(_Base):
    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def backward(ctx, ct):
        return (2 * ct).expand(5, 3)


@add("clip: the cotangent is clipped (r72)", ("not linear",), ("x0",), (3,))
class Clipped(_Base):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def backward(ctx, ct):
        return ct.clamp(-1.2, 1.2) * ctx.saved_tensors[0].cos()


@add("relu6: the input is clipped in place (r67)", ("inputs changed",), (), (3,))
class InPlace(_Base):
    @staticmethod
    def forward(x):
        x.data.mul_(1.0).add_(0.25)
        return x * 1.0

    @staticmethod
    def backward(ctx, ct):
        return ct


@add("matmul: B's gradient A B", ("unknown", "transpose"), ("x1",), (3, 3), (3, 3))
class Product(_Base):
    @staticmethod
    def forward(a, b):
        return a @ b

    @staticmethod
    def backward(ctx, ct):
        a, b, _ = ctx.saved_tensors
        return ct @ b.mT, a @ ct


@add("sine: degrees", ("constant factor",), ("x0",), (3,))
class Degrees(_Base):
    @staticmethod
    def forward(x):
        return torch.sin(torch.deg2rad(x))

    @staticmethod
    def backward(ctx, ct):
        return ct * torch.cos(torch.deg2rad(ctx.saved_tensors[0]))


@add(
    "layernorm: mean along rows (r59)", ("wrong axis", "normaliser held constant"), ("x0",), (3, 4)
)
class Centred(_Base):
    @staticmethod
    def forward(x):
        return x - x.mean(-1, keepdim=True)

    @staticmethod
    def backward(ctx, ct):
        return ct - ct.mean(0, keepdim=True)
