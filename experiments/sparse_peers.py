"""Sparse solves side by side: sparse_solve, klujax and torchsparsegradutils on one problem.

The matrix of `diffusion_grid` at random coefficients, 10,000 unknowns, one right-hand side:
the value of sum(g * A^-1 b) and its gradient in the entries of A and in b.  Every timed call
has another matrix, so that nobody can keep its factors.  The right values come from SuperLU
with iterative refinement, whose residuals are computed in extended precision.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import klujax
import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.linalg import splu
from torchsparsegradutils import sparse_generic_solve
from torchsparsegradutils.utils.linear_cg import LinearCGSettings, linear_cg
from tqdm import tqdm

import twingrad.ops.jax
import twingrad.ops.torch
from experiments.measure.harness import Recorder, interleave, ratio, wait
from experiments.problems.diffusion_grid import COLS, PARAMETERS, ROWS, UNKNOWNS, entries, sources

SEED, REFINEMENTS, TIGHT = 0, 4, 1e-13
ITERATIVE = "torchsparsegradutils"
Method = Callable[[np.ndarray], tuple[Any, ...]]  # of the entries: x and both gradients


def by_hand(g: np.ndarray, b: np.ndarray) -> Method:
    """SciPy with the adjoint by hand: what all others are compared with."""

    def method(values: np.ndarray) -> tuple[Any, ...]:
        factors = splu(coo_array((values, (ROWS, COLS))).tocsc())
        x, adjoint = factors.solve(b), factors.solve(g, "T")
        return x, -adjoint[ROWS] * x[COLS], adjoint

    return method


def in_torch(solve: Callable[[Any, Any], Any], g: np.ndarray, b: np.ndarray) -> Method:
    weights, load = torch.from_numpy(g), torch.from_numpy(b).requires_grad_()

    def method(values: np.ndarray) -> tuple[Any, ...]:
        leaf = torch.from_numpy(values).requires_grad_()
        x = solve(leaf, load)
        return x.detach(), *torch.autograd.grad((weights * x).sum(), (leaf, load))

    return method


def in_jax(solve: Callable[[Any, Any], Any], g: np.ndarray, b: np.ndarray) -> Method:
    def loss(values: Any, load: Any) -> Any:
        x = solve(values, load)
        return (jnp.asarray(g) * x).sum(), x

    both = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))

    def method(values: np.ndarray) -> tuple[Any, ...]:
        (_, x), gradients = both(jnp.asarray(values), jnp.asarray(b))
        return x, *gradients

    return method


def methods(g: np.ndarray, b: np.ndarray) -> dict[str, Method]:
    rows, cols = torch.from_numpy(ROWS), torch.from_numpy(COLS)
    on_jax = jnp.asarray(ROWS), jnp.asarray(COLS)
    size = UNKNOWNS, UNKNOWNS
    tight = LinearCGSettings(max_cg_iterations=10 * UNKNOWNS, cg_tolerance=TIGHT)

    def generic(**options: Any) -> Callable[[Any, Any], Any]:
        def solve(values: Any, load: Any) -> Any:
            A = torch.sparse_coo_tensor(torch.stack([rows, cols]), values, size).coalesce()
            return sparse_generic_solve(A, load, **options)

        return solve

    def ours_torch(values: Any, load: Any) -> Any:
        return twingrad.ops.torch.sparse_solve(values, rows, cols, load)

    def ours_jax(values: Any, load: Any) -> Any:
        return twingrad.ops.jax.sparse_solve(values, *on_jax, load)

    places, which = np.unique(ROWS * UNKNOWNS + COLS, return_inverse=True)

    def klu(values: Any, load: Any) -> Any:  # it takes no two entries of one place
        summed = jnp.zeros(len(places)).at[which].add(values)
        return klujax.solve(places // UNKNOWNS, places % UNKNOWNS, summed, load)

    return {
        "SciPy, adjoint by hand": by_hand(g, b),
        "twingrad, torch": in_torch(ours_torch, g, b),
        "twingrad, JAX jitted": in_jax(ours_jax, g, b),
        "klujax, jitted": in_jax(klu, g, b),
        f"{ITERATIVE}, as it comes": in_torch(generic(), g, b),
        f"{ITERATIVE}, CG to {TIGHT:.0e}": in_torch(generic(solve=linear_cg, settings=tight), g, b),
    }


def right(values: np.ndarray, g: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """The solution and both gradients, refined until they are right to the last digit."""
    exact = values.astype(np.longdouble)
    factors = splu(coo_array((values, (ROWS, COLS))).tocsc())

    def refine(load: np.ndarray, rows: np.ndarray, cols: np.ndarray, trans: str) -> np.ndarray:
        x = factors.solve(load, trans).astype(np.longdouble)
        for _ in range(REFINEMENTS):
            left = load.astype(np.longdouble)
            np.subtract.at(left, rows, exact * x[cols])
            x += factors.solve(left.astype(float), trans)
        return x

    x, adjoint = refine(b, ROWS, COLS, "N"), refine(g, COLS, ROWS, "T")
    return x, -adjoint[ROWS] * x[COLS], adjoint


def main() -> None:
    recorder = Recorder("sparse_peers")
    rng = np.random.default_rng(SEED)
    values = entries(np, rng.normal(scale=0.7, size=PARAMETERS))
    g, b = rng.normal(size=UNKNOWNS), sources()[0]
    want = right(values, g, b)
    names = "solution", "entries", "right_hand_side"
    found = methods(g, b)

    def fresh() -> np.ndarray:
        return values * (1 + 1e-3 * rng.random())

    once = {}
    for name, method in tqdm(found.items(), desc="sparse solvers side by side"):
        start = time.perf_counter()
        got = method(values)
        wait(got)
        once[name] = time.perf_counter() - start
        pairs = zip(names, got, want, strict=True)
        errors = {
            what: float(np.abs(np.asarray(a) - b).max() / np.abs(b).max()) for what, a, b in pairs
        }
        recorder.add("accuracy", method=name, errors=errors)
    direct = {name: method for name, method in found.items() if not name.startswith(ITERATIVE)}
    timings = interleave(
        {name: lambda m=method: m(fresh()) for name, method in direct.items()}, budget_s=1.0
    )
    first = next(iter(timings.values()))
    for name, timing in timings.items():
        recorder.add("time", method=name, **timing.summary(), ratio=ratio(timing, to=first))
    for name in found.keys() - timings.keys():  # they take seconds
        over = once[name] / first.median
        recorder.add("time", method=name, median_s=once[name], ratio={"median": over})
    recorder.add("setting", unknowns=UNKNOWNS, nonzeros=len(ROWS))


if __name__ == "__main__":
    main()
