"""Host functions in JAX: a primitive of our own, called once for a whole vmapped batch.

Evaluated, it calls the function there and then, with nothing to compile and nothing to keep;
`jax.pure_callback` compiles a program for each new Python function and holds it in its caches.
Lowered, in a program that is compiled, it is one callback, which lives as long as that program.

A callback belongs to the process that made it, and JAX exports no program with one.  It says
so in words that name neither the op nor a way out; here an error of ours comes first.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from twingrad.interop.errors import ExportError
from twingrad.interop.jax.evaluate import like, not_linear
from twingrad.interop.jax.held import hold, kernel_of
from twingrad.interop.jax.linear import as_arrays, jvp_of, vary_alike
from twingrad.interop.numpy.binder import call_host as call_numpy
from twingrad.interop.op.framework import Arrays, Framework
from twingrad.interop.op.kernel import Kernel
from twingrad.interop.op.promises import promised
from twingrad.interop.op.signature import Plan

host_p = Primitive("twingrad_host")
host_p.multiple_results = True


def call_host(kernel: Kernel, fw: Framework, inputs: Arrays, plan: Plan) -> Arrays:
    """Call a host op's function once on the whole batch; inputs have one batch rank."""
    inputs = vary_alike(inputs)
    names = promised(kernel.op.dtypes, inputs)
    dtypes = [jax.dtypes.canonicalize_dtype(name).name for name in names]  # narrower without x64
    results = tuple(zip(plan.outputs, dtypes, strict=True))
    return tuple(host_p.bind(*inputs, held=hold(kernel), fw=fw, results=results))


def _run(kernel: Kernel, results: Any, arrays: Arrays) -> list[np.ndarray]:
    dtypes = [dtype for _, dtype in results]
    return list(call_numpy(kernel, arrays, kernel.plan(arrays), dtypes))


def _evaluate(*arrays: Any, held: Any, fw: Framework, results: Any) -> list[Any]:
    """Call it now; by a compiled program where an array lies on several devices."""
    arrays = as_arrays(arrays)
    places = [x.sharding for x in arrays if isinstance(x, jax.Array) and x.committed]
    if any(place.num_devices > 1 for place in places):
        program = jax.jit(lambda *xs: host_p.bind(*xs, held=held, fw=fw, results=results))
        return list(program(*arrays))
    found = _run(kernel_of(held), results, arrays)
    return [jax.device_put(y, places[0]) if places else jnp.asarray(y) for y in found]


def _batch(args: Arrays, dims: Any, *, results: Any, **params: Any) -> tuple[Any, Any]:
    """Put the mapped dimension in front as one more batch dimension."""
    args = as_arrays(args)
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    lifted = [
        x[None] if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True)
    ]
    results = tuple(((size, *shape), dtype) for shape, dtype in results)
    found = host_p.bind(*vary_alike(tuple(lifted)), results=results, **params)
    return found, (0,) * len(found)


def _lower(ctx: Any, *args: Any, held: Any, results: Any, **_: Any) -> Any:
    """One callback; in a program that is exported it raises."""
    kernel = kernel_of(held)
    if ctx.module_context.lowering_parameters.for_export:
        raise ExportError(
            f"{kernel.op.label}: a host op calls back into this process, so JAX cannot export a "
            "program with it; export the parts around it, or write its forward function in xp calls"
        )

    def call(*arrays: Any) -> list[np.ndarray]:
        try:
            return _run(kernel, results, arrays)
        except Exception as error:  # JAX hands on the text of an exception, without its notes
            notes = getattr(error, "__notes__", None)
            if notes is None:
                raise
            raise RuntimeError("; ".join((f"{type(error).__name__}: {error}", *notes))) from error

    if _on_one_cpu(ctx.module_context):
        found, _, _ = mlir.emit_python_callback(
            ctx,
            call,
            None,
            list(args),
            ctx.avals_in,
            ctx.avals_out,
            has_side_effect=False,
            returns_token=False,
        )
        return found
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]
    lower = mlir.lower_fun(lambda *xs: jax.pure_callback(call, types, *xs), multiple_results=True)
    return lower(ctx, *args)


def _on_one_cpu(context: Any) -> bool:
    """Whether a callback needs no `pure_callback`, which puts every array on a device first.

    That costs more than a small function.  What it is needed for is a program on several devices,
    or on another one than the CPU.
    """
    devices = getattr(context.axis_context, "num_devices", None)
    return devices == 1 and tuple(context.platforms) == ("cpu",)


def _transpose(cts: Any, *args: Any, held: Any, **_: Any) -> Any:
    """Opaque: JAX cannot see that it is linear, where the op does not say so."""
    op, missing = kernel_of(held).op, map(ad.is_undefined_primal, args)
    raise not_linear(op, next(itertools.compress(op.names, missing)))


host_p.def_impl(_evaluate)
host_p.def_abstract_eval(
    lambda first, *_, results, **__: [  # they all vary alike
        like(first, ShapedArray(shape, np.dtype(dtype))) for shape, dtype in results
    ]
)
ad.primitive_jvps[host_p] = jvp_of(host_p)
ad.primitive_transposes[host_p] = _transpose
batching.primitive_batchers[host_p] = _batch
mlir.register_lowering(host_p, _lower, cacheable=False)
