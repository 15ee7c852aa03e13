"""What an op is: one forward function, its signature, and its rules.

An `Op` knows no framework.  ``twingrad.interop.{numpy,torch,jax}.bind(op)`` make the
function a user calls; inside a rule, ``other_op(xp, ...)`` calls another op through the
binder of the framework that `xp` belongs to, so that its own rules hold there as well.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from twingrad.interop.errors import ArgumentError, MissingRuleError, SignatureError
from twingrad.interop.op.pickling import reduced
from twingrad.interop.op.promises import declare
from twingrad.interop.op.rules.adjoint import places
from twingrad.interop.op.rules.asked import refuse_statics
from twingrad.interop.op.rules.derived import asking, by_rows, delegate, hosted
from twingrad.interop.op.rules.reads import arrays_read
from twingrad.interop.op.samples.host import Host, asks, on_batches
from twingrad.interop.op.signature import Signature, check_arity
from twingrad.interop.op.statics.constants import check_constants, declare_constants
from twingrad.interop.op.statics.static import Static, check_sizes
from twingrad.interop.op.variants import Variants, with_those_of

Rule = Callable[..., Any]


class Op:
    """An operation with hand-written derivatives; made by `define`.

    Attributes:
        name: the name in error messages, and of the bound functions.
        signature: the parsed `Signature`.
        forward: ``forward(xp, *inputs, **static)``.
        vjp: ``vjp(xp, ct, out, *inputs, **static)``, or None.
        jvp: ``jvp(xp, tangents, out, *inputs, **static)``, or None.
        host: how forward is called, where it is NumPy code that no framework can trace;
            otherwise None.
        hidden: how many of the last outputs only the rules see.
        dtypes: what each output's dtype is, see `define`.
        names, statics: the arguments in order; the keyword-only parameters and their defaults.
        defaults: the numbers that stand in for arguments that are left out.
        linear, sizes: the arguments that it is linear in; the static ones that are sizes.
        constants, takes: the constants by name, None where there is no value yet; those that
            the function and the rules in `xp` calls ask for.
        written: the function and the rules as the user wrote them.
        parts: the ops that were made for its rules, by the last part of their names.
    """

    def __init__(
        self,
        forward: Rule,
        signature: Signature,
        *,
        name: str,
        names: tuple[str, ...],
        statics: dict[str, Any],
        host: Host | None = None,
        hidden: int = 0,
        dtypes: Any = None,
        linear: str | Sequence[str] = (),
        constants: Any = (),
        defaults: dict[str, Any] | None = None,
    ) -> None:
        self.signature, self.name, self.names = signature, name, names
        self.defaults = defaults or {}
        self.host, self.hidden = host, hidden
        self.reads: dict[str, Any] = {}  # each rule, and what it reads; see `arrays_read`
        self.vjp: Any = None  # a Rule, once def_vjp has been called
        self.jvp: Any = None
        self.vjp_on_host = self.jvp_on_host = False
        self.jvp_unknown: tuple[str, ...] = ()
        self.bound: dict[str, Any] = {}
        self.recipe: Any = None  # the call that makes it, where it is not known by a name
        self.origin: Any = None  # the family that it is one of, and its key there
        self.whole: Any = None  # the op that it was made for, in whose `parts` it is
        self.frame: Any = None  # the structure that its arguments are the arrays of
        self.changes: dict[str, Any] = {}  # the rules that were set after that call
        self.parts: dict[str, Op] = {}
        self.takes: dict[str, tuple[str, ...]] = {}
        self.variants = Variants(self)
        self.visible = len(signature.outputs) - hidden
        self.label = f"{name} {Signature(signature.inputs, signature.outputs[: self.visible])}"
        refuse_statics(self.label, statics)
        self.constants, self.statics = declare_constants(self.label, constants, statics)
        self.written = {"function": forward}
        self._take("function", host is not None)
        self.forward = on_batches(self, "function")
        self.sizes = check_sizes(self.label, signature, self.statics)
        self.declare_linear(linear)
        self.dtypes = declare(self.label, dtypes, len(signature.outputs))
        self.__name__ = self.__qualname__ = name
        self.__doc__, self.__module__ = inspect.getdoc(forward), forward.__module__

    def __repr__(self) -> str:
        return f"<op {self.label}>"

    def __reduce__(self) -> Any:
        return reduced(self)

    def __copy__(self, memo: Any = None) -> Op:
        return self  # as functions are

    __deepcopy__ = __copy__

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """for_torch, for_jax, for_numpy: the bound functions, by which pickle finds them."""
            if name in ("for_torch", "for_jax", "for_numpy"):
                return _binder(name.removeprefix("for_")).bind(self)
            if name.startswith("for_torch_fused_"):
                return _binder("torch").bind(self, fused=int(name.rpartition("_")[2]))
            raise AttributeError(f"an op has no attribute {name!r}")

    def __call__(self, xp: Any, *inputs: Any, **static: Any) -> Any:
        """Evaluate inside a rule, with the binder that `xp` belongs to: what its users see."""
        op = self
        if self.constants:
            given = {name: static.pop(name) for name in self.constants if name in static}
            op = self.with_constants(**given)
        found = _binder(xp.__name__).bind(op).all_outputs(*inputs, **static)
        seen = slice(self.visible) if self.visible > 1 else 0
        return found[seen] if self.hidden else found

    @overload
    def def_vjp(self, rule: None = None, *, host: bool | None = None) -> Callable[[Rule], Rule]: ...
    @overload
    def def_vjp(self, rule: Rule, *, host: bool | None = None) -> Rule: ...
    def def_vjp(self, rule: Any = None, *, host: bool | None = None) -> Any:
        """Set the rule for reverse mode: ``rule(xp, ct, out, *inputs, **static)``.

        It returns one gradient per input (a tuple, or the array itself for one input),
        each at the shape of the input or of batch + core.  None is a gradient of exactly zero,
        as integers have; `unknown` says that there is no formula, and raises where that gradient
        is asked for.  With several outputs `ct` and `out` are tuples.  The cotangent of a hidden
        output is None while nobody differentiates that output.

        With a keyword-only parameter `needs` a rule is told which gradients are wanted: ``needs.x``
        is a bool, compiled too (in torch's backward: x requires one); others are not looked at.

        Instead of a function, another op ``(*ct, *inputs) -> gradients``.  The rule of a
        host op runs on the host too, unless ``host=False``: then it is written in `xp`
        calls and may call other ops.
        """
        return self._set("vjp", rule, host)

    @overload
    def def_jvp(
        self, rule: None = None, *, host: bool | None = None, unknown: Sequence[str] = ()
    ) -> Callable[[Rule], Rule]: ...
    @overload
    def def_jvp(
        self, rule: Rule, *, host: bool | None = None, unknown: Sequence[str] = ()
    ) -> Rule: ...
    def def_jvp(
        self, rule: Any = None, *, host: bool | None = None, unknown: Sequence[str] = ()
    ) -> Any:
        """Set the rule for forward mode: ``rule(xp, tangents, out, *inputs, **static)``.

        It returns the tangent of the output (a tuple for several).  `tangents` is a tuple
        with one entry per input (None for integer and boolean ones).  An op may stand in
        for the rule, called as ``(*tangents, *inputs) -> tangents of the outputs``.

        `unknown` names the arguments that the rule has no formula for: a tangent of one of them
        raises.  The rule cannot say it itself, as a tangent of zero is zeros to it.

        Raises:
            SignatureError: `unknown` has a name that is no argument.
        """
        for name in unknown:
            if name not in self.names:
                raise SignatureError(f"{self.label}: unknown={name!r}, which is no argument")
        return self._set("jvp", rule, host, tuple(unknown))

    def _set(self, kind: str, rule: Any, host: bool | None, unknown: tuple[str, ...] = ()) -> Any:
        if rule is None:
            return lambda rule: self._set(kind, rule, host, unknown)
        self.jvp_unknown = unknown if kind == "jvp" else self.jvp_unknown
        on_host = not isinstance(rule, Op) and (bool(self.host) if host is None else host)
        if isinstance(rule, Op):
            made = delegate(self, kind, with_those_of(self, rule))
        else:
            check_arity(self.signature, self.label, rule, 3, f"its {kind}")
            self.written[kind] = rule
            self._take(kind, on_host)
            made = hosted(self, kind, on_batches(self, kind)) if on_host else asking(self, rule)
        setattr(self, kind, made)
        self.reads[kind] = made, arrays_read(rule, self.signature)
        setattr(self, f"{kind}_on_host", on_host)
        self.changes[kind] = change = ("_set", kind, rule, host, unknown)
        self.variants.follow(self, change)
        self.bound.clear()
        return rule

    def def_jvp_by_rows(self) -> None:
        """Make forward mode from the vjp of a host op: the Jacobian by rows, times the tangents.

        One call of the vjp, with as many cotangents per sample as the outputs have numbers.

        Raises:
            MissingRuleError: there is no vjp.
        """
        if self.vjp is None:
            raise MissingRuleError(f"{self.label}: define its vjp before its jvp by rows")
        self.def_jvp(by_rows(self), host=False)
        self.takes["jvp"] = self.takes.get("vjp", ())
        self.changes["jvp"] = ("def_jvp_by_rows",)
        self.variants.follow(self, self.changes["jvp"])

    def declare_linear(self, names: str | Sequence[str]) -> None:
        """Say that the op is linear in these arguments together; see `define`."""
        self.linear = places(self, names)

    @property
    def complete(self) -> bool:
        """Whether it can be called without keywords: all have a default or a value."""
        absent = inspect.Parameter.empty in self.statics.values()
        return not absent and None not in self.constants.values()

    def _take(self, kind: str, on_host: bool) -> None:
        names = [] if on_host else [n for n in self.constants if asks(self.written[kind], n)]
        self.takes[kind] = tuple(names)

    def with_constants(self, **values: Any) -> Op:
        """The op with these arrays for its constants: the same object for the same content.

        The latest 8 are kept, with what was compiled for them, though nobody holds them.

        Raises:
            ArgumentError: a name is no constant of the op; or a value is no array, or one that
                has or may have a gradient.
        """
        found: Op = self.variants.find(self, values)
        return found

    def static(self, given: dict[str, Any]) -> Static:
        """The static parameters with their defaults, as a key; see `Static.of`.

        Raises:
            ArgumentError: as there, or a constant is missing or given.
        """
        if self.constants:
            check_constants(self.label, self.constants, given)
        return Static.of(self.label, self.names, self.statics, given)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Positional and named array arguments in order; pops the named ones."""
        values = list(args)
        for name in self.names[len(args) :]:
            if name not in kwargs and name in self.defaults:
                values.append(self.defaults[name])
                continue
            if name not in kwargs:
                raise ArgumentError(
                    f"{self.label}: the argument {name!r} is missing; "
                    f"it takes {len(self.names)} ({', '.join(self.names)}), found {len(args)}"
                )
            values.append(kwargs.pop(name))
        if len(values) > len(self.names):
            raise ArgumentError(
                f"{self.label}: it takes {len(self.names)} arguments "
                f"({', '.join(self.names)}), found {len(args)}"
            )
        for name in self.names:
            if name in kwargs:
                raise ArgumentError(f"{self.label}: the argument {name!r} was given twice")
        return tuple(values)


@functools.cache
def _binder(name: str) -> Any:
    """The binder module of the framework that a namespace of this name belongs to."""
    framework = next((f for f in ("torch", "jax", "numpy") if f in name.split(".")), None)
    if framework is None:
        raise ArgumentError(f"no binder knows the namespace {name!r}; found it as a rule's xp")
    return importlib.import_module(f"twingrad.interop.{framework}")
