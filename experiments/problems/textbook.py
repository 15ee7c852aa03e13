"""The same five functions as people write them today, to compare the ops with.

`FORWARD[name](xp, ndtr, *inputs)` is the plain formula, for autodiff of torch or JAX.
`HAND[name](g, *inputs)` is NumPy and SciPy with the gradient worked out by hand: it returns
sum(g * value) and the gradient of it in each input.  Both take any batch dimensions, and
both lose digits or fail in the tails; the experiments use inputs where they are right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr as scipy_ndtr

Arrays = tuple[Any, ...]


def _interval(ndtr: Any, m: Any, s: Any, lo: Any, hi: Any) -> Any:
    return ndtr((hi[..., None] - m) / s) - ndtr((lo[..., None] - m) / s)


def mixture_weights(xp: Any, ndtr: Any, m: Any, s: Any, p: Any, lo: Any, hi: Any) -> Any:
    return p / (p * _interval(ndtr, m, s, lo, hi)).sum(-1)[..., None]


def mixture_log_normalizer(xp: Any, ndtr: Any, m: Any, s: Any, p: Any, lo: Any, hi: Any) -> Any:
    return xp.log((p * _interval(ndtr, m, s, lo, hi)).sum(-1))


def log_ndtr_diff(xp: Any, ndtr: Any, a: Any, b: Any) -> Any:
    return xp.log(ndtr(b) - ndtr(a))


def log1mexp(xp: Any, ndtr: Any, x: Any) -> Any:
    return xp.log(1.0 - xp.exp(x))


def rosenbrock(xp: Any, ndtr: Any, x: Any) -> Any:
    left, right = x[..., :-1], x[..., 1:]
    return ((1.0 - left) ** 2 + 5.0 * (right - left**2) ** 2).sum(-1)


FORWARD: dict[str, Callable[..., Any]] = {
    "truncated_mixture_weights": mixture_weights,
    "truncated_mixture_log_normalizer": mixture_log_normalizer,
    "log_ndtr_diff": log_ndtr_diff,
    "log1mexp": log1mexp,
    "rosenbrock": rosenbrock,
}


def _phi(x: Any) -> Any:
    return np.exp(-0.5 * x * x) * 0.3989422804014327


def _parts(m: Any, s: Any, lo: Any, hi: Any) -> Arrays:
    a, b = (lo[..., None] - m) / s, (hi[..., None] - m) / s
    return a, b, _phi(a), _phi(b), scipy_ndtr(b) - scipy_ndtr(a)


def _hand_weights(g: Any, m: Any, s: Any, p: Any, lo: Any, hi: Any) -> Arrays:
    a, b, phi_a, phi_b, mass = _parts(m, s, lo, hi)
    z = (p * mass).sum(-1)[..., None]
    w = p / z
    c = (g * w).sum(-1)[..., None]
    low, high = (c * w * phi_a / s), (c * w * phi_b / s)
    grads = (high - low, b * high - a * low, (g - c * mass) / z, low.sum(-1), -high.sum(-1))
    return (g * w).sum(), *grads


def _hand_log_normalizer(g: Any, m: Any, s: Any, p: Any, lo: Any, hi: Any) -> Arrays:
    a, b, phi_a, phi_b, mass = _parts(m, s, lo, hi)
    z = (p * mass).sum(-1)
    c = (g / z)[..., None]
    low, high = c * p * phi_a / s, c * p * phi_b / s
    grads = (low - high, a * low - b * high, c * mass, -low.sum(-1), high.sum(-1))
    return (g * np.log(z)).sum(), *grads


def _hand_log_ndtr_diff(g: Any, a: Any, b: Any) -> Arrays:
    mass = scipy_ndtr(b) - scipy_ndtr(a)
    return (g * np.log(mass)).sum(), -g * _phi(a) / mass, g * _phi(b) / mass


def _hand_log1mexp(g: Any, x: Any) -> Arrays:
    y = np.exp(x)
    return (g * np.log(1.0 - y)).sum(), -g * y / (1.0 - y)


def _hand_rosenbrock(g: Any, x: Any) -> Arrays:
    left, right = x[..., :-1], x[..., 1:]
    step = right - left**2
    grad = np.zeros_like(x)
    grad[..., :-1] = -2.0 * (1.0 - left) - 20.0 * left * step
    grad[..., 1:] += 10.0 * step
    value = ((1.0 - left) ** 2 + 5.0 * step**2).sum(-1)
    return (g * value).sum(), g[..., None] * grad


HAND: dict[str, Callable[..., Arrays]] = {
    "truncated_mixture_weights": _hand_weights,
    "truncated_mixture_log_normalizer": _hand_log_normalizer,
    "log_ndtr_diff": _hand_log_ndtr_diff,
    "log1mexp": _hand_log1mexp,
    "rosenbrock": _hand_rosenbrock,
}


def inputs(name: str, batch: int, size: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """(g, *inputs) for a batch of samples of `size` numbers, where the textbook is right."""
    rng = np.random.default_rng(seed)

    def uniform(low: float, high: float, *core: int) -> np.ndarray:
        return rng.uniform(low, high, (batch, *core))

    if name == "log1mexp":
        return uniform(-1, 1, size), uniform(-3.0, -0.1, size)
    if name == "log_ndtr_diff":
        return uniform(-1, 1, size), uniform(-2.0, 0.0, size), uniform(0.2, 2.0, size)
    if name == "rosenbrock":
        return uniform(-1, 1), uniform(-1.0, 1.0, size)
    core = (size,) if name == "truncated_mixture_weights" else ()
    mixture = uniform(-1.0, 1.0, size), uniform(0.5, 1.5, size), uniform(0.1, 1.0, size)
    return uniform(-1, 1, *core), *mixture, uniform(-1.5, -0.5), uniform(0.5, 1.5)
