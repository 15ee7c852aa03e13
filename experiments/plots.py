"""The pictures of the report, drawn from the results files alone."""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from experiments.records import RESULTS, read  # noqa: E402

STYLES = {
    "scipy_loop": ("SciPy, Python loop", "0.4", ":"),
    "scipy_batch": ("SciPy, by hand, batched", "0.4", "-"),
    "torch_autodiff": ("torch autodiff", "tab:orange", ":"),
    "torch_autodiff_compiled": ("torch autodiff, compiled", "tab:orange", "-"),
    "twingrad_torch": ("twingrad torch", "tab:red", ":"),
    "twingrad_torch_vmap": ("twingrad torch, vmap(grad)", "tab:pink", ":"),
    "twingrad_torch_compiled": ("twingrad torch, compiled", "tab:red", "-"),
    "twingrad_torch_compiled_vmap": ("twingrad torch, vmap(grad) compiled", "tab:pink", "-"),
    "jax_autodiff": ("JAX autodiff, jitted", "tab:cyan", "-"),
    "twingrad_jax": ("twingrad JAX, jitted", "tab:blue", "-"),
    "twingrad_jax_vmap": ("twingrad JAX, vmap(grad) jitted", "tab:purple", "-"),
}


def throughput() -> None:
    rates = read("batched_throughput")["rate"]
    names = list(dict.fromkeys(r["op"] for r in rates))
    figure, axes = plt.subplots(2, 3, figsize=(14, 8.5), sharex=True)
    for axis, name in zip(axes.flat, names, strict=False):
        for method, (label, color, line) in STYLES.items():
            points = [r for r in rates if r["op"] == name and r["method"] == method]
            if points:
                x, y = [r["batch"] for r in points], [r["samples_per_s"] for r in points]
                axis.loglog(x, y, line, color=color, label=label, marker=".")
        axis.set_title(name, fontsize=10)
        axis.grid(alpha=0.3)
    for axis in axes[1]:
        axis.set_xlabel("batch size")
        axis.xaxis.set_tick_params(labelbottom=True)
    for axis in axes[:, 0]:
        axis.set_ylabel("samples per second, value and gradient")
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
        axis.legend(*axes.flat[0].get_legend_handles_labels(), loc="center", fontsize=9)
    _save(figure, "batched_throughput")


def rosenbrock() -> None:
    runs = read("adjoint_rosenbrock")["run"]
    figure, axes = plt.subplots(1, 2, figsize=(12, 5))
    x, y = np.meshgrid(np.linspace(-2.2, 2.2, 300), np.linspace(-2.2, 3.2, 300))
    values = (1 - x) ** 2 + 5 * (y - x * x) ** 2
    for axis, noisy in zip(axes, (False, True), strict=True):
        levels = np.logspace(-1, 2.5, 12)
        axis.contour(x, y, values, levels=levels, colors="0.8", linewidths=0.7)
        for run in runs:
            if run["framework"] != "torch" or run["noise"] != noisy:
                continue
            path = np.array(run["path"])
            if run["starts"] > 1:
                axis.plot(path[..., 0], path[..., 1], color="tab:blue", lw=0.5, alpha=0.6)
            else:
                axis.plot(path[:, 0], path[:, 1], color="tab:red", lw=1.5, label="from (0.1, 0.1)")
        axis.plot(1, 1, "k*", ms=10, label="minimum")
        axis.set(title="with noise" if noisy else "exact", xlabel="x_1", ylabel="x_2")
        axis.set(xlim=(-2.2, 2.2), ylim=(-2.2, 3.2))
        axis.legend(loc="lower right")
    _save(figure, "adjoint_rosenbrock")


def _density(theta: Any, x: np.ndarray) -> np.ndarray:
    """The mixture's density on the window, normalised by the trapezoid rule."""
    m, s = np.array(theta[:2]), np.exp(theta[2:4])
    first = 1 / (1 + np.exp(-theta[4]))
    p = np.array([first, 1 - first])
    y = (p * np.exp(-0.5 * ((x[:, None] - m) / s) ** 2) / s).sum(-1)
    return y / np.trapezoid(y, x)


def mixture_fit() -> None:
    data = read("truncated_mixture_fit")
    setting, fits = data["setting"][0], data["fit"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    edges = np.array(setting["histogram"]["edges"])
    left.stairs(setting["histogram"]["density"], edges, fill=True, color="0.88", label="samples")
    x = np.linspace(setting["window"][0], setting["window"][1], 400)
    left.plot(x, _density(setting["truth"], x), "k--", lw=1, label="truth")
    for fit in fits:
        if fit["framework"] == "torch":
            color = "tab:blue" if fit["gradient"] == "right" else "tab:red"
            label = f"{fit['gradient']} gradient"
            left.plot(x, _density(fit["theta"], x), color=color, label=label)
            steps = np.arange(len(fit["trace"])) * 10
            best = min(min(f["trace"]) for f in fits)
            right.semilogy(steps, np.array(fit["trace"]) - best + 1e-7, color=color, label=label)
    left.set(xlabel="x", ylabel="density")
    right.set(xlabel="step", ylabel="loss above the lowest one seen")
    left.legend()
    right.legend()
    right.grid(alpha=0.3)
    _save(figure, "truncated_mixture_fit")


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
    plt.close(figure)


def main() -> None:
    throughput()
    rosenbrock()
    mixture_fit()


if __name__ == "__main__":
    main()
