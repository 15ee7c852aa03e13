"""Runs every experiment, then the plots and the report: what `make experiments` calls."""

from __future__ import annotations

import time

from tqdm import tqdm

from experiments import (
    adjoint_rosenbrock,
    batched_throughput,
    call_overhead,
    diffusion_fit,
    gradient_check,
    host_executors,
    sparse_peers,
    special_functions,
    truncated_mixture_fit,
    vmap_cost,
)
from experiments.report import document, plots

PARTS = (
    call_overhead,
    adjoint_rosenbrock,
    truncated_mixture_fit,
    host_executors,
    diffusion_fit,
    sparse_peers,
    special_functions,
    gradient_check,
    batched_throughput,
    vmap_cost,
    plots,
    document,
)


def main() -> None:
    start = time.perf_counter()
    for part in tqdm(PARTS, desc="all experiments"):
        part.main()
    print(f"\n{document.REPORT} written in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
