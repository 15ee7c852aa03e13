"""How many samples per second: forward and gradient of a batch, by every method.

For each op and batch size, sum(g * op(*inputs)) and its gradient in every input.  A sample
is 16 numbers: 16 mixture components, a row of 16 values, a point in 16 dimensions.  All in
float64.  The methods are timed in turns, and checked against each other first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.scipy.special import ndtr as jax_ndtr
from tqdm import tqdm

import twingrad.ops.jax
import twingrad.ops.torch
from experiments.measure.harness import Recorder, describe_devices, interleave, ratio, tensor
from experiments.problems import textbook

SIZE = 16
BATCHES = (1, 32, 1024, 32768)
LOOP_LIMIT = 1024  # a Python loop over more samples than this takes too long
COST_OP, COST_BATCH = "truncated_mixture_weights", 20000

LOOP, NUMPY = "scipy_loop", "scipy_batch"
TORCH_AUTO, TORCH_AUTO_COMPILED = "torch_autodiff", "torch_autodiff_compiled"
TORCH, TORCH_VMAP = "twingrad_torch", "twingrad_torch_vmap"
COMPILED, COMPILED_VMAP = "twingrad_torch_compiled", "twingrad_torch_compiled_vmap"
JAX_AUTO, JAX, JAX_VMAP = "jax_autodiff", "twingrad_jax", "twingrad_jax_vmap"

Method = Callable[..., Any]


def weighted(function: Method) -> Method:
    """(g, *inputs) -> sum(g * function(*inputs)): the same for one sample and a batch."""
    return lambda g, *inputs: (g * function(*inputs)).sum()


def numpy_methods(name: str) -> dict[str, Method]:
    """The way of today: SciPy and a gradient by hand, sample by sample; and vectorised."""
    hand = textbook.HAND[name]

    def loop(*args: np.ndarray) -> Any:
        found = [hand(*sample) for sample in zip(*args, strict=True)]
        return tuple(np.stack(x) for x in zip(*found, strict=True))

    return {LOOP: loop, NUMPY: hand}


def torch_eager(function: Method) -> Method:
    """Gradients by the ordinary backward pass."""
    loss = weighted(function)

    def run(g: torch.Tensor, *inputs: torch.Tensor) -> Any:
        leaves = [x.detach().requires_grad_() for x in inputs]
        value = loss(g, *leaves)
        return value.detach(), torch.autograd.grad(value, leaves)

    return run


def torch_methods(name: str, count: int) -> dict[str, Method]:
    op = getattr(twingrad.ops.torch, name)
    argnums = tuple(range(1, count))

    def plain(*inputs: torch.Tensor) -> torch.Tensor:
        return textbook.FORWARD[name](torch, torch.special.ndtr, *inputs)

    def gradient(function: Method) -> Method:
        both = torch.func.grad_and_value(weighted(function), argnums=argnums)
        return lambda *args: both(*args)[::-1]

    def compiled(function: Method) -> Method:
        return torch.compile(function, fullgraph=True, dynamic=True)

    batched = torch.func.vmap(gradient(op))
    return {
        TORCH_AUTO: torch_eager(plain),
        TORCH: torch_eager(op),
        TORCH_VMAP: batched,
        TORCH_AUTO_COMPILED: compiled(gradient(plain)),
        COMPILED: compiled(gradient(op)),
        COMPILED_VMAP: compiled(batched),
    }


def jax_methods(name: str, count: int) -> dict[str, Method]:
    op = getattr(twingrad.ops.jax, name)
    argnums = tuple(range(1, count))

    def plain(*inputs: jax.Array) -> jax.Array:
        return textbook.FORWARD[name](jnp, jax_ndtr, *inputs)

    def gradient(function: Method) -> Method:
        return jax.value_and_grad(weighted(function), argnums=argnums)

    return {
        JAX_AUTO: jax.jit(gradient(plain)),
        JAX: jax.jit(gradient(op)),
        JAX_VMAP: jax.jit(jax.vmap(gradient(op))),
    }


def methods_of(name: str) -> dict[str, Method]:
    count = len(textbook.inputs(name, 1, SIZE))
    return {**numpy_methods(name), **torch_methods(name, count), **jax_methods(name, count)}


def suits(method: str, batch: int) -> bool:
    """Whether a method runs at this size: the loop not at the largest, and compiled code
    not at 1, which torch treats as a special case and compiles for once more."""
    return batch <= LOOP_LIMIT if method == LOOP else batch > 1 or "compiled" not in method


def calls_of(methods: dict[str, Method], name: str, batch: int) -> dict[str, Callable[[], Any]]:
    """The methods as functions of nothing, each with inputs of its own framework."""
    arrays = textbook.inputs(name, batch, SIZE)
    tensors = tuple(tensor(x) for x in arrays)
    jax_arrays = tuple(jnp.asarray(x) for x in arrays)

    def call(method: str, run: Method) -> Callable[[], Any]:
        args = arrays if "scipy" in method else jax_arrays if "jax" in method else tensors
        return lambda: run(*args)

    return {m: call(m, run) for m, run in methods.items() if suits(m, batch)}


def largest_difference(result: Any, expected: tuple[Any, ...]) -> float:
    """Between the gradients of two methods, relative to the largest entry of each."""
    grads = result[1] if len(result) == 2 and isinstance(result[1], tuple) else result[1:]
    worst = 0.0
    for g, e in zip(grads, expected, strict=True):
        g = g.cpu().numpy() if isinstance(g, torch.Tensor) else np.asarray(g)
        worst = max(worst, float(np.abs(g - e).max() / np.abs(e).max()))
    return worst


def first_calls(calls: dict[str, Callable[[], Any]], name: str, recorder: Recorder) -> None:
    """The first call of each method, which compiles, and a check of its result."""
    expected = calls[NUMPY]()[1:]
    for method, call in calls.items():
        start = time.perf_counter()
        result = call()
        took = time.perf_counter() - start
        difference = largest_difference(result, expected)
        recorder.add("first_call", op=name, method=method, seconds=took, difference=difference)
        if not difference < 1e-9:
            raise RuntimeError(f"{name} by {method} is off by {difference}")


def main() -> None:
    recorder = Recorder("batched_throughput")
    names = tuple(textbook.FORWARD)
    steps = len(names) * (1 + len(BATCHES)) + 1
    with tqdm(total=steps, desc=f"throughput ({describe_devices()})") as bar:
        for name in names:
            methods = methods_of(name)
            first_calls(calls_of(methods, name, BATCHES[1]), name, recorder)
            bar.update()
            for batch in BATCHES:
                measure(methods, name, batch, recorder)
                bar.update()
            if name == COST_OP:
                measure_cost(methods, recorder)
                bar.update()
            torch._dynamo.reset()


def measure(methods: dict[str, Method], name: str, batch: int, recorder: Recorder) -> None:
    timings = interleave(calls_of(methods, name, batch), budget_s=0.06)
    for method, timing in timings.items():
        rate = batch / timing.median
        recorder.add(
            "rate", op=name, batch=batch, method=method, samples_per_s=rate, **timing.summary()
        )


def measure_cost(methods: dict[str, Method], recorder: Recorder) -> None:
    """What the accurate formula costs over the textbook one, in each way of running it."""
    pairs = {
        "torch eager": (TORCH, TORCH_AUTO),
        "torch compiled": (COMPILED, TORCH_AUTO_COMPILED),
        "JAX jitted": (JAX, JAX_AUTO),
    }
    kept = {m: methods[m] for pair in pairs.values() for m in pair}
    timings = interleave(calls_of(kept, COST_OP, COST_BATCH), budget_s=0.4, least=5)
    for way, (accurate, naive) in pairs.items():
        recorder.add(
            "accuracy_cost",
            op=COST_OP,
            batch=COST_BATCH,
            way=way,
            accurate=timings[accurate].summary(),
            naive=timings[naive].summary(),
            ratio=ratio(timings[accurate], timings[naive]),
        )


if __name__ == "__main__":
    main()
