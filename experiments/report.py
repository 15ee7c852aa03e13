"""Writes experiments/results/REPORT.md from the results files alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.records import RESULTS, read

REPORT = "experiments/results/REPORT.md"


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def setting() -> str:
    stamp = read("batched_throughput")["stamp"][0]
    versions = ", ".join(f"{k} {v}" for k, v in stamp["versions"].items() if v)
    devices = ", ".join(f"{k} on {v}" for k, v in stamp["device"].items())
    return (
        f"Run of {stamp['date']} at commit `{(stamp['commit'] or 'unknown')[:12]}`"
        f"{' with uncommitted changes' if stamp['uncommitted_changes'] else ''}: "
        f"{stamp['cpu']}, {stamp['cores']} cores; {devices}; Python {stamp['python']}, "
        f"{versions}. Everything is float64. Times are medians; the methods compared were "
        "timed in turns.\n"
    )


def overhead() -> str:
    data = read("call_overhead")
    rows = [
        [
            r["op"],
            "torch, eager" if r["framework"] == "torch" else "JAX, jitted",
            r["what"],
            f"{1e6 * r['ours']['median_s']:.1f}",
            f"{1e6 * r['hand']['median_s']:.1f}",
            f"{r['ratio']['median']:.2f} ({r['ratio']['q1']:.2f} to {r['ratio']['q3']:.2f})",
        ]
        for r in data["overhead"]
    ]
    host = [
        [
            f"{r['size']:,}",
            f"{1e6 * r['ours']['median_s']:.1f}",
            f"{1e6 * r['hand']['median_s']:.1f}",
            f"{r['ratio']['median']:.2f}",
        ]
        for r in data["host_overhead"]
    ]
    head = ["op", "where", "what", "twingrad, us", "by hand, us", "ratio (quartiles)"]
    return (
        "## What a call costs\n\n"
        "Eight numbers; by hand is a `torch.autograd.Function` in setup_context style, and a "
        "`jax.custom_vjp`, with the same formula and rule. The aims were 1.25 for torch and "
        "1.05 for jitted JAX.\n\n" + table(head, rows) + "\n`rosenbrock`, a host op, in torch "
        "against its NumPy function called directly:\n\n"
        + table(["numbers", "twingrad, us", "NumPy, us", "ratio"], host)
    )


def throughput() -> str:
    data = read("batched_throughput")
    rates = {(r["op"], r["method"], r["batch"]): r["samples_per_s"] for r in data["rate"]}
    names = list(dict.fromkeys(r["op"] for r in data["rate"]))
    methods = list(dict.fromkeys(r["method"] for r in data["rate"]))
    batch = max(r["batch"] for r in data["rate"])
    rows = []
    for name in names:
        best = {m: rates.get((name, m, batch)) for m in methods}
        row = [f"{best[m]:,.0f}" if best[m] else "-" for m in methods if m != "scipy_loop"]
        loop = rates[name, "scipy_loop", max(b for n, m, b in rates if m == "scipy_loop")]
        rows.append([name, f"{loop:,.0f}", *row])
    head = ["op", "scipy_loop", *[m for m in methods if m != "scipy_loop"]]
    turned = [list(x) for x in zip(head, *rows, strict=True)]
    cost = [
        [
            r["way"],
            f"{1e3 * r['accurate']['median_s']:.1f}",
            f"{1e3 * r['naive']['median_s']:.1f}",
            f"{r['ratio']['median']:.2f}",
        ]
        for r in data.get("accuracy_cost", [])
    ]
    return (
        "## Throughput\n\n"
        f"Samples per second, value and gradient, at a batch of {batch:,} samples of 16 numbers "
        "(the Python loop: at the largest batch it ran). Autodiff is of the textbook formula, "
        "which is wrong in the tails. A dash: not run, because torch.compile takes up to half a "
        "minute for a graph.\n\n"
        + table(turned[0], turned[1:])
        + "\n![samples per second over the batch size](batched_throughput.png)\n\n"
        "What the accurate formula of `truncated_mixture_weights` costs over autodiff of the "
        "textbook one, 20,000 x 16 in float64, forward and gradient. An earlier prototype that "
        "evaluated every branch paid 14 times.\n\n"
        + table(["where", "accurate, ms", "textbook, ms", "ratio"], cost)
    )


def rosenbrock() -> str:
    rows = [
        [
            r["framework"],
            "yes" if r["noise"] else "no",
            r["starts"],
            f"{r['distance']['median']:.2g}",
            f"{r['value_calls']} / {r['adjoint_calls']}",
        ]
        for r in read("adjoint_rosenbrock")["run"]
    ]
    head = ["framework", "noise", "starts", "median distance to (1, 1)", "calls: value / adjoint"]
    return (
        "## An external function with an external adjoint\n\n"
        "NumPy code that no autodiff sees, Adam with learning rate 0.1, 200 steps. The single "
        "start is (0.1, 0.1); the many are uniform in [-2, 2]^2 and need more steps than 200 to "
        "arrive from afar. Whatever the number of starts, a step is one call of the value and "
        "one of the adjoint.\n\n"
        + table(head, rows)
        + "\n![paths on the contours](adjoint_rosenbrock.png)\n"
    )


def fit() -> str:
    data = read("truncated_mixture_fit")
    setting = data["setting"][0]
    rows = [
        [
            f["gradient"],
            f["framework"],
            f"{f['loss']:.6f}",
            f"{np.abs(f['in_standard_errors']).max():.1f}",
            ", ".join(f"{v:.3f}" for v in f["theta"]),
        ]
        for f in data["fit"]
    ]
    truth = ", ".join(f"{v:.3f}" for v in setting["truth"])
    errors = ", ".join(f"{v:.3f}" for v in setting["standard_errors"])
    head = ["gradient", "framework", "loss", "worst error / standard error", "parameters"]
    return (
        "## Fitting a truncated mixture\n\n"
        f"{setting['samples']} samples in the window {setting['window']}; parameters "
        f"{', '.join(setting['names'])}; truth {truth} with loss {setting['loss_at_truth']:.6f}; "
        f"standard errors {errors}, from the Hessian. The posted gradient drops the cross terms, "
        "divides by s once too often and adds eps in the forward pass only.\n\n"
        + table(head, rows)
        + "\n![density, and loss over the steps](truncated_mixture_fit.png)\n"
    )


def main() -> None:
    parts = ["# Experiments\n", setting(), overhead(), throughput(), rosenbrock(), fit()]
    (RESULTS / "REPORT.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
