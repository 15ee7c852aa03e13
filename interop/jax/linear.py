"""The linear primitive that gives a JAX op both modes of differentiation.

``linear(inputs, outputs, tangents) -> tangents of the outputs`` is linear in the tangents:

- evaluated, it runs the op's jvp rule;
- transposed, it runs the op's vjp rule;
- batched, it is itself on inputs with one more batch dimension: rules take any batch rank;
- differentiated in the inputs and outputs, it is the derivative of the jvp rule.

This is how JAX treats its own linear operations, so everything built on those rules works:
vmap, jit, scan, checkpoint, linearize, export, all nestings of both modes.
"""

from __future__ import annotations

import functools
import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from twingrad.interop.jax.held import hold, kernel_of
from twingrad.interop.jax.kept import Keep, as_held, restored, to_keep
from twingrad.interop.jax.kept import held as held_arrays
from twingrad.interop.op.framework import Arrays, Framework, inexact
from twingrad.interop.op.kernel import Kernel

linear_p = Primitive("twingrad_linear")
linear_p.multiple_results = True


def apply_linear(
    kernel: Kernel, fw: Framework, inputs: Arrays, outs: Arrays, tangents: Arrays
) -> Arrays:
    """The tangents of the outputs, by the primitive; float0 zeros for integer outputs."""
    live = tuple(
        inexact(x) and not isinstance(dot, ad.Zero | SymbolicZero)
        for x, dot in zip(inputs, tangents, strict=True)
    )
    moving = tuple(dot for dot, alive in zip(tangents, live, strict=True) if alive)
    if moving:
        keep = to_keep(kernel.op, ("vjp", "jvp"), (*inputs, *outs))
        args = vary_alike((*held_arrays((*inputs, *outs), keep), *moving))
        found = iter(linear_p.bind(*args, held=hold(kernel), fw=fw, live=live, keep=keep))
        zeros = None
    else:
        found, zeros = iter(()), jnp.zeros_like
    return tuple(
        np.zeros(y.shape, jax.dtypes.float0)
        if not inexact(y)
        else zeros(y)
        if zeros
        else next(found)
        for y in outs
    )


def jvp_of(primitive: Primitive) -> Any:
    """The jvp rule of a primitive that evaluates an op."""

    def rule(primals: Arrays, tangents: Arrays, **params: Any) -> tuple[Arrays, list[Any]]:
        primals = as_arrays(primals)
        outs = primitive.bind(*primals, **params)
        kernel, fw = kernel_of(params["held"]), params["fw"]
        dots = apply_linear(kernel, fw, primals, outs, tangents)
        pairs = zip(dots, outs, strict=True)
        return outs, [
            dot if inexact(y) else ad.Zero(jax.typeof(y).to_tangent_aval()) for dot, y in pairs
        ]

    return rule


def _split(args: Arrays, kernel: Kernel, keep: Keep) -> tuple[Arrays, Arrays, Arrays]:
    n_in, n_fixed = len(kernel.op.signature.inputs), len(keep)
    args = as_arrays(args)
    fixed = restored(args[:n_fixed], keep)
    return fixed[:n_in], fixed[n_in:], args[n_fixed:]


def _push(*args: Any, held: Any, fw: Framework, live: tuple[bool, ...], keep: Keep) -> list[Any]:
    kernel = kernel_of(held)
    inputs, outs, moving = _split(args, kernel, keep)
    given = iter(moving)
    dots = tuple(next(given) if alive else None for alive in live)
    found = kernel.push(fw, dots, outs, inputs)
    return [dot for dot in found if dot is not None]


def _abstract(*avals: Any, held: Any, keep: Keep, **_: Any) -> list[Any]:
    outs = range(len(kernel_of(held).op.signature.inputs), len(keep))
    shapes = [avals[i].shape if keep[i] else avals[i].shape[:-1] for i in outs]
    return [
        avals[i].update(shape=shape, weak_type=False)
        for i, shape in zip(outs, shapes, strict=True)
        if inexact(avals[i])
    ]


def _jvp(primals: Arrays, tangents: Arrays, **params: Any) -> tuple[Any, Any]:
    """Linear in the tangents; in inputs and outputs it is differentiated as the rule is."""
    found = linear_p.bind(*primals, **params)
    n_fixed = len(primals) - sum(params["live"])
    terms = []
    if any(type(dot) is not ad.Zero for dot in tangents[n_fixed:]):
        moving = map(ad.instantiate_zeros, tangents[n_fixed:])
        args = vary_alike((*primals[:n_fixed], *moving))
        terms.append(linear_p.bind(*args, **params))
    where = [i for i in range(n_fixed) if type(tangents[i]) is not ad.Zero]
    if where:

        def push(*moved: Any) -> list[Any]:
            args = list(primals)
            for i, x in zip(where, moved, strict=True):
                args[i] = x
            return _push(*args, **params)

        at, along = [primals[i] for i in where], [tangents[i] for i in where]
        terms.append(jax.jvp(push, at, along)[1])
    if not terms:
        return found, [ad.Zero(jax.typeof(y)) for y in found]
    return found, [functools.reduce(jnp.add, term) for term in zip(*terms, strict=True)]


