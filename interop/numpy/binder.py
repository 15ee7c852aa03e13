"""The NumPy binder: the reference, and the one place where host functions are called.

``bind(op)`` returns a function of NumPy arrays.  NumPy has no differentiation, so the
rules are offered as they stand: ``bound.vjp(cts, *inputs)`` and ``bound.jvp(tangents,
*inputs)``, with broadcasting undone and dtypes checked as in the other frameworks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import array_api_compat.numpy as xp
import numpy as np

from twingrad.interop.errors import ArgumentError, MissingRuleError, RuleError, ShapeError
from twingrad.interop.numpy import family
from twingrad.interop.op.binding import describe, number_dtype, split_call
from twingrad.interop.op.definition import Op
from twingrad.interop.op.framework import DTYPES, Arrays, cast_like, inexact, kind
from twingrad.interop.op.kernel import Kernel
from twingrad.interop.op.promises import fit, follows, promised
from twingrad.interop.op.signature import Plan, Shape, as_tuple
from twingrad.interop.op.statics.constants import Constant
from twingrad.interop.op.statics.static import KEPT
from twingrad.interop.op.structure.family import Family


class _NumPy:
    """The `Framework` of NumPy."""

    xp = xp

    def call(
        self, label: str, what: str, rule: Any, arrays: Arrays, args: Any, keywords: Any
    ) -> Any:
        try:
            found = rule(*map(_protected, args), **keywords)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise RuleError(
                f"{label}: {what} changed an array that it was given; make a new one, "
                "`x = x + 1` in place of `x += 1`"
            ) from error
        return tuple(_own(y) for y in as_tuple(found))

    def constant(self, constant: Constant, like: Any, bits: int) -> Any:
        array = constant.array
        name, found = kind(array.dtype)
        if not name or found == (bits or 64):
            return array
        made = constant.made.get(bits)
        if made is None:
            made = constant.hand(array.astype(DTYPES[name, bits or 64]))
            made.flags.writeable = False
            constant.made[bits] = made
        return made

    def host(self, kernel: Kernel, inputs: Arrays, plan: Plan) -> Arrays:
        return call_host(kernel, inputs, plan, promised(kernel.op.dtypes, inputs))

    def transpose(
        self, linear: Callable[..., Arrays], like: Sequence[tuple[Shape, Any]], seeds: Arrays
    ) -> Arrays:
        raise MissingRuleError(
            "NumPy cannot transpose a rule: define the vjp and the jvp, or use torch or JAX"
        )

    def from_framework(self, cotangent: Any) -> Any:
        return cotangent

    def to_framework(self, gradient: Any) -> Any:
        return gradient


NUMPY = _NumPy()
_LENGTH = "; where a length depends on the numbers, return the longest, and a mask or a count"


def bind(op: Op) -> Any:
    """The op as a function of NumPy arrays; the same function for the same op."""
    if "numpy" not in op.bound:
        op.bound["numpy"] = family.make(op, bind) if isinstance(op, Family) else _make(op)
    return op.bound["numpy"]


def call_host(
    kernel: Kernel, inputs: Arrays, plan: Plan, dtypes: Sequence[str]
) -> tuple[np.ndarray, ...]:
    """Call a host op's function once, on the whole batch; `dtypes` are those it promised.

    It gets read-only, contiguous arrays with one batch dimension in front: the flattened
    batch, or 1 for an argument that is the same for every sample.

    It is not called for an empty batch.

    Raises:
        RuleError: it returned another number of arrays, or another shape, than promised, or a
            dtype that does not fit; or, where the op asks for that, a number that is not finite.
    """
    op = kernel.op
    rank, size = len(plan.batch), math.prod(plan.batch)
    if not size:
        return tuple(map(np.empty, plan.outputs, dtypes))
    arrays = tuple([_flat(x, plan.batch, rank, size) for x in inputs])
    try:
        found = as_tuple(op.forward(np, *arrays, **kernel.keywords))
    except Exception as error:
        error.add_note(f"raised inside the host function of {op.label}")
        raise
    if len(found) != len(plan.outputs):
        raise RuleError(
            f"{op.label}: its host function returned {len(found)} values; "
            f"expected {len(plan.outputs)}"
        )
    return tuple(
        _result(kernel, i, y, size, plan.outputs[i], rank, dtypes[i]) for i, y in enumerate(found)
    )


def _protected(x: Any) -> Any:
    """A read-only view; for each array of a tuple."""
    if isinstance(x, tuple):
        return tuple(map(_protected, x))
    if isinstance(x, np.ndarray):
        x = x.view()
        x.flags.writeable = False
    return x


def _own(y: Any) -> Any:
    """A result that the caller may change: no protected view of what the rule was given."""
    return y if not isinstance(y, np.ndarray) or y.flags.writeable else y.copy()


def _flat(x: Any, batch: tuple[int, ...], rank: int, size: int) -> np.ndarray:
    x = np.asarray(x)  # JAX hands over its own arrays, and computing with those can hang
    core = x.shape[rank:]
    if x.shape[:rank] == (1,) * rank:
        flat = x.reshape(1, *core)
    else:
        flat = np.broadcast_to(x, batch + core).reshape(size, *core)
    flat = np.ascontiguousarray(flat).view()
    flat.flags.writeable = False
    return flat


def _result(
    kernel: Kernel, i: int, y: Any, size: int, shape: Shape, rank: int, dtype: str
) -> np.ndarray:
    op = kernel.op
    given, y = y, np.asarray(y)
    if y.dtype.kind not in "fciub":
        what = f"dtype {y.dtype}" if hasattr(given, "dtype") else f"a {type(given).__name__}"
        raise RuleError(f"{op.label}: its host function returned {what}; expected an array")
    core = shape[rank:]
    if y.shape != (size, *core):
        if y.shape != (1, *core):
            raise RuleError(
                f"{op.label}: its host function returned an array of shape {y.shape}; expected "
                f"{(size, *core)}, the batch dimension in front"
                + op.signature.computed(op.signature.outputs[i], shape)
                + ("" if y.ndim != len(core) + 1 or y.shape[1:] == core else _LENGTH)
            )
        y = np.broadcast_to(y, (size, *core))
    y = fit(op.label, y, dtype, op.dtypes[i], kernel.static.low)
    if op.host and op.host.finite and not (good := np.isfinite(y)).all():
        sample = np.argwhere(~good)[0, 0]
        raise RuleError(
            f"{op.label}: its host function returned a result that is not finite for sample "
            f"{sample} of {size}"
        )
    shaped: np.ndarray = y.reshape(shape)
    return shaped


def _prepare(op: Op, args: tuple[Any, ...]) -> tuple[Arrays, Any]:
    """Arrays in one computing precision, and the dtype to give the results back in."""
    for name, x in zip(op.names, args, strict=True):
        if not isinstance(x, np.ndarray | np.generic | bool | int | float | complex):
            raise ArgumentError(
                f"{op.label}: {name} is a {type(x).__name__}; expected a NumPy array or a number"
            )
    given = [x.dtype.name for x in args if hasattr(x, "dtype") and inexact(x)]
    bits = max((kind(name)[1] for name in given), default=64)
    low = given[0] if bits == 16 and len(set(given)) == 1 else None
    bits = max(bits, 32)
    arrays = []
    for x in args:
        if hasattr(x, "dtype"):
            name = kind(x.dtype)[0]
            arrays.append(np.asarray(x, dtype=DTYPES[name, bits] if name else None))
        else:
            arrays.append(np.asarray(x, dtype=number_dtype(op, x, bits)))
    dtype = (
        None if low is None else next(x.dtype for x in args if str(getattr(x, "dtype", "")) == low)
    )
    return tuple(arrays), dtype


def _like(op: Op, i: int, ct: Any, y: Any) -> Any:
    """A cotangent in the shape of its output."""
    ct = np.asarray(ct)
    try:
        return ct if ct.shape == y.shape else np.broadcast_to(ct, y.shape)
    except ValueError:
        raise ShapeError(
            f"{op.label}: a cotangent has shape {ct.shape}; expected {y.shape}, as the output"
            + op.signature.computed(op.signature.outputs[i], y.shape)
        ) from None


def _give_back(y: Any, low: Any) -> Any:
    """A result of float32 in the lower precision that the inputs had, if they had one."""
    return y if low is None or y is None or y.dtype != np.float32 else y.astype(low)


def _make(op: Op) -> Any:
    @functools.lru_cache(KEPT)
    def find(static: Any) -> Kernel:
        return Kernel(op, static)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Kernel, Arrays, Arrays, Any]:
        args, static = split_call(op, args, kwargs)
        inputs, low = _prepare(op, args)
        if op.host and low is not None:
            static = replace(static, low=low.name)
        kernel = find(static)
        return kernel, inputs, kernel.evaluate(NUMPY, inputs), low

    def check_count(what: str, given: Any, expected: int) -> None:
        if len(as_tuple(given)) != expected:
            raise ArgumentError(
                f"{op.label}: expected {expected} {what}, found {len(as_tuple(given))}"
            )

    def bound(*args: Any, **kwargs: Any) -> Any:
        _, _, outs, low = run(args, kwargs)
        outs = tuple(
            _give_back(y, low) if follows(declared) else y
            for y, declared in zip(outs[: op.visible], op.dtypes, strict=False)
        )
        return outs[0] if op.visible == 1 else outs

    def all_outputs(*args: Any, **kwargs: Any) -> Any:
        outs = run(args, kwargs)[2]
        return outs[0] if len(outs) == 1 else outs

    def vjp(
        cts: Any, *args: Any, wanted: Sequence[str] | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The gradients of sum(ct * out), one per input; cts is a tuple for several outputs.

        Only for the arguments named in `wanted`, if that is given; None for the others, for
        integers and for zeros.
        """
        kernel, inputs, outs, low = run(args, kwargs)
        check_count("cotangents", cts, op.visible)
        seeds = tuple(
            cast_like(NUMPY, _like(op, i, ct, outs[i]), outs[i]) if inexact(outs[i]) else None
            for i, ct in enumerate(as_tuple(cts))
        )
        seeds += (None,) * op.hidden
        targets = [
            x.shape if inexact(x) and (wanted is None or name in wanted) else None
            for name, x in zip(op.names, inputs, strict=True)
        ]
        found = kernel.pull(NUMPY, seeds, outs, inputs, targets)
        return tuple(_give_back(g, low) for g in found)

    def jvp(tangents: Any, *args: Any, **kwargs: Any) -> Any:
        """The tangent of each output; `tangents` has one entry per input, or None."""
        kernel, inputs, outs, low = run(args, kwargs)
        check_count("tangents", tangents, len(inputs))
        dots = tuple(
            None if t is None else cast_like(NUMPY, np.asarray(t), x)
            for t, x in zip(as_tuple(tangents), inputs, strict=True)
        )
        pushed = kernel.push(NUMPY, dots, outs, inputs)[: op.visible]
        found = tuple(
            _give_back(dot, low) if follows(declared) else dot
            for dot, declared in zip(pushed, op.dtypes, strict=False)
        )
        return found[0] if op.visible == 1 else found

    return describe(bound, op, "numpy", vjp=vjp, jvp=jvp, all_outputs=all_outputs)
