"""The JAX binder: ``bind(op)`` is a function of arrays, right under every transform.

How it is built, and why:

- `jax.custom_vjp` has no forward mode.  So the op is a primitive of our own (`jax.evaluate`;
  `jax.host` for host functions, called once for a whole vmapped batch) whose derivative is one
  linear primitive (`jax.linear`): evaluated it runs the op's jvp, transposed it runs the vjp.
- `jax.custom_jvp` does as well, but loses a mapped axis where it is staged (jit, scan, cond) and
  an output does not depend on what is mapped.  It is left for arrays on a mesh, whose types its
  operations work out.
- Gradients are cast to the dtype of their input: JAX does not do it, and a float64 rule
  would turn a float32 gradient into a float64 one.
- The plain ``bind(op).custom_vjp`` is there too, for those who want the bare thing.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twingrad.interop.errors import ArgumentError
from twingrad.interop.jax.constants import constant
from twingrad.interop.jax.evaluate import evaluate
from twingrad.interop.jax.host import call_host
from twingrad.interop.jax.kept import held, on_mesh, restored, to_keep
from twingrad.interop.jax.linear import apply_linear, as_arrays, as_seed, sum_to, vary_as, vary_with
from twingrad.interop.op.binding import bind_family, describe, number_dtype, split_call
from twingrad.interop.op.definition import Op
from twingrad.interop.op.framework import DTYPES, Arrays, inexact, kind
from twingrad.interop.op.kernel import Kernel
from twingrad.interop.op.promises import follows
from twingrad.interop.op.signature import Plan, Shape
from twingrad.interop.op.statics.static import KEPT
from twingrad.interop.op.structure.family import Family


class _Jax:
    """The `Framework` of JAX; its gradients are the plain transpose, as the rules' are."""

    xp = jnp
    constant = staticmethod(constant)

    def call(
        self, label: str, what: str, rule: Any, arrays: Arrays, args: Any, keywords: Any
    ) -> Any:
        return rule(*args, **keywords)  # JAX's arrays do not change

    def host(self, kernel: Kernel, inputs: Arrays, plan: Plan) -> Arrays:
        return call_host(kernel, self, inputs, plan)

    def transpose(
        self, linear: Callable[..., Arrays], like: Sequence[tuple[Shape, Any]], seeds: Arrays
    ) -> Arrays:
        # Inside shard_map a zero varies as what it stands for: the transpose of making it vary
        # later is a sum over the devices, one too many.
        zeros = tuple(vary_as(jnp.zeros(shape, x.dtype), x) for shape, x in like)

        def varied(*dots: Any) -> Arrays:
            return tuple(map(vary_as, linear(*dots), seeds))

        outs, pull = jax.vjp(varied, *zeros)
        return tuple(pull(tuple(map(vary_as, seeds, outs))))

    def from_framework(self, cotangent: Any) -> Any:
        return cotangent

    def to_framework(self, gradient: Any) -> Any:
        return gradient


JAX = _Jax()


def bind(op: Op) -> Any:
    """The op as a function of JAX arrays; the same function for the same op.

    ``bind(op).custom_vjp`` is the op as a bare `jax.custom_vjp`, with the default static
    parameters: it takes arrays of one floating dtype and returns all outputs as a tuple.
    """
    if "jax" not in op.bound:
        op.bound["jax"] = bind_family(op, "jax", bind) if isinstance(op, Family) else _make(op)
    return op.bound["jax"]


def _make(op: Op) -> Any:
    count, visible = len(op.names), op.visible

    @functools.lru_cache(KEPT)
    def find(static: Any) -> tuple[Kernel, Any]:
        kernel = Kernel(op, static)
        return kernel, _differentiable(kernel)

    @functools.cache
    def default() -> tuple[Kernel, Any]:
        return find(op.static({}))

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Arrays, Any]:
        if kwargs or len(args) != count:
            args, static = split_call(op, args, kwargs)
            kernel, function = find(static)
        else:
            kernel, function = default()
        inputs, back = _prepare(op, args)
        if op.host and back is not None:
            kernel, function = find(replace(kernel.static, low=back.name))
        kernel.plan(inputs)
        return function(*inputs), back

    def bound(*args: Any, **kwargs: Any) -> Any:
        outs, back = call(args, kwargs)
        if back is not None:
            outs = tuple(
                y.astype(back) if y.dtype == jnp.float32 and follows(declared) else y
                for y, declared in zip(outs, op.dtypes, strict=True)
            )
        return outs[0] if visible == 1 else outs[:visible]

    def all_outputs(*args: Any, **kwargs: Any) -> Any:
        outs = call(args, kwargs)[0]
        return outs[0] if len(outs) == 1 else outs

    describe(bound, op, "jax", all_outputs=all_outputs)
    if op.complete:
        bound.__dict__["custom_vjp"] = _custom_vjp(default()[0])
    return bound


