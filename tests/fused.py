"""Fused ops in tests: kernels that are quick to make, counted."""

import functools

import torch

from twingrad.interop.torch import bind
from twingrad.interop.torch.fused.compiled import Compiled


def of_torch_operations(monkeypatch):
    """Kernels run torch's operations one by one; keys, shapes and rules are those of C++ ones."""
    quick = functools.partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr("twingrad.interop.torch.fused.compiled._compile", quick)


class Calls:
    """The kernels that are made, and how often they run, while this is in place."""

    def __init__(self, monkeypatch):
        self.run, self.kernels = 0, []
        call = Compiled.__call__

        def counted(kernel, arrays):
            found = call(kernel, arrays)
            self.run += found is not None
            if kernel not in self.kernels:
                self.kernels.append(kernel)
            return found

        monkeypatch.setattr(Compiled, "__call__", counted)

    def of(self, function):
        """How many kernels ran in a call."""
        before = self.run
        function()
        return self.run - before


def both(op, least=1):
    """The op fused, and plain."""
    return bind(op, fused=least), bind(op)


def unwanted(warnings):
    """Warnings that an op runs without a kernel."""
    return [str(w.message) for w in warnings if "fused kernel" in str(w.message)]
