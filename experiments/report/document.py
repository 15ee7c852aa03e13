"""Writes experiments/results/REPORT.md from the results files alone."""

from __future__ import annotations

from experiments.measure.records import RESULTS, Record, read
from experiments.report.check import gradient_check
from experiments.report.findings import Rates, findings, off
from experiments.report.methods import METHODS, PAIRS, label
from experiments.report.sparse import diffusion, peers
from experiments.report.special import special
from experiments.report.wording import microseconds, picture, quartiles, short, table

REPORT = "experiments/results/REPORT.md"
FILES = (
    "batched_throughput",
    "vmap_cost",
    "call_overhead",
    "host_executors",
    "diffusion_fit",
    "sparse_peers",
    "gradient_check",
    "special_functions",
    "adjoint_rosenbrock",
    "truncated_mixture_fit",
)


def setting() -> str:
    stamp = read("batched_throughput")["stamp"][0]
    versions = ", ".join(f"{k} {v}" for k, v in stamp["versions"].items() if v)
    devices = ", ".join(f"{k} on {v}" for k, v in stamp["device"].items())
    changed = " with uncommitted changes" if stamp["uncommitted_changes"] else ""
    files = ", ".join(f"[{name}.jsonl]({name}.jsonl)" for name in FILES)
    return (
        f"Run of {stamp['date']} at commit `{(stamp['commit'] or 'unknown')[:12]}`{changed}. "
        f"{stamp['cpu']}, {stamp['cores']} cores, {stamp['torch_threads']} torch threads; "
        f"{devices}; Python {stamp['python']}, {versions}. {_load(stamp)}\n\n"
        "Everything is float64 where nothing else is said. Times are medians over blocks of "
        "calls, each call waited for; "
        "methods that are compared were timed in turns, and ratios are medians of the ratios of "
        f"blocks that follow each other. All figures come from {files}. {_other_runs(stamp)}\n"
    )


def _other_runs(stamp: Record) -> str:
    """Which files are of another run, and how quiet the machine was then."""
    stamps = {name: read(name)["stamp"][0] for name in FILES}
    others = [
        f"{name} of {s['date']}, commit `{(s['commit'] or 'unknown')[:12]}`, load {s['load']:.1f}"
        for name, s in stamps.items()
        if s["run"] != stamp["run"] and s["date"][:10] != stamp["date"][:10]
    ]
    return f"Of another run are: {'; '.join(others)}." if others else ""


def _load(stamp: Record) -> str:
    """Whether other programs were running at the start of the run."""
    load = stamp.get("load")
    if load is None:
        return ""
    if load < 0.5:
        return f"The machine was quiet (load {load:.1f} at the start)."
    return (
        f"**Other programs were running** (load {load:.1f} at the start): that slows code with "
        "several threads most, eager torch on large batches above all, and makes every figure of "
        "time uncertain."
    )


def _rate_table(rates: Rates, batch: int) -> str:
    rows = []
    for method, (name, _, _) in METHODS.items():
        found = [rates.found.get((op, method, batch)) for op in rates.ops]
        if any(found):
            rows.append([name, *[short(v, 3) if v else "-" for v in found]])
    return table(["samples per second", *rates.ops], rows)


def _relative_table(rates: Rates) -> str:
    """twingrad's speed relative to textbook autodiff, at every batch size."""
    rows = []
    for way, pair in PAIRS.items():
        for batch in rates.batches:
            found = rates.over(*pair, batch)
            if found:
                cells = [short(found[op]) if op in found else "-" for op in rates.ops]
                rows.append([way, f"{batch:,}", *cells])
    return table(["speed relative to textbook autodiff", "batch", *rates.ops], rows)


def _first_call_table(calls: list[Record], ops: list[str]) -> str:
    seconds = {(r["op"], r["method"]): r["seconds"] for r in calls}
    compiled = [m for m in METHODS if "compiled" in m or "jax" in m]
    rows = [
        [label(m), *[short(seconds[op, m]) if (op, m) in seconds else "-" for op in ops]]
        for m in compiled
    ]
    return table(["first call, s", *ops], rows)


def _cost_table(costs: list[Record]) -> str:
    rows = [
        [
            r["way"],
            short(1e3 * r["accurate"]["median_s"], 3),
            short(1e3 * r["naive"]["median_s"], 3),
            quartiles(r["ratio"]),
        ]
        for r in costs
    ]
    return table(["", "accurate, ms", "textbook, ms", "ratio (quartiles)"], rows)


