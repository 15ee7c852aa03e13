"""An expensive host function of one sample, through executors: 16 samples of 50 ms of work.

One after the other, in threads, in processes and on the workers of a Dask cluster (all on this
machine here; a Dask client of a real cluster is used the same way).  The op and its gradient
are those of torch; results come in order and are the same everywhere.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from distributed import Client
from tqdm import tqdm

import twingrad.interop.torch
from experiments.measure.harness import Recorder
from twingrad.interop import Host, from_numpy

SAMPLES, WORK_S, WORKERS = 16, 0.05, 2


def simulate(x: np.ndarray) -> Any:
    """A stand-in for a simulator that keeps one core busy: NumPy lets other threads run."""
    _work()
    return np.sin(x).sum()


def simulate_adjoint(ct: Any, x: np.ndarray) -> Any:
    _work()
    return ct * np.cos(x)


def _work() -> None:
    end = time.thread_time() + WORK_S
    matrix = np.eye(64)
    while time.thread_time() < end:
        matrix = matrix @ matrix


def executors(stack: ExitStack) -> dict[str, Executor | None]:
    spawn = multiprocessing.get_context("spawn")
    client = stack.enter_context(
        Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
    )
    return {
        "one after the other": None,
        "threads": stack.enter_context(ThreadPoolExecutor(WORKERS)),
        "processes": stack.enter_context(ProcessPoolExecutor(WORKERS, mp_context=spawn)),
        "Dask": client.get_executor(),
    }


def main() -> None:
    recorder = Recorder("host_executors")
    x = torch.from_numpy(np.linspace(-1, 1, SAMPLES * 3).reshape(SAMPLES, 3))
    with ExitStack() as stack:
        for name, executor in tqdm(executors(stack).items(), desc="executors"):
            op = from_numpy(
                simulate,
                signature="(n)->()",
                vjp=simulate_adjoint,
                host=Host(vectorize=True, executor=executor),
            )
            gradient = torch.func.vmap(torch.func.grad(twingrad.interop.torch.bind(op)))
            gradient(x)  # starts the workers
            start = time.perf_counter()
            found = gradient(x)
            seconds = time.perf_counter() - start
            error = float((found - torch.cos(x)).abs().max())
            recorder.add(
                "run",
                executor=name,
                workers=1 if executor is None else WORKERS,
                samples=SAMPLES,
                work_s=WORK_S,
                seconds=seconds,
                error=error,
            )


if __name__ == "__main__":
    main()
