"""Fit a truncated Gaussian mixture to samples by maximum likelihood, in both frameworks.

The density on [lo, hi] is sum_i w_i phi((x - m_i)/s_i)/s_i with the normalised weights w of
`truncated_mixture_weights`.  The same fit is then run with the gradient that is usually
posted for these weights, to see what it costs.  Standard errors come from the Hessian of the
likelihood at the fit, so they use the op's second derivatives.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from tqdm import tqdm

import twingrad.interop.jax
import twingrad.interop.torch
from experiments.measure.harness import Recorder, one_thread
from twingrad import ops
from twingrad.interop import Op, define

SAMPLES, STEPS, LEARNING_RATE, SEED = 4000, 600, 0.03, 0
WINDOW = (0.0, 4.0)
MEANS, SCALES, WEIGHTS = (0.4, 3.1), (0.9, 0.6), (0.6, 0.4)
K = len(MEANS)
START = np.array([1.0, 2.5, 0.0, 0.0, 0.0])  # means, log-scales, the logit of the first weight
TRUTH = np.array([*MEANS, *np.log(SCALES), np.log(WEIGHTS[0] / WEIGHTS[1])])
NAMES = ("mean 1", "mean 2", "log scale 1", "log scale 2", "logit of weight 1")
_ROOT_TWO_PI = 2.5066282746310002


def samples() -> np.ndarray:
    """Draws from the mixture, those outside the window thrown away."""
    rng = np.random.default_rng(SEED)
    component = rng.choice(K, size=20 * SAMPLES, p=WEIGHTS)
    x = rng.normal(np.take(MEANS, component), np.take(SCALES, component))
    return x[(x > WINDOW[0]) & (x < WINDOW[1])][:SAMPLES]


@define("(k),(k),(k),(),()->(k)")
def posted_weights(xp: Any, m: Any, s: Any, p: Any, lo: Any, hi: Any) -> Any:
    """The weights with the usually posted gradient: a small eps, and three mistakes."""
    a, b, d = _interval(xp, m, s + 1e-8, lo, hi)  # mistake: eps in this pass only
    return p / xp.sum(p * d, axis=-1)[..., None]


@posted_weights.def_vjp
def _(xp: Any, ct: Any, out: Any, m: Any, s: Any, p: Any, lo: Any, hi: Any) -> Any:
    a, b, d = _interval(xp, m, s, lo, hi)
    z = xp.sum(p * d, axis=-1)[..., None]
    # mistake: w_i depends on its own parameters only; mistake: one division by s too many
    along = ct * out * p / z
    m_bar = along * (_phi(xp, b) - _phi(xp, a)) / s**2
    s_bar = along * (b * _phi(xp, b) - a * _phi(xp, a)) / s**2
    return m_bar, s_bar, ct * (1 / z - p * d / z**2), None, None


def _phi(xp: Any, z: Any) -> Any:
    return xp.exp(-0.5 * z * z) / _ROOT_TWO_PI


def _interval(xp: Any, m: Any, s: Any, lo: Any, hi: Any) -> Any:
    a, b = (lo[..., None] - m) / s, (hi[..., None] - m) / s
    erf = xp.erf if hasattr(xp, "erf") else jax.scipy.special.erf
    return a, b, 0.5 * (erf(b / 2**0.5) - erf(a / 2**0.5))


def loss(lib: Any, weights: Callable[..., Any], x: Any, theta: Any) -> Any:
    """The negative log-likelihood per sample; theta as in NAMES.  `lib` is torch or jnp."""
    means, scales = theta[:K], lib.exp(theta[K : 2 * K])
    first = 1 / (1 + lib.exp(-theta[2 * K]))
    w = weights(means, scales, lib.stack([first, 1 - first]), *WINDOW)
    density = _phi(lib, (x[:, None] - means) / scales) / scales
    return -lib.log((w * density).sum(-1)).mean()


def fit_torch(op: Op, x: np.ndarray) -> tuple[np.ndarray, list[float]]:
    weights, data = twingrad.interop.torch.bind(op), torch.from_numpy(x)
    theta = torch.tensor(START, requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=LEARNING_RATE)
    trace = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(torch, weights, data, theta)
        value.backward()
        optimizer.step()
        trace.append(value.item())
    return theta.detach().numpy(), trace


def fit_jax(op: Op, x: np.ndarray) -> tuple[np.ndarray, list[float]]:
    weights, data = twingrad.interop.jax.bind(op), jnp.asarray(x)
    optimizer = optax.adam(LEARNING_RATE)
    value_and_grad = jax.value_and_grad(lambda theta: loss(jnp, weights, data, theta))

    def step(carry: Any, _: Any) -> Any:
        theta, state = carry
        value, gradient = value_and_grad(theta)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(theta, updates), state), value

    theta = jnp.asarray(START)
    (theta, _), trace = jax.jit(lambda c: jax.lax.scan(step, c, None, length=STEPS))(
        (theta, optimizer.init(theta))
    )
    return np.asarray(theta), trace.tolist()


def judge(x: np.ndarray) -> Callable[[np.ndarray], dict[str, Any]]:
    """What is recorded of a fit, by the right likelihood whatever gradient it was made with.

    The right gradient there, and the standard errors that the Hessian gives, if it has any.
    """
    weights, data = twingrad.interop.jax.bind(ops.truncated_mixture_weights), jnp.asarray(x)

    def right(theta: Any) -> Any:
        return loss(jnp, weights, data, theta)

    both, hessian = jax.jit(jax.value_and_grad(right)), jax.jit(jax.hessian(right))

    def found(theta: np.ndarray) -> dict[str, Any]:
        value, gradient = both(theta)
        variances = np.diag(np.linalg.inv(hessian(theta))) / len(x)
        errors = np.sqrt(np.where(variances > 0, variances, np.nan))
        return {"loss": value, "gradient_size": jnp.abs(gradient).max(), "errors": errors}

    return found


def main() -> None:
    recorder = Recorder("truncated_mixture_fit")
    x = samples()
    judged = judge(x)
    counts, edges = np.histogram(x, bins=60, range=WINDOW, density=True)
    truth = judged(TRUTH)
    recorder.add(
        "setting",
        names=NAMES,
        truth=TRUTH,
        loss_at_truth=truth["loss"],
        samples=len(x),
        window=WINDOW,
        steps=STEPS,
        histogram={"density": counts, "edges": edges},
    )
    fits = {"torch": fit_torch, "jax": fit_jax}
    gradients = {"right": ops.truncated_mixture_weights, "posted": posted_weights}
    cases = [(g, fw) for g in gradients for fw in fits]
    for gradient, framework in tqdm(cases, desc="fitting the truncated mixture"):
        begin = time.perf_counter()
        with one_thread():
            theta, trace = fits[framework](gradients[gradient], x)
        seconds = time.perf_counter() - begin
        at = judged(theta)
        recorder.add(
            "fit",
            framework=framework,
            gradient=gradient,
            theta=theta,
            **at,
            # twice the log of the likelihood ratio to the truth: chi-squared, 5 degrees
            truth_statistic=2 * len(x) * float(truth["loss"] - at["loss"]),
            seconds=seconds,
            trace=trace[::10],
        )


if __name__ == "__main__":
    main()