def _differentiable(kernel: Kernel) -> Any:
    """The kernel with both modes of differentiation, to every order."""

    def function(*inputs: Any) -> Arrays:
        inputs = as_arrays(inputs)
        if kernel.op.host or kernel.op.linear or not any(map(on_mesh, inputs)):
            return evaluate(kernel, JAX, inputs)  # a primitive, with a rule of its own
        return over_mesh(*inputs)

    @jax.custom_jvp
    def over_mesh(*inputs: Any) -> Arrays:
        inputs = as_arrays(inputs)
        # as its tangent will vary, also where an output is the same for every input
        return vary_with(inputs, kernel.evaluate(JAX, inputs))

    @functools.partial(over_mesh.defjvp, symbolic_zeros=True)
    def rule(primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        primals = as_arrays(primals)
        outs = over_mesh(*primals)
        return outs, apply_linear(kernel, JAX, primals, outs, tangents)

    return function


def _custom_vjp(kernel: Kernel) -> Any:
    """The kernel as a `jax.custom_vjp`: reverse mode only."""

    @jax.custom_vjp
    def function(*inputs: Any) -> Arrays:
        return kernel.evaluate(JAX, as_arrays(inputs))

    def fwd(*primals: Any) -> Any:
        inputs = as_arrays(tuple([p.value for p in primals]))
        outs = kernel.evaluate(JAX, inputs)
        # what moves is known by the structure: an entry is an empty tuple or None
        pairs = zip(primals, inputs, strict=True)
        moves = tuple(() if p.perturbed and inexact(x) else None for p, x in pairs)
        keep = to_keep(kernel.op, ("vjp",), (*inputs, *outs))
        read = tuple(() if k else None for k in keep)
        return outs, (held((*inputs, *outs), keep), moves, read)

    def bwd(residuals: Any, cts: Arrays) -> Arrays:
        arrays, moves, read = residuals
        arrays = restored(arrays, tuple(r is not None for r in read))
        inputs, outs = arrays[: len(moves)], arrays[len(moves) :]
        seeds = tuple(
            as_seed(ct, y) if inexact(y) else None for ct, y in zip(cts, outs, strict=True)
        )
        shapes = [None if m is None else x.shape for x, m in zip(inputs, moves, strict=True)]
        found = kernel.pull(JAX, seeds, outs, inputs, shapes)
        return tuple(
            None if g is None else sum_to(g, x) for g, x in zip(found, inputs, strict=True)
        )

    function.defvjp(fwd, bwd, symbolic_zeros=True)
    functools.update_wrapper(function, kernel.op.written["function"])
    return function


def _prepare(op: Op, args: tuple[Any, ...]) -> tuple[Arrays, Any]:
    """Arrays of one computing precision, and the dtype to give results back in, or None.

    Raises:
        ArgumentError: an argument is no array or number, or has a dtype with no rule.
    """
    first = args[0]
    if isinstance(first, jax.Array) and kind(first.dtype)[1] > 16:
        if all(isinstance(x, jax.Array) and x.dtype == first.dtype for x in args[1:]):
            return args, None
    for name, x in zip(op.names, args, strict=True):
        _check(op, name, x)
    common = [x for x in args if not hasattr(x, "dtype") or inexact(x)]
    result = jax.dtypes.result_type(*common, jnp.bool_)
    if not kind(result)[1]:
        result = jnp.result_type(float)
    bits = max(kind(result)[1], 32)
    prepared = []
    for x in args:
        if hasattr(x, "dtype"):
            name = kind(x.dtype)[0]
            dtype = DTYPES[name, bits] if name else None
        else:
            dtype = jax.dtypes.canonicalize_dtype(number_dtype(op, x, bits)).name
        prepared.append(jnp.asarray(x, dtype=dtype))
    return tuple(prepared), result if kind(result)[1] == 16 else None


_ARGUMENTS: Any = (jax.Array, np.ndarray, np.generic, numbers.Number)


def _check(op: Op, name: str, x: Any) -> None:
    if not isinstance(x, _ARGUMENTS):
        hint = "; convert it with jnp.asarray" if hasattr(x, "__len__") else ""
        hint = "; convert it with its todense()" if hasattr(x, "todense") else hint
        raise ArgumentError(
            f"{op.label}: {name} is a {type(x).__name__}; expected a jax.Array or a number{hint}"
        )
    if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.inexact) and not inexact(x):
        raise ArgumentError(
            f"{op.label}: {name} has dtype {x.dtype}; expected float16, bfloat16, float32 "
            "or float64"
        )
