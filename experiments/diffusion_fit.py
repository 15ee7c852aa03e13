"""Fit diffusion coefficients through a sparse solve of 10,000 unknowns, in both frameworks.

Four sources heat a square in turn; thermometers measure with noise; the 16 coefficients of
`diffusion_grid` are found by maximum likelihood with L-BFGS, of torch.optim and of optax.  The
op `sparse_solve` takes the four right-hand sides as a batch.  Standard errors come from the
Hessian at the fit, by the op's second derivatives.  The calls of SuperLU are counted.
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

import twingrad.ops.jax
import twingrad.ops.numpy
import twingrad.ops.torch
from experiments.measure.harness import Recorder, interleave, ratio
from experiments.problems.diffusion_grid import (
    COLS,
    PARAMETERS,
    ROWS,
    UNKNOWNS,
    N,
    entries,
    sensors,
    sources,
)
from twingrad.ops.sparse_solve import FACTORS

STEPS, SEED, SPREAD, NOISE = 30, 0, 0.7, 0.01
STEP = 6e-6  # of central differences: the cube root of the rounding error
_PLACES, _LOADS = sensors(), sources()


def problem() -> tuple[np.ndarray, np.ndarray, float]:
    """The true logarithms, the measured temperatures (4, sensors), and their noise."""
    rng = np.random.default_rng(SEED)
    truth = rng.normal(scale=SPREAD, size=PARAMETERS)
    exact = measured(np, twingrad.ops.numpy.sparse_solve, truth)
    sigma = NOISE * float(exact.std())
    return truth, exact + sigma * rng.normal(size=exact.shape), sigma


def measured(lib: Any, solve: Callable[..., Any], theta: Any) -> Any:
    """The temperatures at the sensors, for each source."""
    arrays = (lib.asarray(a) for a in (ROWS, COLS, _LOADS))
    return solve(entries(lib, theta), *arrays)[..., _PLACES]


def loss(lib: Any, solve: Callable[..., Any], data: Any, sigma: float) -> Callable[[Any], Any]:
    """The negative log-likelihood up to a constant, of theta."""
    return lambda theta: 0.5 * (((measured(lib, solve, theta) - data) / sigma) ** 2).sum()


def fit_torch(data: np.ndarray, sigma: float) -> tuple[np.ndarray, int]:
    f = loss(torch, twingrad.ops.torch.sparse_solve, torch.from_numpy(data), sigma)
    theta = torch.zeros(PARAMETERS, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([theta], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        value = f(theta)
        value.backward()
        return value

    optimizer.step(closure)
    return theta.detach().numpy(), optimizer.state[theta]["func_evals"]


def fit_jax(data: np.ndarray, sigma: float) -> tuple[np.ndarray, int]:
    f = loss(jnp, twingrad.ops.jax.sparse_solve, jnp.asarray(data), sigma)
    optimizer = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(f)

    @jax.jit
    def step(theta: Any, state: Any) -> Any:
        value, gradient = value_and_grad(theta, state=state)
        updates, state = optimizer.update(
            gradient, state, theta, value=value, grad=gradient, value_fn=f
        )
        searched = optax.tree.get(state, "info").num_linesearch_steps
        return optax.apply_updates(theta, updates), state, searched

    theta = jnp.zeros(PARAMETERS)
    state, evaluations = optimizer.init(theta), 1
    for _ in range(STEPS):
        theta, state, searched = step(theta, state)
        evaluations += int(searched)
    return np.asarray(theta), evaluations


def hessians(data: np.ndarray, sigma: float, theta: np.ndarray) -> dict[str, np.ndarray]:
    """The Hessian at theta, by each framework."""
    ours = loss(torch, twingrad.ops.torch.sparse_solve, torch.from_numpy(data), sigma)
    theirs = loss(jnp, twingrad.ops.jax.sparse_solve, jnp.asarray(data), sigma)
    return {
        "torch": torch.func.hessian(ours)(torch.from_numpy(theta)).numpy(),
        "jax": np.asarray(jax.jit(jax.hessian(theirs))(jnp.asarray(theta))),
    }


def gradients(data: np.ndarray, sigma: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The value, and value with gradient, of theta, in each framework: functions to time."""
    on_torch = loss(torch, twingrad.ops.torch.sparse_solve, torch.from_numpy(data), sigma)
    on_jax = loss(jnp, twingrad.ops.jax.sparse_solve, jnp.asarray(data), sigma)

    def torch_gradient(theta: np.ndarray) -> Any:
        found = torch.func.grad_and_value(on_torch)(torch.from_numpy(theta))
        return found[1], found[0]

    values = {"torch": lambda theta: on_torch(torch.from_numpy(theta)), "jax": jax.jit(on_jax)}
    return values, {"torch": torch_gradient, "jax": jax.jit(jax.value_and_grad(on_jax))}


