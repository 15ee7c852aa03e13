"""`define`: an op from a function of `xp` and arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from twingrad.interop.errors import SignatureError
from twingrad.interop.op.definition import Op, Rule
from twingrad.interop.op.samples.host import Host, as_host
from twingrad.interop.op.signature import POSITIONAL, Signature, check_arity, defaults_of
from twingrad.interop.op.structure.family import Family
from twingrad.interop.op.structure.frame import Frame
from twingrad.interop.op.structure.functions import Function
from twingrad.interop.op.structure.notation import Notation, is_structured


@overload
def define(signature: Rule) -> Op: ...
@overload
def define(
    signature: str,
    *,
    host: bool | Host | None = ...,
    hidden: int = ...,
    dtypes: Any = ...,
    linear: str | Sequence[str] = ...,
    constants: Any = ...,
) -> Callable[[Rule], Op]: ...
def define(
    signature: Any,
    *,
    host: bool | Host | None = False,
    hidden: int = 0,
    dtypes: Any = None,
    linear: str | Sequence[str] = (),
    constants: Any = (),
) -> Any:
    """Turn ``forward(xp, *inputs, *, static...)`` into an `Op`.

    Args:
        signature: gufunc notation, such as ``"(n),()->()"``.  A size can follow from others by
            + - * // and brackets, ``"(n),(m)->(n+m-1)"``, and be the value of a static
            parameter: ``"(n),(n)->(n_modes)"`` for a function with ``*, n_modes=16``.
            Arguments can have structure: ``"{rate: (), shift: (n)}, (t) -> (t)"`` for a dict
            with these keys or an object with these fields; ``{...: (n)}`` for any keys,
            ``[(n), (m)]`` for a list or tuple, ``[(n), ...]`` for one of any length, ``(n)...``
            for ``*xs``, ``(n)?`` for what may be None; ``_`` is a size of its own.  Rules get
            and return the same structure: a dict will do for an object, and None for any part
            whose gradient is zero.
        host: forward is NumPy code, called once per batch with read-only contiguous
            arrays that have exactly one batch dimension in front.  A `Host` instead of True
            says more: one sample at a time, through an executor, with a check of the results.
        hidden: the last outputs that rules see but the bound function does not return.
        dtypes: of the outputs, one for all or one for each: "real" or "complex", in the
            precision of the inputs; or a fixed one: "bool", "int64", "int32", "float64",
            "complex128" and so on.  None: the precision of the inputs; of a host function
            complex where an input is complex, otherwise the kind that the function returns.
            A result that does not fit raises RuleError: complex for real, a float for an
            integer, an integer that the promised dtype cannot hold.
        linear: arguments that the function is linear in, all of them together: f(p; a x + b y)
            = a f(p; x) + b f(p; y).  Then the vjp is its adjoint there (the plain transpose,
            which looks at neither `out` nor these arguments), forward mode calls the function
            itself, second derivatives in these arguments are zero, and JAX can transpose it.
            Where it is not true derivatives are wrong: see `twingrad.interop.check`.
        constants: arrays that are no arguments, such as a grid: ``{"grid": GRID}``, or names
            whose arrays `Op.with_constants` gives later.  The function has a keyword-only
            parameter for each, and so has every rule that wants it.  A formula sees an array of
            its framework, on the device and in the precision of the inputs (integers and
            booleans as they are); NumPy code sees the array itself.  It may not be written to.

    Raises:
        SignatureError: the notation is wrong, the function has another number of arguments
            than the signature, a size is neither in an argument nor a static parameter, or a
            constant is no keyword-only parameter.
        ArgumentError: a constant is no array, or one that has or may have a gradient.
    """
    if callable(signature):
        raise SignatureError('write @define("(n)->()") with the signature in the brackets')
    notation = Notation.parse(signature) if is_structured(signature) else None
    parsed: Any = notation or Signature.parse(signature)
    if not 0 <= hidden < len(parsed.outputs):
        raise SignatureError(
            f"{signature!r}: hidden={hidden}, but it has {len(parsed.outputs)} outputs "
            "of which at least one must be returned"
        )

    def make(forward: Rule) -> Op:
        name = forward.__name__
        options: dict[str, Any] = {"name": name, "hidden": hidden, "dtypes": dtypes}
        options["host"] = as_host(name, host) if host not in (False, None) else None
        parameters = inspect.signature(forward).parameters.values()
        options["statics"] = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        if notation:

            def flat(frame: Frame, constants: Any) -> Op:
                own: Any = {"names": frame.names, "linear": frame.spread(linear, "linear")}
                whole = {**options, **own, "constants": constants}
                return Op(Function(forward, frame, 1), frame.signature, **whole)

            return Family(notation, forward, flat, name=name, before=1, constants=constants)
        names = tuple(p.name for p in parameters if p.kind in POSITIONAL)[1:]
        op = Op(
            forward,
            parsed,
            names=names,
            linear=linear,
            defaults=defaults_of(forward),
            constants=constants,
            **options,
        )
        check_arity(op.signature, op.label, forward, 1, "its function")
        return op

    return make
