"""Host functions in JAX: one `jax.pure_callback` for a whole vmapped batch.

A callback belongs to the process that made it, and JAX exports no program with one.  It says
so in words that name neither the op nor a way out; here an error of ours comes first.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from twingrad.interop.errors import ExportError
from twingrad.interop.framework import Arrays
from twingrad.interop.jax_linear import vary_alike, vary_as
from twingrad.interop.numpy import call_host as call_numpy
from twingrad.interop.numpy import host_dtype
from twingrad.interop.rules import Kernel
from twingrad.interop.signature import Plan

_on_host_p = Primitive("twingrad_on_host")


def call_host(kernel: Kernel, inputs: Arrays, plan: Plan) -> Arrays:
    """Call a host op's function once on the whole batch; inputs have one batch rank."""
    inputs, dtype = vary_alike(inputs), host_dtype(inputs)
    promised = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in plan.outputs)

    def call(*arrays: Any) -> Arrays:
        try:
            return call_numpy(kernel, arrays, kernel.plan(arrays))
        except Exception as error:  # JAX hands on the text of an exception, without its notes
            notes = getattr(error, "__notes__", None)
            if notes is None:
                raise
            raise RuntimeError("; ".join((f"{type(error).__name__}: {error}", *notes))) from error

    first = _on_host_p.bind(inputs[0], label=kernel.op.label)
    found = jax.pure_callback(call, promised, first, *inputs[1:], vmap_method="expand_dims")
    return tuple(vary_as(y, inputs[0]) for y in found)


def _lower(ctx: Any, x: Any, *, label: str) -> Any:
    """The identity; in a program that is exported it raises."""
    if ctx.module_context.lowering_parameters.for_export:
        raise ExportError(
            f"{label}: a host op calls back into this process, so JAX cannot export a program "
            "with it; export the parts around it, or write its forward function in xp calls"
        )
    return [x]


def _batch(args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    return _on_host_p.bind(*args, **params), dims[0]


_on_host_p.def_impl(lambda x, **_: x)
_on_host_p.def_abstract_eval(lambda x, **_: x)
batching.primitive_batchers[_on_host_p] = _batch
mlir.register_lowering(_on_host_p, _lower)