def throughput() -> str:
    data, rates = read("batched_throughput"), Rates()
    worst = max(r["difference"] for r in data["first_call"])
    return (
        "## Throughput\n\n"
        "The value of sum(g * op(inputs)) and its gradient in every input, for a batch of "
        "samples. A sample is 16 numbers: 16 mixture components, 16 values for the elementwise "
        "ops, a point in 16 dimensions. *Textbook* is autodiff of the plain formula, on inputs "
        "where that formula is still right; all methods' gradients agree there within "
        f"{worst:.0e}. `rosenbrock` is a host op: NumPy on the CPU, called once per batch. A "
        "function that really is external has no textbook row; this one has, to show the bound "
        "that no call out of the framework can reach. Code compiled by torch is compiled once "
        "for all sizes above 1 (`dynamic=True`), and not timed at 1. A dash: not run, "
        "as the loop at the largest size, where it takes too long.\n"
        + picture("samples per second over the batch size", "batched_throughput")
        + f"At {rates.batches[-1]:,} samples:\n\n"
        + _rate_table(rates, rates.batches[-1])
        + f"\nAt {rates.loop_batch:,} samples:\n\n"
        + _rate_table(rates, rates.loop_batch)
        + picture("speed relative to textbook autodiff", "relative_speed")
        + _relative_table(rates)
        + "\nWhat the accurate formula of `truncated_mixture_weights` costs over the textbook "
        f"one, value and gradient at {data['accuracy_cost'][0]['batch']:,} x 16:\n\n"
        + _cost_table(data["accuracy_cost"])
        + "\nThe first call, which compiles (for torch, once for all sizes; for JAX, for each "
        "size; shorter where the compiler's cache on disk is warm):\n\n"
        + _first_call_table(data["first_call"], rates.ops)
    )


def vmap_cost() -> str:
    data = read("vmap_cost")
    rows = [
        [
            r["op"],
            r["what"],
            short(1e3 * r["vmap"]["median_s"], 3),
            short(1e3 * r["native"]["median_s"], 3),
            quartiles(r["ratio"]),
        ]
        for r in data["eager"]
    ]
    kernels = [[r["op"], r["what"], r["vmap"], r["native"]] for r in data["compiled"]]
    return (
        "## What vmap costs in torch\n\n"
        f"{data['eager'][0]['batch']:,} samples of 16 numbers, in eager torch: `vmap(f)` over the "
        "samples next to the same call on the whole batch, and `vmap(grad(f))` next to the "
        "gradient of the sum. The aim for array ops was 1.2.\n\n"
        + table(["op", "what", "vmap, ms", "native, ms", "ratio (quartiles)"], rows)
        + "\nCompiled, the kernels that inductor makes:\n\n"
        + table(["op", "what", "vmap, kernels", "native, kernels"], kernels)
    )


def overhead() -> str:
    data = read("call_overhead")
    where = {"torch": "torch, eager", "jax": "JAX, jitted"}

    def cells(r: Record) -> list[str]:
        fastest = short(r["ratio"]["of_minima"], 3)
        return [microseconds(r["ours"]), microseconds(r["hand"]), quartiles(r["ratio"]), fastest]

    rows = [[r["op"], where[r["framework"]], r["what"], *cells(r)] for r in data["overhead"]]
    host = [[f"{r['size']:,}", *cells(r)] for r in data["host_overhead"]]
    head = ["op", "where", "what", "twingrad, us", "by hand, us", "ratio (quartiles)", "of fastest"]
    return (
        "## What a call costs\n\n"
        "Eight numbers. *By hand* is a `torch.autograd.Function` in setup_context style and a "
        "`jax.custom_vjp` with the same formula and rule. `softmin` is an op of two arguments, "
        "`(n),()->()`. The aims were 1.25 for torch and 1.05 for jitted JAX. The last column is "
        "the ratio of the fastest blocks, which other programs on the machine disturb least."
        "\n\n"
        + table(head, rows)
        + "\nThe host op `rosenbrock` in torch, value only, against its NumPy function called "
        "directly on an array that is there already:\n\n"
        + table(["numbers", "twingrad, us", "NumPy, us", *head[-2:]], host)
    )


