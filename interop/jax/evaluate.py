"""The primitive that evaluates an op.

Its derivative is the linear primitive.  Where the op is declared linear it can be transposed:
`jax.linear_transpose`, and with it the solvers that transpose the function they are given, walk
back through the forward evaluation.  Evaluated, this primitive is the op's function; transposed
in its linear arguments it is the op's vjp, at zeros of what is not there: a linear function's
adjoint does not look at it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from twingrad.interop.errors import MissingRuleError
from twingrad.interop.jax.held import hold, kernel_of
from twingrad.interop.jax.linear import as_arrays, jvp_of, vary_alike, vary_as
from twingrad.interop.op.framework import Arrays, Framework
from twingrad.interop.op.kernel import Kernel

evaluate_p = Primitive("twingrad_evaluate")
evaluate_p.multiple_results = True


def evaluate(kernel: Kernel, fw: Framework, inputs: Arrays) -> Arrays:
    """All outputs of the op; as one primitive, which a host op has of its own."""
    if kernel.op.host and not kernel.op.linear:
        return kernel.evaluate(fw, inputs)
    return tuple(evaluate_p.bind(*vary_alike(inputs), held=hold(kernel), fw=fw))


def not_linear(op: Any, name: str) -> MissingRuleError:
    """The error for a transposition in an argument that is not declared linear."""
    return MissingRuleError(
        f"{op.label}: it was transposed in {name}, as a linear function is; declare it with "
        f"linear=({name!r},) in define, and give its adjoint with def_vjp, or make it with "
        "from_linear"
    )


def _evaluate(*args: Any, held: Any, fw: Framework) -> list[Any]:
    return list(kernel_of(held).evaluate(fw, as_arrays(args)))


def _abstract(*avals: Any, **params: Any) -> list[Any]:
    given = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in avals]
    found = jax.eval_shape(lambda *xs: _evaluate(*xs, **params), *given)
    first = avals[0]  # they all vary alike, and so do the results
    return [like(first, y) for y in found]


def like(aval: Any, y: Any) -> Any:
    """The type of a result that varies over the devices as that one does."""
    axes = getattr(aval, "manual_axis_type", None)
    if axes is None or not axes.varying:
        return ShapedArray(y.shape, y.dtype)
    place = aval.sharding.update(spec=(None,) * len(y.shape))
    return aval.update(shape=y.shape, dtype=y.dtype, weak_type=False, sharding=place)


def _transpose(cts: Any, *args: Any, held: Any, fw: Framework) -> list[Any]:
    kernel = kernel_of(held)
    op = kernel.op
    cts, unknown = as_arrays(cts), [ad.is_undefined_primal(x) for x in args]
    for name, missing in zip(op.names, unknown, strict=True):
        if missing and name not in op.linear:
            raise not_linear(op, name)
    if all(isinstance(ct, ad.Zero) for ct in cts):
        return [
            ad.Zero(x.aval) if missing else None for x, missing in zip(args, unknown, strict=True)
        ]
    seeds = tuple(None if isinstance(ct, ad.Zero) else ct for ct in cts)
    outs = tuple(_zeros(ct.aval if isinstance(ct, ad.Zero) else jax.typeof(ct)) for ct in cts)
    inputs = tuple(
        _zeros(x.aval) if missing else x for x, missing in zip(args, unknown, strict=True)
    )
    targets = [x.aval.shape if missing else None for x, missing in zip(args, unknown, strict=True)]
    found: list[Any] = kernel.pull(fw, seeds, outs, as_arrays(inputs), targets)
    for i, x in enumerate(args):
        if unknown[i]:
            found[i] = ad.Zero(x.aval) if found[i] is None else vary_as(found[i], x.aval)
    return found


def _zeros(aval: Any) -> Any:
    return vary_as(jnp.zeros(aval.shape, aval.dtype), aval)


def _batch(args: Arrays, dims: Any, *, held: Any, fw: Framework) -> tuple[Any, Any]:
    """Put the mapped dimension in front as one more batch dimension."""
    args = as_arrays(args)
    args = tuple(x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True))
    shapes = tuple(x.shape if d is None else x.shape[1:] for x, d in zip(args, dims, strict=True))
    aligned = kernel_of(held).signature.plan(shapes).aligned
    lifted = [
        x if d is None else jnp.reshape(x, (len(x), *shape))
        for x, d, shape in zip(args, dims, aligned, strict=True)
    ]
    found = evaluate_p.bind(*vary_alike(tuple(lifted)), held=held, fw=fw)
    return found, (0,) * len(found)


evaluate_p.def_impl(_evaluate)
evaluate_p.def_abstract_eval(_abstract)
ad.primitive_jvps[evaluate_p] = jvp_of(evaluate_p)
ad.primitive_transposes[evaluate_p] = _transpose
batching.primitive_batchers[evaluate_p] = _batch
mlir.register_lowering(
    evaluate_p, mlir.lower_fun(_evaluate, multiple_results=True), cacheable=False
)
