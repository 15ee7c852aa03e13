"""How the experiments measure and record.

`interleave` times several methods in turns, so that their ratios hold on a machine whose
speed drifts.  `Recorder` writes JSON lines; the first line of a file is the stamp of the
run (machine, versions, commit, date), and every other line names that run.
"""

from __future__ import annotations

import datetime
import functools
import gc
import importlib.metadata
import json
import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

from experiments.measure.records import RESULTS, ROOT

jax.config.update("jax_enable_x64", True)

PACKAGES = ("torch", "jax", "jaxlib", "numpy", "scipy", "optax", "twingrad")


@functools.cache
def torch_device() -> torch.device:
    """The GPU where torch has one, the CPU otherwise."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@functools.cache
def devices() -> dict[str, str]:
    """Where each framework runs, in words."""
    on_gpu = torch_device().type == "cuda"
    jax_device = jax.devices()[0]
    jax_on_gpu = jax_device.platform != "cpu"
    return {
        "torch": f"GPU {torch.cuda.get_device_name()}" if on_gpu else "CPU",
        "jax": f"GPU {jax_device.device_kind}" if jax_on_gpu else "CPU",
    }


def describe_devices() -> str:
    """One line that says which device is used."""
    return ", ".join(f"{name} on {where}" for name, where in devices().items())


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: on small tensors more of them only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def tensor(x: Any, device: torch.device | None = None) -> torch.Tensor:
    """A float64 tensor on the chosen device."""
    return torch.as_tensor(np.asarray(x), dtype=torch.float64, device=device or torch_device())


def wait(result: Any) -> None:
    """Return when the device has finished computing the result."""
    leaf = result
    while isinstance(leaf, tuple | list) and leaf:
        leaf = leaf[-1]
    if isinstance(leaf, jax.Array):
        jax.block_until_ready(result)
    elif isinstance(leaf, torch.Tensor) and leaf.is_cuda:
        torch.cuda.synchronize()


@dataclass
class Timing:
    """Seconds per call of one method: one entry per block of calls."""

    calls: int
    blocks: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.blocks)

    def summary(self) -> dict[str, float]:
        """What is recorded of it."""
        q1, q3 = np.percentile(self.blocks, [25, 75])
        return {
            "median_s": self.median,
            "min_s": min(self.blocks),
            "q1_s": float(q1),
            "q3_s": float(q3),
            "blocks": len(self.blocks),
            "calls_per_block": self.calls,
        }


def _block(method: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        wait(method())
    return time.perf_counter() - start


def _calibrate(method: Callable[[], Any], block_s: float) -> int:
    """Warm up, and find how many calls fill a block."""
    wait(method())
    calls = 1
    while True:
        took = _block(method, calls)
        if took >= block_s / 2 or calls >= 1 << 16:
            return max(1, round(calls * block_s / took))
        calls = max(2 * calls, math.ceil(calls * block_s / max(took, 1e-9) / 2))


@contextmanager
def _no_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def interleave(
    methods: dict[str, Callable[[], Any]],
    *,
    budget_s: float = 0.15,
    block_s: float = 0.01,
    least: int = 3,
    most: int = 200,
) -> dict[str, Timing]:
    """Time the methods in turns, A B C A B C ..., each call waited for.

    Rounds are added until each method has had `budget_s` on average; never fewer than
    `least` rounds nor more than `most`.
    """
    timings = {name: Timing(_calibrate(method, block_s)) for name, method in methods.items()}
    spent, rounds = 0.0, 0
    with _no_gc():
        while rounds < least or (spent < budget_s * len(methods) and rounds < most):
            for name, method in methods.items():
                took = _block(method, timings[name].calls)
                timings[name].blocks.append(took / timings[name].calls)
                spent += took
            rounds += 1
    return timings


def ratio(timing: Timing, to: Timing) -> dict[str, float]:
    """How many times slower than another method of the same rounds: median and quartiles."""
    found = [a / b for a, b in zip(timing.blocks, to.blocks, strict=True)]
    q1, q2, q3 = np.percentile(found, [25, 50, 75])
    best = min(timing.blocks) / min(to.blocks)
    return {"median": float(q2), "q1": float(q1), "q3": float(q3), "of_minima": best}


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(*args: str) -> str | None:
    try:
        done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def stamp() -> dict[str, Any]:
    """What a reader must know of the run to judge its figures."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    affinity = getattr(os, "sched_getaffinity", None)
    changed = _git("status", "--porcelain", "--", "interop", "ops", "experiments/*.py")
    return {
        "run": now.strftime("%Y%m%dT%H%M%SZ"),
        "date": now.isoformat(),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": None if changed is None else bool(changed),
        "cpu": _cpu_model(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "device": devices(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


class Recorder:
    """Writes one experiment's results, line by line, with the stamp first."""

    def __init__(self, experiment: str, results: Path = RESULTS) -> None:
        results.mkdir(parents=True, exist_ok=True)
        self.path = results / f"{experiment}.jsonl"
        self.path.write_text("")
        self.add("stamp", **stamp())

    def add(self, record: str, **values: Any) -> None:
        """Append one line."""
        line = {"record": record, **{"run": stamp()["run"], **values}}
        with self.path.open("a") as file:
            file.write(json.dumps(_plain(line)) + "\n")


def _plain(value: Any) -> Any:
    """The value in types that JSON has; floats to ten digits."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, torch.Tensor):
        return _plain(value.detach().cpu().numpy())
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, float):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value