def _transpose(cts: Any, *args: Any, held: Any, fw: Framework, live: Any, keep: Keep) -> list[Any]:
    kernel = kernel_of(held)
    inputs, outs, moving = _split(args, kernel, keep)
    given = iter(cts)
    seeds: Arrays = tuple(next(given) if inexact(y) else None for y in outs)
    seeds = tuple(map(as_seed, seeds, outs))
    avals = iter(moving)
    at: list[Any] = [next(avals) if alive else None for alive in live]
    targets = [x.aval.shape if ad.is_undefined_primal(x) else None for x in at]
    fixed: list[Any] = [None] * (len(inputs) + len(outs))
    if all(ct is None for ct in seeds):
        return fixed + [ad.Zero(x.aval) if ad.is_undefined_primal(x) else None for x in moving]
    found = kernel.pull(fw, seeds, outs, inputs, targets)
    for i, (g, x) in enumerate(zip(found, at, strict=True)):
        if ad.is_undefined_primal(x):
            found[i] = ad.Zero(x.aval) if g is None else vary_as(g, x.aval)
    return fixed + [g for g, alive in zip(found, live, strict=True) if alive]


def _batch(args: Arrays, dims: Any, **params: Any) -> tuple[Any, Any]:
    """Put the mapped dimension in front as one more batch dimension."""
    kernel, keep = kernel_of(params["held"]), params["keep"]
    args = as_arrays(args)
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    args = tuple(x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims, strict=True))
    tails = [as_held(keep, i) for i in range(len(args))]
    shapes = tuple(
        x.shape[d is not None : x.ndim - len(tail)]
        for x, d, tail in zip(args, dims, tails, strict=True)
    )
    aligned = kernel.tangent_signature(params["live"]).plan(shapes).aligned
    n_in, n_out = len(kernel.op.signature.inputs), len(kernel.op.signature.outputs)
    lifted = []
    for i, (x, d, shape, tail) in enumerate(zip(args, dims, aligned, tails, strict=True)):
        if d is not None:
            x = jnp.reshape(x, (size, *shape, *tail))
        elif n_in <= i < n_in + n_out:  # the results are promised in the shape of the outputs
            x = jnp.broadcast_to(x, (size, *shape, *tail))
        lifted.append(x)
    found = linear_p.bind(*vary_alike(tuple(lifted)), **params)
    return found, (0,) * len(found)


linear_p.def_impl(_push)
linear_p.def_abstract_eval(_abstract)
ad.primitive_jvps[linear_p] = _jvp
ad.primitive_transposes[linear_p] = _transpose
batching.primitive_batchers[linear_p] = _batch
mlir.register_lowering(linear_p, mlir.lower_fun(_push, multiple_results=True))


def as_arrays(values: Arrays) -> Arrays:
    """Arrays, also where JAX hands over the number or NumPy array that a tracer stood for."""
    return tuple([jnp.asarray(x) if _plain(x) else x for x in values])


def as_seed(ct: Any, y: Any) -> Any:
    """A cotangent of `y`, an array like it also where a number was given; None for zero."""
    if ct is None or isinstance(ct, ad.Zero | SymbolicZero):
        return None
    return jnp.asarray(ct, y.dtype) if _plain(ct) else ct


def _plain(x: Any) -> bool:
    return not isinstance(x, jax.Array) and (
        isinstance(x, numbers.Number) or hasattr(x, "__array__")
    )


def _varying(x: Any) -> frozenset[Any]:
    """The mesh axes of an enclosing shard_map along which an array (or type) varies."""
    found = getattr(
        x if hasattr(x, "manual_axis_type") else jax.typeof(x), "manual_axis_type", None
    )
    return frozenset() if found is None else found.varying


def vary_alike(arrays: Arrays) -> Arrays:
    """Inside shard_map, make all arrays vary along the same axes.

    The transpose of this is a sum over those axes, so that a replicated argument gets its
    whole gradient; it is what JAX does in front of its own operations.
    """
    axes = frozenset().union(*map(_varying, arrays))
    if not axes:
        return arrays
    return tuple(_cast_varying(x, axes) for x in arrays)


def vary_with(inputs: Arrays, outs: Arrays) -> Arrays:
    """The outputs, made to vary along every axis that an input varies along."""
    axes = frozenset().union(*map(_varying, inputs))
    return tuple(_cast_varying(y, axes) for y in outs) if axes else outs


def _cast_varying(x: Any, axes: frozenset[Any]) -> Any:
    missing = tuple(axes - _varying(x))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def vary_as(g: Any, aval: Any) -> Any:
    """`g`, made to vary along every axis that the array or type `aval` varies along."""
    return _cast_varying(g, _varying(aval))


def sum_to(g: Any, x: Any) -> Any:
    """Sum a gradient over the axes of shard_map along which its input does not vary."""
    extra = tuple(_varying(g) - _varying(x))
    return vary_as(jax.lax.psum(g, extra) if extra else g, jax.typeof(x))