def costs(recorder: Recorder, data: np.ndarray, sigma: float) -> None:
    """What a gradient costs, in values; how many factorisations; how far from differences."""
    values, both = gradients(data, sigma)
    rng = np.random.default_rng(SEED + 1)
    at = rng.normal(scale=0.3, size=PARAMETERS)

    def fresh() -> np.ndarray:  # another matrix each time, so that no factors are kept
        return at + 1e-3 * rng.normal(size=PARAMETERS)

    for framework in ("torch", "jax"):
        FACTORS.clear()
        value, value_and_grad = values[framework], both[framework]
        before = FACTORS.computed
        found = np.asarray(value_and_grad(at)[1])
        factorised = FACTORS.computed - before
        steps = STEP * np.eye(PARAMETERS)
        central = [float(value(at + h)) - float(value(at - h)) for h in steps]
        central = np.array(central) / (2 * STEP)
        timings = interleave(
            {
                "value": lambda value=value: value(fresh()),
                "both": lambda both=value_and_grad: both(fresh()),
            },
            budget_s=1.0,
        )
        recorder.add(
            "cost",
            framework=framework,
            factorised=factorised,
            from_differences=np.abs(found - central).max() / np.abs(found).max(),
            value=timings["value"].summary(),
            both=timings["both"].summary(),
            ratio=ratio(timings["both"], to=timings["value"]),
        )


def main() -> None:
    recorder = Recorder("diffusion_fit")
    truth, data, sigma = problem()
    f = loss(np, twingrad.ops.numpy.sparse_solve, data, sigma)
    fits, found = {"torch": fit_torch, "jax": fit_jax}, {}
    for framework, fit in tqdm(fits.items(), desc="fitting diffusion coefficients"):
        FACTORS.clear()
        start, before = time.perf_counter(), FACTORS.computed
        theta, evaluations = fit(data, sigma)
        found[framework] = {
            "seconds": time.perf_counter() - start,
            "factorised": FACTORS.computed - before,
            "evaluations": evaluations,
            "theta": theta,
            "loss": f(theta),
            # twice the log of the likelihood ratio to the truth: chi-squared, 16 degrees
            "truth_statistic": 2 * (f(truth) - f(theta)),
        }
    curvatures = hessians(data, sigma, found["torch"]["theta"])
    largest = np.abs(curvatures["jax"]).max()
    for framework, hessian in curvatures.items():
        errors = np.sqrt(np.diag(np.linalg.inv(hessian)))
        recorder.add("fit", framework=framework, errors=errors, **found[framework])
    u = twingrad.ops.numpy.sparse_solve(entries(np, truth), ROWS, COLS, _LOADS).sum(0)
    recorder.add(
        "setting",
        truth=truth,
        unknowns=UNKNOWNS,
        nonzeros=len(ROWS),
        measurements=data.size,
        sigma=sigma,
        hessians_apart=np.abs(curvatures["torch"] - curvatures["jax"]).max() / largest,
        temperatures=u.reshape(N, N)[::2, ::2],
    )
    costs(recorder, data, sigma)


if __name__ == "__main__":
    main()
