"""Ops from functions that stand already: NumPy code that knows nothing of this package."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from twingrad.interop.errors import ArgumentError, SignatureError
from twingrad.interop.host.cache import Cache
from twingrad.interop.host.jacobian import Asking, Together, contract
from twingrad.interop.host.kept import keeping, share
from twingrad.interop.op.definition import Op
from twingrad.interop.op.pickling import remembered
from twingrad.interop.op.rules.asked import Needs
from twingrad.interop.op.samples.host import Host, PlainFunction, as_host, asks
from twingrad.interop.op.signature import POSITIONAL, Signature, defaults_of
from twingrad.interop.op.structure.frame import Frame
from twingrad.interop.op.structure.functions import Function as Flat
from twingrad.interop.op.structure.functions import Gradients, Pair, Tangents
from twingrad.interop.op.structure.making import refused, structured, wrapped

Function = Callable[..., Any]


def _with_slopes(f: Function, frame: Frame, given: dict[str, Any]) -> Function:
    """The function of `from_jacobian`, which may return its Jacobian, too."""
    return (Pair if given["jac"] is True else Flat)(f, frame)


@remembered
@structured(
    vjp=wrapped(Gradients, "its vjp", 1),
    jvp=wrapped(Tangents, "its jvp", 1),
    kept=refused("from_numpy's kept"),
)
def from_numpy(
    f: Function,
    *,
    signature: str,
    vjp: Function | None = None,
    jvp: Function | None = None,
    kept: Function | None = None,
    cache: Cache | None = None,
    dtypes: Any = None,
    constants: Any = (),
    host: Host | bool = True,
    name: str | None = None,
) -> Op:
    """An op from a NumPy function, and from its adjoint where there is one.

    Args:
        f: ``f(*inputs)``.  It takes arrays with one batch dimension in front, read-only; or
            one sample, with ``host=Host(vectorize=True)``.  Its keyword-only parameters
            become the op's static ones, and are given to `vjp` and `jvp` too.
        signature: gufunc notation, such as ``"(n),()->()"``.
        vjp: ``vjp(ct, *inputs)``, the gradient of sum(ct * f) in each input, shaped like f's
            arguments; `ct` is a tuple where f has several outputs.  A keyword-only parameter
            `out` gets what f returned, and `needs` which are wanted, see `Op.def_vjp`.
        jvp: ``jvp(tangents, *inputs)``, the tangent of the output; `out` and `needs` likewise.
        kept: ``kept(*some_inputs)``, chosen by the names of its parameters: what f, vjp and jvp
            share, such as a factorisation.  Each gets its result that has a keyword-only
            parameter `kept`.  It is made once for the same numbers, and again where it is
            gone: in another process, or beyond the size of the cache.
        cache: where that is, a `Cache`; None: one for the latest 64.
        dtypes: of the outputs, see `define`: "complex" where f makes complex numbers of real
            ones, "real" the other way round, "int64" for indices and counts.
        constants: arrays that are no arguments, such as a grid, see `define`: for f, and for
            the rules that have a keyword-only parameter of that name.
        host: see `Host`.
        name: the op's name in error messages; that of f if None.

    Raises:
        SignatureError: the notation is wrong, or a function does not take what it promises.
        ArgumentError: something that is called is no function.
    """
    parsed = Signature.parse(signature)
    names = _parameters(f, len(parsed.inputs))[0]
    shared = share(f"{name or _name(f)} {parsed}", kept, names, cache, (f, vjp, jvp))
    op = make_op(keeping(f, shared, 0), parsed, host, name, dtypes, constants)
    for kind, rule in (("vjp", vjp), ("jvp", jvp)):
        if rule is not None:
            rule = keeping(rule, shared, 1)
            check_count(op, kind, rule, 1 + len(op.names), ("needs", "out"))
            rule = PlainFunction(rule, rule=True, sees_out=asks(rule, "out"))
            getattr(op, f"def_{kind}")(rule)
    return op


@remembered
@structured(f=_with_slopes, jac=wrapped(Gradients, "its jac"), hess=refused("from_jacobian's hess"))
def from_jacobian(
    f: Function,
    jac: Function | bool,
    *,
    signature: str,
    hess: Function | None = None,
    dtypes: str | None = None,
    constants: Any = (),
    host: Host | bool | None = None,
    name: str | None = None,
) -> Op:
    """An op from a function and its Jacobian, in the form that `scipy.optimize` takes.

    ``f(x)`` and ``jac(x)`` take one sample, as SciPy's do; they are called for each sample of a
    batch.  With ``jac=True``, f returns the value and the Jacobian together, and is called once
    for a value and its gradient.

    The Jacobian J has the output's shape and then the input's: (n) for a scalar function of a
    vector, a gradient; (m, n) for m residuals.  Then vjp(ct) = J^T ct and jvp(t) = J t; what is
    not used, a ct or t of 0, adds 0 where J is infinite, too.

    Args:
        f: one output; its keyword-only parameters become the op's static ones.
        jac: ``jac(*inputs)``, with a tuple of Jacobians for several inputs; or True.  A
            keyword-only parameter `out` gets what f returned; with `needs` it is told which
            are wanted, ``needs.x``, and may return None for the others.
        signature: gufunc notation, such as ``"(n)->()"``.
        hess: ``hess(x)``, the derivative of jac for one input, in the shape of the Jacobian and
            then that of the input, as SciPy's: with it there are second derivatives, without
            it these raise.
        dtypes: of the output, see `define`.
        constants: as for `from_numpy`; jac and hess may ask for them, too.
        host: see `Host`; None: one sample at a time, in this thread.
        name: the op's name in error messages; that of f if None.

    Raises:
        SignatureError: the notation is wrong, there are several outputs, a function does not
            take what it promises, or `hess` is given for several inputs.
        ArgumentError: something that is called is no function.
    """
    parsed, host = Signature.parse(signature), Host(vectorize=True) if host is None else host
    if len(parsed.outputs) != 1:
        raise SignatureError(f"{signature!r}: from_jacobian takes one output")
    if hess is not None and len(parsed.inputs) != 1:
        raise SignatureError(f"{signature!r}: hess is for one input")
    together = jac is True
    if jac is True:
        one_by_one = isinstance(host, Host) and host.vectorize
        both = Together(f, 4096 if one_by_one else 4)
        op = make_op(both.value, parsed, host, name or _name(f), dtypes, constants, like=f)
        both.constants = op.constants
        jac = both.slope
    else:
        op = make_op(f, parsed, host, name, dtypes, constants)
    if not callable(jac):
        raise ArgumentError(f"{op.label}: jac is a {type(jac).__name__}; expected a function")
    find = _jacobians(op, jac, f if together else None)
    if hess is not None:
        _check_callable(op, "hess", hess)
        (out,), (core,) = parsed.outputs, parsed.inputs
        second = _derivative(op, "hess", hess, Signature(parsed.inputs, (out + core + core,)))
        contract(find((True,)), 1, lambda _: second)
    contract(op, len(parsed.inputs), find)
    return op


def _jacobians(op: Op, jac: Function, like: Any) -> Callable[[tuple[bool, ...]], Op]:
    """What finds the op of the Jacobians that are wanted; of all, where `jac` does not ask."""
    (out,), inputs = op.signature.outputs, op.signature.inputs
    tells, sees_out = asks(jac, "needs"), asks(jac, "out")
    if tells or sees_out:
        check_count(op, "jac", jac, len(inputs), ("needs", "out"))
    seen, every = (*inputs, out) if sees_out else inputs, (True,) * len(inputs)

    @functools.cache
    def make(wanted: tuple[bool, ...]) -> Op:
        needs = Needs(op.names, wanted) if tells else None
        f = Asking(jac, needs, sees_out) if tells or sees_out else jac
        slopes = tuple(out + core for core in itertools.compress(inputs, wanted))
        return _derivative(op, "jac", f, Signature.of(seen, slopes), like)

    make(every)  # where it does not fit, it says so now
    return lambda wanted: make(wanted if tells else every)


def _derivative(op: Op, kind: str, f: Function, signature: Signature, like: Any = None) -> Op:
    """The op of a Jacobian or Hessian; it asks for the constants of the op."""
    # J of a real result for complex inputs is complex, as gradients are; J t is its real part
    dtypes = "complex" if str(op.dtypes[0]).startswith("complex") else None
    constants = {n: c for n, c in op.constants.items() if like is not None or asks(f, n)}
    host = op.host or True
    return make_op(f, signature, host, f"{op.name}.{kind}", dtypes, constants, like)


def make_op(
    f: Function,
    signature: Signature,
    host: Host | bool,
    name: str | None,
    dtypes: Any = None,
    constants: Any = (),
    like: Any = None,
) -> Op:
    """An op of that function, without rules."""
    if not callable(f):
        raise ArgumentError(
            f"from_numpy {signature}: f is a {type(f).__name__}; expected a function"
        )
    names, statics, defaults = _parameters(like or f, len(signature.inputs))
    made = Op(
        PlainFunction(f),
        signature,
        name=name or _name(f),
        names=names,
        statics=statics,
        host=as_host(name or _name(f), host),
        dtypes=dtypes,
        constants=constants,
        defaults=defaults,
    )
    made.__doc__ = inspect.getdoc(like or f)
    made.__module__ = getattr(like or f, "__module__", None) or __name__
    if like is None:
        check_count(made, "function", f, len(names))
    return made


def _name(f: Function) -> str:
    return getattr(f, "__name__", type(f).__name__)


def _parameters(f: Function, count: int) -> tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]:
    """The names of the array arguments; the keyword-only parameters; the defaults of both."""
    numbered = tuple(f"x{i}" for i in range(count))
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # built in: nothing is known
        return numbered, {}, {}
    names = tuple(p.name for p in parameters if p.kind in POSITIONAL)[:count]
    statics = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    if isinstance(f, Flat):
        return f.frame.names, statics, {}
    plain = isinstance(f, np.ufunc) or len(names) != count
    return (numbered, {}, {}) if plain else (names, statics, defaults_of(f))


def check_count(op: Op, what: str, f: Function, count: int, offered: tuple[str, ...] = ()) -> None:
    """Raise `SignatureError` where a function does not take that many arguments.

    It may ask for those that are `offered`, by name.
    """
    _check_callable(op, what, f)
    asked = {name: None for name in (*offered, *op.constants) if asks(f, name)}
    for name in asked:
        if name in offered and (name in op.statics or name in op.constants):
            kind = "static parameter" if name in op.statics else "constant"
            raise SignatureError(
                f"{op.label}: {name!r} is a {kind} of its function, and means something "
                f"else in its {what}; call the parameter something else"
            )
    try:
        inspect.signature(f).bind(*range(count), **op.statics, **asked)
    except TypeError as error:
        raise SignatureError(
            f"{op.label}: its {what} cannot take {count} positional arguments: {error}"
        ) from None
    except ValueError:  # built in: nothing is known
        return


def _check_callable(op: Op, what: str, f: Any) -> None:
    if not callable(f):
        raise ArgumentError(f"{op.label}: {what} is a {type(f).__name__}; expected a function")
