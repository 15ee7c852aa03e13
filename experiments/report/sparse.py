"""What the report says of the sparse solve: the fit of coefficients, and the peers."""

from __future__ import annotations

import numpy as np

from experiments.measure.records import Record, read
from experiments.report.wording import picture, quartiles, short, spread, table

COSTS = ["", "value, ms", "value and gradient, ms", "ratio (quartiles)", "factorisations"]
COSTS += ["from differences"]
FRAMEWORKS = {"torch": "torch.optim.LBFGS", "jax": "optax.lbfgs, jitted"}


def _off(fit: Record, truth: list[float]) -> float:
    """The largest distance of a parameter from the truth, in its standard errors."""
    return float(np.abs((np.array(fit["theta"]) - truth) / fit["errors"]).max())


def _gradient_costs(data: dict[str, list[Record]]) -> list[list[object]]:
    """Rows: what the gradient costs in each framework."""
    return [
        [
            "torch, eager" if cost["framework"] == "torch" else "JAX, jitted",
            *[short(1e3 * cost[key]["median_s"], 3) for key in ("value", "both")],
            quartiles(cost["ratio"]),
            cost["factorised"],
            f"{cost['from_differences']:.0e}",
        ]
        for cost in data["cost"]
    ]


def diffusion() -> str:
    data = read("diffusion_fit")
    setting, fits = data["setting"][0], data["fit"]
    rows = [
        [
            FRAMEWORKS[fit["framework"]],
            f"{fit['loss']:.3f}",
            f"{_off(fit, setting['truth']):.1f}",
            fit["evaluations"],
            fit["factorised"],
            short(fit["seconds"]),
        ]
        for fit in fits
    ]
    head = ["optimiser", "loss", "largest error / standard error", "values and gradients"]
    times = _gradient_costs(data)
    count = len(setting["truth"])
    return (
        "## Fitting diffusion coefficients through a sparse solve\n\n"
        f"Steady diffusion on a square of {setting['unknowns']:,} cells, a matrix of "
        f"{setting['nonzeros']:,} entries, four sources one after the other, "
        f"{setting['measurements']} measured temperatures with 1% noise; {count} coefficients, one "
        "for each block, by maximum likelihood from kappa = 1. *Loss* is half the sum of squares "
        "in units of the noise. Standard errors are from the Hessian at the fit, by the op's "
        "second derivatives; those of torch and JAX agree within "
        f"{setting['hessians_apart']:.0e}.\n\n"
        + table([*head, "factorisations", "seconds"], rows)
        + "\nTwice the log of the likelihood ratio between fit and truth is "
        f"{fits[0]['truth_statistic']:.1f}; by chance alone it would exceed 26.3 in one case of "
        f"20 (chi-squared, {count} degrees of freedom).\n"
        + picture("coefficients, and the temperatures", "diffusion_fit")
        + f"What the gradient in all {count} coefficients costs, each time with another matrix. "
        "Value and gradient share one factorisation. The last column is the distance from "
        "central differences, relative to the largest entry.\n\n" + table(COSTS, times)
    )


def diffusion_finding() -> str:
    data = read("diffusion_fit")
    setting, fits = data["setting"][0], data["fit"]
    worst = max(_off(fit, setting["truth"]) for fit in fits)
    same = all(fit["factorised"] == fit["evaluations"] for fit in fits)
    ratios = [cost["ratio"]["median"] for cost in data["cost"]]
    calls = spread([fit["evaluations"] for fit in fits])
    factorised = (
        "one factorisation each"
        if same
        else f"{spread([fit['factorised'] for fit in fits])} factorisations"
    )
    return (
        f"**A fit of {len(setting['truth'])} diffusion coefficients** through a sparse solve of "
        f"{setting['unknowns']:,} unknowns takes {calls} values and gradients, {factorised}, and "
        f"ends within {worst:.1f} standard errors of the truth in both frameworks. Value and "
        f"gradient cost {spread(ratios)} times the value."
    )


def _times(ratio: Record) -> str:
    """A ratio with its quartiles, if there were several calls."""
    return quartiles(ratio) if "q1" in ratio else short(ratio["median"], 3)


def peers() -> str:
    data = read("sparse_peers")
    setting = data["setting"][0]
    times = {r["method"]: r for r in data["time"]}
    rows = [
        [
            r["method"],
            *[f"{r['errors'][key]:.0e}" for key in ("solution", "entries", "right_hand_side")],
            short(1e3 * times[r["method"]]["median_s"], 3),
            _times(times[r["method"]]["ratio"]),
        ]
        for r in data["accuracy"]
    ]
    head = ["", "error of x", "of the gradient in A", "in b", "ms", "ratio (quartiles)"]
    return (
        "## Sparse solves side by side\n\n"
        f"The value of sum(g * A^-1 b) and its gradient in the {setting['nonzeros']:,} entries of "
        f"A and in b, for the matrix of the last section with {setting['unknowns']:,} unknowns. "
        "Errors are the largest ones, over the largest entry, against SuperLU refined in "
        "extended precision. Every timed call has another matrix, so that none can keep its "
        "factors; klujax analyses the matrix anew in each solve, and takes entries at the same "
        "place summed up beforehand. Without quartiles: called once.\n\n" + table(head, rows)
    )


def peers_finding() -> str:
    data = read("sparse_peers")
    errors = {r["method"]: max(r["errors"].values()) for r in data["accuracy"]}
    ratios = {r["method"]: r["ratio"]["median"] for r in data["time"]}
    listed = "; ".join(
        f"{name} {short(ratios[name])} times, error {errors[name]:.0e}" for name in list(ratios)[1:]
    )
    return (
        "**Sparse solves with their gradient**, against SciPy with the adjoint by hand (error "
        f"{next(iter(errors.values())):.0e}), cost: {listed}."
    )
