"""Host functions in JAX: one `jax.pure_callback` for a whole vmapped batch.

A callback belongs to the process that made it.  JAX can export a program with one for the
platform it runs on, to be called in the same process, and refuses to serialise it.  For other
platforms it fails in words that do not say why, so that case raises an error of ours.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
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
        # JAX hands over its own arrays, and computing with those in here can hang.
        given = tuple([np.asarray(x) for x in arrays])
        return call_numpy(kernel, given, kernel.plan(given))

    first = _on_host_p.bind(inputs[0], label=kernel.op.label)
    found = jax.pure_callback(call, promised, first, *inputs[1:], vmap_method="expand_dims")
    return tuple(vary_as(y, inputs[0]) for y in found)


def _lower(ctx: Any, x: Any, *, label: str) -> Any:
    """The identity; lowered for another platform it raises."""
    module, here = ctx.module_context, jax.default_backend()
    same = {"gpu": ("cuda", "rocm")}.get(here, (here,))
    others = [platform for platform in module.platforms if platform not in same]
    if module.lowering_parameters.for_export and others:
        raise ExportError(
            f"{label}: a host op calls back into this process, which a program exported for "
            f"{', '.join(others)} cannot; export for {here} alone and call it in this process, "
            "or give the op a forward function in xp calls"
        )
    return [x]


def _batch(args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    return _on_host_p.bind(*args, **params), dims[0]


_on_host_p.def_impl(lambda x, **_: x)
_on_host_p.def_abstract_eval(lambda x, **_: x)
batching.primitive_batchers[_on_host_p] = _batch
mlir.register_lowering(_on_host_p, _lower)
