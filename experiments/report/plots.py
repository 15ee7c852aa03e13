"""The pictures of the report, drawn from the results files alone."""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from experiments.measure.records import RESULTS, read  # noqa: E402
from experiments.report.methods import METHODS, PAIRS  # noqa: E402

RIGHT, WRONG = "tab:blue", "tab:red"


def throughput() -> None:
    """Samples per second over the batch size: a panel for each op."""
    rates = read("batched_throughput")["rate"]
    names = list(dict.fromkeys(r["op"] for r in rates))
    figure, axes = plt.subplots(2, 3, figsize=(14, 8.5), sharex=True)
    for axis, name in zip(axes.flat, names, strict=False):
        for method, (label, color, line) in METHODS.items():
            points = [r for r in rates if r["op"] == name and r["method"] == method]
            if points:
                x, y = [r["batch"] for r in points], [r["samples_per_s"] for r in points]
                axis.loglog(x, y, line, color=color, label=label, marker=".")
        axis.set_title(name, fontsize=11)
        axis.grid(alpha=0.3)
        axis.set_xlabel("batch size")
        axis.xaxis.set_tick_params(labelbottom=True)
    for axis in axes[:, 0]:
        axis.set_ylabel("samples per second, value and gradient")
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
        axis.legend(*axes.flat[0].get_legend_handles_labels(), loc="center", fontsize=10)
    _save(figure, "batched_throughput")


def relative() -> None:
    """twingrad's speed over that of autodiff of the textbook formula, run the same way."""
    rates = read("batched_throughput")["rate"]
    speed = {(r["op"], r["method"], r["batch"]): r["samples_per_s"] for r in rates}
    names = list(dict.fromkeys(r["op"] for r in rates))
    batches = sorted({r["batch"] for r in rates})
    figure, axes = plt.subplots(1, len(PAIRS), figsize=(14, 4.4), sharex=True, sharey=True)
    for axis, (way, (ours, theirs)) in zip(axes, PAIRS.items(), strict=True):
        for name in names:
            found = [b for b in batches if (name, ours, b) in speed and (name, theirs, b) in speed]
            y = [speed[name, ours, b] / speed[name, theirs, b] for b in found]
            axis.loglog(found, y, ".-", label=name)
        axis.axhline(1, color="k", lw=0.8)
        axis.set(title=way, xlabel="batch size")
        axis.grid(alpha=0.3, which="both")
    axes[0].set_ylabel("speed relative to textbook autodiff\n(above 1: twingrad is faster)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=5)
    _save(figure, "relative_speed", bottom=0.08)


def rosenbrock() -> None:
    """The optimiser's paths on the contours of the function, exact and noisy."""
    runs = read("adjoint_rosenbrock")["paths"]
    figure, axes = plt.subplots(1, 2, figsize=(12, 5.5), sharey=True)
    x, y = np.meshgrid(np.linspace(-2.2, 2.2, 300), np.linspace(-2.2, 3.2, 300))
    values = (1 - x) ** 2 + 5 * (y - x * x) ** 2
    for axis, noisy in zip(axes, (False, True), strict=True):
        axis.contour(x, y, values, levels=np.logspace(-1, 2.5, 12), colors="0.8", linewidths=0.7)
        paths = {run["starts"]: np.array(run["path"]) for run in runs if run["noise"] == noisy}
        many, one = paths["many"], paths["one"]
        lines = axis.plot(many[..., 0], many[..., 1], color=RIGHT, lw=0.6, alpha=0.6)
        lines[0].set_label(f"{many.shape[1]} of the many starts")
        axis.plot(many[-1, :, 0], many[-1, :, 1], ".", color=RIGHT, ms=4)
        axis.plot(one[:, 0], one[:, 1], color=WRONG, lw=1.6, label="from (0.1, 0.1)")
        axis.plot(1, 1, "k*", ms=10, label="minimum (1, 1)")
        title = "value and gradient with noise" if noisy else "exact"
        axis.set(title=title, xlabel="$x_1$", xlim=(-2.2, 2.2), ylim=(-2.2, 3.2))
    axes[0].set_ylabel("$x_2$")
    axes[0].legend(loc="lower center")
    _save(figure, "adjoint_rosenbrock")


def _density(theta: Any, x: np.ndarray) -> np.ndarray:
    """The mixture's density on the window, normalised by the trapezoid rule."""
    m, s = np.array(theta[:2]), np.exp(theta[2:4])
    first = 1 / (1 + np.exp(-theta[4]))
    p = np.array([first, 1 - first])
    y = (p * np.exp(-0.5 * ((x[:, None] - m) / s) ** 2) / s).sum(-1)
    return y / np.trapezoid(y, x)


def mixture_fit() -> None:
    """Samples and densities; and the loss over the steps."""
    data = read("truncated_mixture_fit")
    setting = data["setting"][0]
    fits = [f for f in data["fit"] if f["framework"] == "torch"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    edges = np.array(setting["histogram"]["edges"])
    left.stairs(setting["histogram"]["density"], edges, fill=True, color="0.88", label="samples")
    x = np.linspace(setting["window"][0], setting["window"][1], 400)
    left.plot(x, _density(setting["truth"], x), "k--", lw=1.2, label="truth")
    lowest = min(fit["loss"] for fit in fits)
    every = setting["steps"] / len(fits[0]["trace"])
    for fit in fits:
        color = RIGHT if fit["gradient"] == "right" else WRONG
        label = f"fit with the {fit['gradient']} gradient"
        left.plot(x, _density(fit["theta"], x), color=color, label=label)
        above = np.array(fit["trace"]) - lowest
        above[above < 2e-9] = np.nan  # below the digits recorded
        right.semilogy(every * np.arange(len(above)), above, color=color)
    left.set(xlabel="x", ylabel="density")
    left.legend()
    right.set(xlabel="step", ylabel="loss above the lowest one seen")
    right.grid(alpha=0.3)
    _save(figure, "truncated_mixture_fit")


def diffusion() -> None:
    """The true coefficients, the fitted ones and their errors, and the temperatures."""
    data = read("diffusion_fit")
    setting, fit = data["setting"][0], data["fit"][0]
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6))
    truth, theta, errors = (np.array(a) for a in (setting["truth"], fit["theta"], fit["errors"]))
    side = round(len(truth) ** 0.5)
    shades = {"vmin": truth.min(), "vmax": truth.max(), "cmap": "viridis"}
    maps = {
        "log kappa, truth": (truth, shades),
        "log kappa, fitted": (theta, shades),
        "error / standard error": (
            (theta - truth) / errors,
            {"cmap": "RdBu", "vmin": -3, "vmax": 3},
        ),
    }
    for axis, (title, (values, options)) in zip(axes, maps.items(), strict=False):
        shown = axis.imshow(values.reshape(side, side), origin="lower", **options)
        figure.colorbar(shown, ax=axis, shrink=0.8)
        axis.set(title=title, xticks=[], yticks=[])
    u = np.array(setting["temperatures"])
    shown = axes[-1].imshow(u, origin="lower", cmap="magma")
    figure.colorbar(shown, ax=axes[-1], shrink=0.8)
    axes[-1].set(title="temperature, all sources", xticks=[], yticks=[])
    _save(figure, "diffusion_fit")


def _save(figure: Any, name: str, bottom: float = 0.0) -> None:
    figure.tight_layout(rect=(0, bottom, 1, 1))
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
    plt.close(figure)


def main() -> None:
    throughput()
    relative()
    rosenbrock()
    mixture_fit()
    diffusion()


if __name__ == "__main__":
    main()
