"""Compiled kernels: one, and how many of them an op may have."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental import _config

from twingrad.interop.op.framework import Arrays
from twingrad.interop.op.samples.forks import Turns
from twingrad.interop.torch.graphs.traced import gone

# Kernels of one op.  There is one for its function and for each of its rules, for each
# combination of dtypes, of arguments with a batch and with a gradient, for each value of the
# static parameters.
MOST = 64
FIRST = Turns()  # to make a kernel: torch would make one for each thread that waits
_SIZES: Any = _config
_compile: Any = torch.compile
_HELP = (
    "a C++ compiler is needed on the CPU, Triton on a GPU; the function and the rules must be "
    "such as torch.compile(fullgraph=True) takes"
)


class Budget:
    """When an op uses kernels, how many it has, and whether it was said that it lacks one."""

    def __init__(self, label: str, least: int) -> None:
        self.label, self.least, self.count, self.warned = label, least, 0, False

    def take(self) -> bool:
        """Whether there may be one more."""
        if self.count == MOST:
            self.warn(f"it has {MOST} compiled kernels, which is the most that an op may have")
            return False
        self.count += 1
        return True

    def warn(self, why: str) -> None:
        """Say, once for an op, that it runs as it does without ``fused=True``."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.label}: runs in part without a fused kernel, right but slower: {why}",
                RuntimeWarning,
                stacklevel=2,
            )


class Compiled:
    """A function of tensors that is compiled at its first call, for sizes that may change."""

    def __init__(self, budget: Budget, name: str, function: Callable[..., Arrays]) -> None:
        self.budget, self.function, self.ready, self.why = budget, function, False, ""
        # what torch compiled it keeps, and that must not hold the op
        alive, none = weakref.ref(self), gone(budget.label)

        def evaluate(*arrays: torch.Tensor) -> Arrays:
            kernel = alive()
            return none() if kernel is None else kernel.function(*arrays)

        torch.compiler.allow_in_graph(evaluate)

        def run(*arrays: torch.Tensor) -> Arrays:
            return evaluate(*arrays)

        # Dynamo keeps what it compiled by code object: each kernel has one of its own
        run.__code__ = run.__code__.replace(co_name=name)
        self.run: Any = _compile(run, dynamic=True, fullgraph=True)

    def __call__(self, arrays: Arrays) -> Arrays | None:
        """The results; None where they must be computed without a kernel."""
        if self.why:
            return None
        try:
            if self.ready:
                return self.run(*arrays)  # type: ignore[no-any-return]
            # without the patch, sizes that are equal by chance would have to stay so
            with FIRST.lock, _SIZES.patch(use_duck_shape=False):
                found = self.run(*arrays)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            self.why = f"{type(error).__name__}: {first} ({_HELP})"
            return None
        self.ready = True
        return found  # type: ignore[no-any-return]
