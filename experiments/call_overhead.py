"""What one small call costs, next to the same mathematics written out for one framework.

Ratios of twingrad to a hand-written `torch.autograd.Function` (setup_context style) and a
hand-written `jax.custom_vjp` with the same forward and the same rule, on 8 numbers, timed in
turns.  And of the host op to calling its NumPy function directly, for 1 to 1e6 numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from tqdm import tqdm

import twingrad.interop.jax
import twingrad.interop.torch
import twingrad.ops.torch
from experiments.measure.harness import Recorder, Timing, interleave, one_thread, ratio, tensor
from twingrad import ops
from twingrad.interop import define

SIZES = (1, 1_000, 1_000_000)
_LOG_2 = 0.6931471805599453


def log1mexp(xp: Any, x: Any) -> Any:
    return xp.where(x > -_LOG_2, xp.log(-xp.expm1(x)), xp.log1p(-xp.exp(x)))


def log1mexp_vjp(xp: Any, ct: Any, out: Any, x: Any) -> Any:
    return -ct / xp.expm1(-x)


def softmin(xp: Any, x: Any, eps: Any) -> Any:
    low = xp.amin(x, -1)
    total = xp.exp((low[..., None] - x) / eps[..., None]).sum(-1)
    return low - eps * xp.log(total)


def softmin_vjp(xp: Any, ct: Any, out: Any, x: Any, eps: Any) -> Any:
    p = xp.exp((out[..., None] - x) / eps[..., None])
    return ct[..., None] * p, ct * (out - (p * x).sum(-1)) / eps


RULES = {"log1mexp": (log1mexp, log1mexp_vjp), "softmin": (softmin, softmin_vjp)}
SIGNATURES = {"log1mexp": "()->()", "softmin": "(n),()->()"}
INPUTS = {
    "log1mexp": (np.linspace(-3.0, -0.1, 8),),
    "softmin": (np.linspace(-1.0, 1.0, 8), np.array(0.5)),
}


def hand_torch(forward: Callable[..., Any], vjp: Callable[..., Any]) -> Any:
    class Hand(torch.autograd.Function):
        @staticmethod
        def forward(*inputs: torch.Tensor) -> torch.Tensor:
            return forward(torch, *inputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs, output)

        @staticmethod
        def backward(ctx: Any, ct: torch.Tensor) -> Any:
            *inputs, out = ctx.saved_tensors
            return vjp(torch, ct, out, *inputs)

    return Hand.apply


def hand_jax(forward: Callable[..., Any], vjp: Callable[..., Any]) -> Any:
    @jax.custom_vjp
    def hand(*inputs: jax.Array) -> jax.Array:
        return forward(jnp, *inputs)

    def fwd(*inputs: jax.Array) -> Any:
        out = hand(*inputs)
        return out, (inputs, out)

    def bwd(saved: Any, ct: jax.Array) -> Any:
        found = vjp(jnp, ct, saved[1], *saved[0])
        return found if isinstance(found, tuple) else (found,)

    hand.defvjp(fwd, bwd)
    return hand


def as_op(name: str) -> Any:
    forward, vjp = RULES[name]
    op = define(SIGNATURES[name])(forward)
    op.def_vjp(vjp)
    return op


def torch_calls(function: Any, arrays: Any) -> dict[str, Callable[[], Any]]:
    plain = tuple(tensor(x) for x in arrays)
    leaves = tuple(tensor(x).requires_grad_() for x in arrays)
    return {
        "call": lambda: function(*plain),
        "call and gradient": lambda: torch.autograd.grad(function(*leaves).sum(), leaves),
    }


def jax_calls(function: Any, arrays: Any) -> dict[str, Callable[[], Any]]:
    args = tuple(jnp.asarray(x) for x in arrays)
    call = jax.jit(function)
    every = tuple(range(len(args)))
    both = jax.jit(jax.value_and_grad(lambda *x: function(*x).sum(), argnums=every))
    return {"call": lambda: call(*args), "call and gradient": lambda: both(*args)}


def compare(recorder: Recorder, name: str, framework: str) -> None:
    op, (forward, vjp) = as_op(name), RULES[name]
    if framework == "torch":
        ours, hand, calls = twingrad.interop.torch.bind(op), hand_torch(forward, vjp), torch_calls
    else:
        ours, hand, calls = twingrad.interop.jax.bind(op), hand_jax(forward, vjp), jax_calls
    mine, theirs = calls(ours, INPUTS[name]), calls(hand, INPUTS[name])
    for what in mine:
        times = interleave(
            {"ours": mine[what], "hand": theirs[what]}, budget_s=1.2, block_s=0.005, most=400
        )
        record(recorder, "overhead", times, op=name, framework=framework, what=what)


def record(recorder: Recorder, kind: str, times: dict[str, Timing], **what: Any) -> None:
    found = {name: timing.summary() for name, timing in times.items()}
    recorder.add(kind, **what, **found, ratio=ratio(times["ours"], times["hand"]))


def compare_host(recorder: Recorder, size: int) -> None:
    """The torch host op, against its NumPy function on an array that is there already."""
    x = np.random.default_rng(0).uniform(-1, 1, size)
    given, batch = torch.from_numpy(x), x[None]
    f = twingrad.ops.torch.rosenbrock
    times = interleave(
        {
            "ours": lambda: f(given),
            "hand": lambda: ops.rosenbrock.forward(np, batch, a=1.0, b=5.0),
        },
        budget_s=1.0,
        most=400,
    )
    record(recorder, "host_overhead", times, op="rosenbrock", framework="torch", size=size)


def main() -> None:
    recorder = Recorder("call_overhead")
    cases = [(name, framework) for name in RULES for framework in ("torch", "jax")]
    with tqdm(total=len(cases) + len(SIZES), desc="overhead of a call") as bar:
        for name, framework in cases:
            with one_thread():
                compare(recorder, name, framework)
            bar.update()
        for size in SIZES:
            compare_host(recorder, size)
            bar.update()


if __name__ == "__main__":
    main()
