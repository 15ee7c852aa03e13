"""The figures that the report opens with, computed from the results files alone."""

from __future__ import annotations

import numpy as np

from experiments.measure.records import Record, read
from experiments.report.check import gradient_check_finding
from experiments.report.methods import PAIRS
from experiments.report.sparse import diffusion_finding, peers_finding
from experiments.report.wording import short, spread

LOOP, BATCH = "scipy_loop", "scipy_batch"


class Rates:
    """Samples per second by op, method and batch size."""

    def __init__(self) -> None:
        records = read("batched_throughput")["rate"]
        self.found = {(r["op"], r["method"], r["batch"]): r["samples_per_s"] for r in records}
        self.ops = list(dict.fromkeys(r["op"] for r in records))
        self.batches = sorted({r["batch"] for r in records})
        self.loop_batch = max(b for _, m, b in self.found if m == LOOP)

    def over(self, ours: str, theirs: str, batch: int) -> dict[str, float]:
        """How many times faster one method is than another, by op, where both were run."""
        pairs = {op: [self.found.get((op, m, batch)) for m in (ours, theirs)] for op in self.ops}
        return {op: a / b for op, (a, b) in pairs.items() if a and b}


def _throughput(rates: Rates) -> list[str]:
    batch, top = rates.loop_batch, rates.batches[-1]
    loop = "; ".join(
        f"{way} {spread(rates.over(ours, LOOP, batch).values())}"
        for way, (ours, _) in PAIRS.items()
    )
    found = {way: rates.over(*pair, top) for way, pair in PAIRS.items()}
    even = "; ".join(f"{way} {spread(r.values())}" for way, r in found.items())
    slower = [
        f"{op} in {way} ({short(r)})" for way, rs in found.items() for op, r in rs.items() if r < 1
    ]
    whole = "; ".join(
        f"{way} {spread(rates.over(ours, BATCH, top).values())}" for way, (ours, _) in PAIRS.items()
    )
    lines = [
        f"**Against the way of today**, SciPy with a gradient by hand in a Python loop over "
        f"{batch:,} samples, twingrad's speed, over the ops, is: {loop}. Against the same code "
        f"written for the whole batch at once, at {top:,}: {whole}.",
        f"**Against autodiff of the textbook formula**, run the same way, its speed at a batch of "
        f"{top:,} is: {even}. Below 1 it is slower. The textbook formulas are cheaper, and wrong "
        "in the tails.",
    ]
    if slower:
        lines.append(f"**Where twingrad is slower** at that batch: {', '.join(slower)}.")
    return lines


def _cost() -> str:
    costs = read("batched_throughput")["accuracy_cost"]
    listed = ", ".join(f"{short(r['ratio']['median'])} times in {r['way']}" for r in costs)
    return (
        f"**The accurate `truncated_mixture_weights` costs** {listed} the textbook one, at "
        f"{costs[0]['batch']:,} x 16. A prototype that evaluated every branch paid 14 times."
    )


def _overhead() -> list[str]:
    data = read("call_overhead")

    def ratios(framework: str) -> str:
        found = [r["ratio"] for r in data["overhead"] if r["framework"] == framework]
        medians, fastest = ([r[key] for r in found] for key in ("median", "of_minima"))
        return f"{spread(medians, 3)} times (fastest blocks: {spread(fastest, 3)})"

    first, last = data["host_overhead"][0], data["host_overhead"][-1]
    extra = 1e6 * (first["ours"]["median_s"] - first["hand"]["median_s"])
    return [
        f"**A small call** costs {ratios('torch')} the same mathematics in a hand-written "
        f"Function in eager torch, aim 1.25; and {ratios('jax')} a hand-written custom_vjp in "
        "jitted JAX, aim 1.05.",
        f"**A host op in torch** adds about {short(extra)} us to calling the NumPy function "
        f"itself; at {last['size']:,} numbers it costs {short(last['ratio']['median'], 3)} times "
        "the function alone.",
    ]


def _vmap_cost() -> str:
    data = read("vmap_cost")
    found = [r["ratio"]["median"] for r in data["eager"] if r["op"] != "rosenbrock"]
    host = [r["ratio"]["median"] for r in data["eager"] if r["op"] == "rosenbrock"]
    same = all(r["vmap"] == r["native"] for r in data["compiled"])
    return (
        f"**vmap in eager torch** costs {spread(found, 3)} times the call on the whole batch for "
        f"the array ops, aim 1.2, and {spread(host, 3)} times for the host op; compiled, it makes "
        f"{'the same number of' if same else 'other'} kernels."
    )


def _compile_times() -> str:
    calls = read("batched_throughput")["first_call"]

    def seconds(method: str) -> str:
        return spread([r["seconds"] for r in calls if r["method"] == method])

    return (
        f"**The first call of a compiled op is slow**: {seconds('twingrad_torch_compiled')} s "
        f"with torch.compile and {seconds('twingrad_jax')} s with jax.jit, against "
        f"{seconds('torch_autodiff_compiled')} s and {seconds('jax_autodiff')} s for the textbook "
        "formulas (less where a compiler's cache on disk is warm)."
    )


def _rosenbrock() -> str:
    data = read("adjoint_rosenbrock")
    ones = [r for r in data["run"] if r["starts"] == 1]
    many = [r for r in data["run"] if r["starts"] > 1]
    exact = max(r["distance"]["max"] for r in ones if not r["noise"])
    noisy = max(r["distance"]["max"] for r in ones if r["noise"])
    per_step = {r["value_calls"] / r["steps"] for r in data["run"]}
    per_step |= {r["adjoint_calls"] / r["steps"] for r in data["run"]}
    calls = "one value and one adjoint call" if per_step == {1.0} else f"calls: {per_step}"
    return (
        f"**The external function with an external adjoint** ends {exact:.1g} from the minimum "
        f"when exact and {noisy:.1g} when noisy, after {ones[0]['steps']} Adam steps from "
        f"(0.1, 0.1). Each step, for one start or {many[0]['starts']} by vmap, is {calls}. torch "
        f"and JAX take the same path, within {max(r['apart'] for r in data['paths']):.0e}."
    )


def _fit() -> str:
    data = read("truncated_mixture_fit")
    setting, fits = data["setting"][0], data["fit"]
    right = [f for f in fits if f["gradient"] == "right"]
    posted = [f for f in fits if f["gradient"] == "posted"]
    worst = max(np.abs(off(f, setting, right[0])).max() for f in right)
    wrong = max(np.abs(off(f, setting, right[0])).max() for f in posted)
    lost = setting["samples"] * (posted[0]["loss"] - right[0]["loss"])
    return (
        f"**The truncated mixture fit** finds every parameter within {worst:.1f} standard errors "
        "of the truth in both frameworks. With the gradient that is usually posted the optimiser "
        f"settles elsewhere: a parameter is off by {wrong:.1f} standard errors, and the "
        f"log-likelihood is {lost:.0f} lower."
    )


def off(fit: Record, setting: Record, errors_of: Record) -> np.ndarray:
    """A fit's distance from the truth, in the standard errors of the same or another fit."""
    errors = np.array([np.nan if e is None else e for e in errors_of["errors"]])
    return (np.array(fit["theta"]) - setting["truth"]) / errors


def findings() -> str:
    rates = Rates()
    lines = [
        *_throughput(rates),
        _cost(),
        *_overhead(),
        _vmap_cost(),
        _compile_times(),
        diffusion_finding(),
        peers_finding(),
        gradient_check_finding(),
        _rosenbrock(),
        _fit(),
    ]
    return "## Findings\n\n" + "".join(f"- {line}\n" for line in lines)
