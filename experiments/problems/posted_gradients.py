"""The two gradients that this project started from, as they are usually posted for torch.

The weights of a truncated Gaussian mixture, computed with SciPy; and an external NumPy
function with its own adjoint.  Kept as they stand, mistakes and all, for `gradient_check`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.stats import norm


class PostedWeights(torch.autograd.Function):
    """w_i = p_i / sum_j p_j D_j; m, s, p, lo, hi -> w, on one sample."""

    @staticmethod
    def forward(ctx: Any, m: Any, s: Any, p: Any, lo: Any, hi: Any) -> Any:
        ctx.save_for_backward(m, s, p, lo, hi)
        m, s, p, lo, hi = (x.detach().numpy() for x in (m, s + 1e-8, p, lo, hi))
        d = norm.cdf((hi - m) / s) - norm.cdf((lo - m) / s)
        return torch.from_numpy(p / (p * d).sum())

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:  # type: ignore[override]
        m, s, p, lo, hi = (x.detach().numpy() for x in ctx.saved_tensors)
        a, b = (lo - m) / s, (hi - m) / s
        d = norm.cdf(b) - norm.cdf(a)
        z = (p * d).sum()
        w, g = p / z, ct.numpy()
        m_bar = g * w * p / z * (norm.pdf(b) - norm.pdf(a)) / s**2
        s_bar = g * w * p / z * (b * norm.pdf(b) - a * norm.pdf(a)) / s**2
        p_bar = g * (1 / z - p * d / z**2)
        return (*(torch.from_numpy(x) for x in (m_bar, s_bar, p_bar)), None, None)


RNG = np.random.default_rng(0)


def f(x: np.ndarray) -> float:
    """Rosenbrock with a = 1 and b = 5."""
    return float((1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2)


def jac(x: np.ndarray) -> np.ndarray:
    """Its gradient."""
    step = x[1] - x[0] ** 2
    return np.array([-2 * (1 - x[0]) - 20 * x[0] * step, 10 * step])


class PostedAdjoint(torch.autograd.Function):
    """An external function and its adjoint."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.tensor(f(x.detach().numpy()), dtype=x.dtype)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return ct * torch.from_numpy(jac(x.detach().numpy()))


class PostedNoisyAdjoint(PostedAdjoint):
    """The same, each multiplied by fresh noise."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return PostedAdjoint.forward(ctx, x) * RNG.uniform(0.5, 1.5)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:  # type: ignore[override]
        return PostedAdjoint.backward(ctx, ct) * RNG.uniform(0.5, 1.5)


def mixture(rng: np.random.Generator) -> tuple[Any, ...]:
    """Inputs for the weights: three components."""
    return (
        rng.uniform(-1, 1, 3),
        rng.uniform(0.5, 1.5, 3),
        rng.uniform(0.2, 1, 3),
        rng.uniform(-2, -0.5),
        rng.uniform(0.5, 2),
    )


def point(rng: np.random.Generator) -> tuple[Any, ...]:
    """A point in the plane."""
    return (rng.uniform(-1, 1, 2),)


POSTED = {
    "truncated mixture weights": (PostedWeights, mixture, ("m", "s", "p", "lo", "hi")),
    "external function": (PostedAdjoint, point, ("x",)),
    "external function with noise": (PostedNoisyAdjoint, point, ("x",)),
}
