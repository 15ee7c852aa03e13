"""An external function with an external adjoint, optimised in both frameworks.

The function and its gradient are NumPy code that no autodiff can see: Rosenbrock with a = 1
and b = 5, exact, and multiplied by fresh uniform noise in [0.5, 1.5] in the value and in the
gradient at each call.  Adam with learning rate 0.1 starts at (0.1, 0.1) and makes 200 steps;
then 256 starts at once, by vmap.  The calls of the NumPy code are counted.
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
from experiments.measure.harness import Recorder
from twingrad.interop import Op, define

STEPS, LEARNING_RATE, START, STARTS, SEED = 200, 0.1, (0.1, 0.1), 256, 0
DRAWN = 24  # so many of the starts are kept for the picture
A, B = 1.0, 5.0


def f(x: np.ndarray) -> np.ndarray:
    """The asker's function, of one point or of rows of points."""
    return (A - x[..., 0]) ** 2 + B * (x[..., 1] - x[..., 0] ** 2) ** 2


def jac(x: np.ndarray) -> np.ndarray:
    """The asker's gradient."""
    step = x[..., 1] - x[..., 0] ** 2
    return np.stack([-2 * (A - x[..., 0]) - 4 * B * x[..., 0] * step, 2 * B * step], -1)


def external(noisy: bool) -> tuple[Op, dict[str, int]]:
    """The two functions as an op, and how often each is called."""
    calls = {"value": 0, "adjoint": 0}
    rng = np.random.default_rng(SEED)

    def noise(x: np.ndarray) -> Any:
        return rng.uniform(0.5, 1.5, len(x)) if noisy else np.ones(len(x))

    @define("(n)->()", host=True)
    def rosenbrock(xp: Any, x: Any) -> Any:
        calls["value"] += 1
        return noise(x) * f(x)

    @rosenbrock.def_vjp
    def _(xp: Any, ct: Any, out: Any, x: Any) -> Any:
        calls["adjoint"] += 1
        return (ct * noise(x))[:, None] * jac(x)

    return rosenbrock, calls


def asker_with_torch(op: Callable[..., torch.Tensor]) -> np.ndarray:
    """The loop as its asker wrote it; only the function that is called is another one."""
    x = torch.tensor(START, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=LEARNING_RATE)
    path = [x.detach().numpy().copy()]
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = op(x)
        loss.backward()
        optimizer.step()
        path.append(x.detach().numpy().copy())
    return np.array(path)


def asker_with_optax(op: Callable[..., jax.Array]) -> np.ndarray:
    """The same with optax, each step jitted."""
    return _optax(jax.value_and_grad(op), jnp.array(START))


def many_with_torch(op: Callable[..., torch.Tensor], starts: np.ndarray) -> np.ndarray:
    """All starts at once: the gradient of one start, vmapped."""
    x = torch.tensor(starts, requires_grad=True)
    optimizer = torch.optim.Adam([x], lr=LEARNING_RATE)
    gradients = torch.func.vmap(torch.func.grad_and_value(op))
    path = [starts]
    for _ in range(STEPS):
        x.grad, _ = gradients(x.detach())
        optimizer.step()
        path.append(x.detach().numpy().copy())
    return np.array(path)


def many_with_optax(op: Callable[..., jax.Array], starts: np.ndarray) -> np.ndarray:
    return _optax(jax.vmap(jax.value_and_grad(op)), jnp.array(starts))


def _optax(value_and_grad: Callable[..., Any], x: jax.Array) -> np.ndarray:
    optimizer = optax.adam(LEARNING_RATE)

    @jax.jit
    def step(x: jax.Array, state: Any) -> Any:
        value, gradient = value_and_grad(x)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(x, updates), state, value

    state = optimizer.init(x)
    path = [np.asarray(x)]
    for _ in range(STEPS):
        x, state, value = step(x, state)
        path.append(np.asarray(x))
    jax.block_until_ready((x, value))
    return np.array(path)


RUNS: dict[str, dict[str, Callable[..., np.ndarray]]] = {
    "torch": {"one": asker_with_torch, "many": many_with_torch},
    "jax": {"one": asker_with_optax, "many": many_with_optax},
}
BINDERS = {"torch": twingrad.interop.torch.bind, "jax": twingrad.interop.jax.bind}


def run(framework: str, noisy: bool, which: str, recorder: Recorder) -> np.ndarray:
    """One optimisation, recorded; returns its path."""
    op, calls = external(noisy)
    bound = BINDERS[framework](op)
    starts = np.random.default_rng(SEED).uniform(-2.0, 2.0, (STARTS, 2))
    begin = time.perf_counter()
    path = RUNS[framework][which](bound, *([starts] if which == "many" else []))
    seconds = time.perf_counter() - begin
    distances = np.linalg.norm(np.atleast_2d(path[-1]) - (A, A**2), axis=-1)
    recorder.add(
        "run",
        framework=framework,
        noise=noisy,
        starts=len(distances),
        steps=STEPS,
        seconds=seconds,
        value_calls=calls["value"],
        adjoint_calls=calls["adjoint"],
        distance={"median": np.median(distances), "max": distances.max()},
        within_a_tenth=float((distances < 0.1).mean()),
    )
    return path


def main() -> None:
    recorder = Recorder("adjoint_rosenbrock")
    cases = [(which, noisy) for which in RUNS["torch"] for noisy in (False, True)]
    with tqdm(total=len(cases) * len(RUNS), desc="external function and adjoint") as bar:
        for which, noisy in cases:
            paths = {}
            for framework in RUNS:
                paths[framework] = run(framework, noisy, which, recorder)
                bar.update()
            apart = np.abs(paths["torch"] - paths["jax"]).max()
            drawn = paths["torch"].round(4)
            drawn = drawn if which == "one" else drawn[::2, :DRAWN]
            recorder.add("paths", starts=which, noise=noisy, apart=apart, path=drawn)


if __name__ == "__main__":
    main()
