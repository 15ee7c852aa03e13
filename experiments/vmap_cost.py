"""What torch.func.vmap costs over giving the op the batch itself: 65,536 samples of 16 numbers.

In eager torch the same calls are timed in turns.  Compiled, the kernels that inductor makes
are counted, too: vmap must leave nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.config
import torch._inductor.metrics
from tqdm import tqdm

import twingrad.ops.torch
from experiments.measure.harness import Recorder, interleave, ratio, tensor
from experiments.problems import textbook

BATCH, SIZE = 65_536, 16
COMPILED = ("truncated_mixture_weights", "log1mexp")

Call = Callable[..., Any]


def calls(name: str, count: int) -> dict[str, tuple[Call, Call]]:
    """what -> (native, vmapped): functions of (g, *inputs), one for the value only."""
    op = getattr(twingrad.ops.torch, name)
    argnums = tuple(range(1, count))

    def value(g: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        return op(*inputs)

    def loss(g: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        return (g * op(*inputs)).sum()

    gradient = torch.func.grad(loss, argnums=argnums)
    return {
        "call": (value, torch.func.vmap(value)),
        "gradient": (gradient, torch.func.vmap(gradient)),
    }


def compare(recorder: Recorder, name: str) -> None:
    args = [tensor(x) for x in textbook.inputs(name, BATCH, SIZE)]
    for what, (native, vmapped) in calls(name, len(args)).items():
        times = interleave(
            {"native": lambda f=native: f(*args), "vmap": lambda f=vmapped: f(*args)},
            budget_s=0.8,
            most=60,
        )
        found = {key: timing.summary() for key, timing in times.items()}
        both = ratio(times["vmap"], times["native"])
        recorder.add("eager", op=name, what=what, batch=BATCH, **found, ratio=both)


def kernels(function: Call, args: list[torch.Tensor]) -> int:
    """How many kernels the compiled function has."""
    torch._dynamo.reset()
    torch._inductor.metrics.reset()
    torch.compile(function, fullgraph=True)(*args)
    return torch._inductor.metrics.generated_kernel_count


def compare_compiled(recorder: Recorder, name: str) -> None:
    args = [tensor(x) for x in textbook.inputs(name, BATCH, SIZE)]
    for what, (native, vmapped) in calls(name, len(args)).items():
        with torch._inductor.config.patch(force_disable_caches=True):
            found = {"native": kernels(native, args), "vmap": kernels(vmapped, args)}
        recorder.add("compiled", op=name, what=what, batch=BATCH, **found)


def main() -> None:
    recorder = Recorder("vmap_cost")
    names = list(textbook.HAND)
    with tqdm(total=len(names) + len(COMPILED), desc="cost of vmap") as bar:
        for name in names:
            compare(recorder, name)
            bar.update()
        for name in COMPILED:
            compare_compiled(recorder, name)
            bar.update()


if __name__ == "__main__":
    main()