def executors() -> str:
    runs = read("host_executors")["run"]
    rows = [
        [r["executor"], r["workers"], short(r["seconds"], 3), f"{r['error']:.0e}"] for r in runs
    ]
    first = runs[0]
    return (
        "## Expensive samples through executors\n\n"
        f"Value and adjoint of {first['samples']} samples by `vmap(grad)` in torch; each of the "
        f"{2 * first['samples']} calls keeps a core busy for {1e3 * first['work_s']:.0f} ms. Any "
        "`concurrent.futures.Executor` will do; the Dask workers are two local ones here.\n\n"
        + table(["executor", "workers", "seconds", "error of the gradient"], rows)
    )


def rosenbrock() -> str:
    rows = [
        [
            {"torch": "torch.optim", "jax": "optax, jitted step"}[r["framework"]],
            "yes" if r["noise"] else "no",
            r["starts"],
            f"{r['distance']['median']:.1g}",
            f"{r['distance']['max']:.1g}",
            f"{100 * r['within_a_tenth']:.0f}%",
            f"{r['value_calls']} / {r['adjoint_calls']}",
            short(r["seconds"]),
        ]
        for r in read("adjoint_rosenbrock")["run"]
    ]
    head = ["optimiser", "noise", "starts", "median distance", "largest", "within 0.1"]
    head += ["value / adjoint calls", "seconds"]
    return (
        "## An external function with an external adjoint\n\n"
        "The Rosenbrock function with a = 1, b = 5 and its gradient, as NumPy code that no "
        "autodiff sees. Adam with learning rate 0.1, 200 steps. With noise, value and gradient "
        "are each multiplied by a fresh uniform number in [0.5, 1.5] for every sample of every "
        "call. The single start is (0.1, 0.1), and its program is the one an asker writes: a "
        "leaf tensor, `loss.backward()`, `optimizer.step()`. The many starts are uniform in "
        "[-2, 2]^2; from the far ones 200 such steps do not reach the minimum at (1, 1), with "
        "or without noise. Seconds include compiling.\n\n"
        + table(head, rows)
        + picture("paths on the contours, dots at their ends", "adjoint_rosenbrock")
    )


def fit() -> str:
    data = read("truncated_mixture_fit")
    setting, fits = data["setting"][0], data["fit"]
    best = fits[0]
    rows = [["truth", "", f"{setting['loss_at_truth']:.5f}", "", *_three(setting["truth"])]]
    for f in fits:
        done = [f"{f['loss']:.5f}", f"{f['gradient_size']:.0e}", *_three(f["theta"])]
        rows.append([f"{f['gradient']} gradient", f["framework"], *done])
    rows.append(["standard error", "", "", "", *_three(best["errors"])])
    for f in fits:
        away = [f"{v:+.1f}" for v in off(f, setting, best)]
        rows.append([f"{f['gradient']}: error / standard error", f["framework"], "", "", *away])
    head = ["", "framework", "loss", "slope left", *setting["names"]]
    return (
        "## Fitting a truncated mixture\n\n"
        f"{setting['samples']:,} samples of a mixture of two normal laws, cut off to "
        f"{setting['window']}; maximum likelihood with Adam, {setting['steps']} steps. *Loss* is "
        "the negative log-likelihood per sample; *slope left* the largest entry of its right "
        "gradient at the end. The posted gradient drops the cross terms, divides by s once too "
        "often and adds eps to s in the forward pass only. Standard errors are from the Hessian "
        "at the fit, by the op's second derivatives.\n\n"
        + table(head, rows)
        + "\nTwice the log of the likelihood ratio between the fit with the right gradient and "
        f"the truth is {best['truth_statistic']:.1f}; by chance alone it would exceed 11.1 in one "
        f"case of 20 (chi-squared, five degrees of freedom). {_posted(setting, fits)}\n"
        + picture("densities, and the loss over the steps", "truncated_mixture_fit")
    )


def _three(values: list[float | None]) -> list[str]:
    return ["-" if v is None else f"{v:.3f}" for v in values]


def _posted(setting: Record, fits: list[Record]) -> str:
    found = {f["gradient"]: f["loss"] for f in fits}
    statistic = 2 * setting["samples"] * (found["posted"] - found["right"])
    return (
        f"Between the right fit and the one with the posted gradient it is {statistic:.0f}: "
        "that one has come to rest, but at a point that is not the maximum."
    )


def main() -> None:
    parts = ["# Experiments\n", findings(), setting()]
    parts += [throughput(), vmap_cost(), overhead(), executors()]
    parts += [diffusion(), peers(), gradient_check(), special(), rosenbrock(), fit()]
    (RESULTS / "REPORT.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
