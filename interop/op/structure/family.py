"""Ops with structured arguments: one ordinary op for each structure that they are called with.

The ordinary op is called with the arrays in the structure, which are its arguments by path:
``params.rate``.  So its rules, derivatives, batches and errors are those of every op.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.definition import Op, Rule
from twingrad.interop.op.rules.derived import filled
from twingrad.interop.op.signature import as_tuple
from twingrad.interop.op.statics.constants import check_constants
from twingrad.interop.op.statics.hidden import refuse_hidden
from twingrad.interop.op.statics.static import KEPT, refuse_unknown
from twingrad.interop.op.structure.frame import Fields, Frame, Items, Part
from twingrad.interop.op.structure.functions import Gradients, Tangents
from twingrad.interop.op.structure.notation import Notation
from twingrad.interop.op.structure.parameters import check_parameters, parameters
from twingrad.interop.op.structure.pattern import Array
from twingrad.interop.op.structure.values import Misfit
from twingrad.interop.op.variants import Variants, with_those_of

_RULES = {"vjp": Gradients, "jvp": Tangents}


class Family(Op):
    """An op whose arguments have structure; made by `define` and the like.

    Attributes:
        notation: its signature.
        paths: the arguments, and the name of ``*xs`` at the end; `names` is without that.
        flat: ``flat(key)``, the ordinary op for the structure that has this key.
    """

    def __init__(
        self,
        notation: Notation,
        function: Callable[..., Any],
        make: Callable[[Frame, Any], Op],
        *,
        name: str,
        before: int,
        rest: tuple[str, ...] = (),
        constants: Any = (),
    ) -> None:
        """Of a function with structured arguments.

        Args:
            notation: the signature.
            function: as the user wrote it, with that many arguments `before` the structured ones.
            make: makes the ordinary op of a frame, with these constants.
            name: of the op.
            before: how many parameters stand before the arguments.
            rest: the names of arguments that the function does not take, the last ones.
            constants: see `define`.

        Raises:
            SignatureError: the function has other parameters than the signature.
        """
        self.notation, self._make, self.name = notation, make, name
        self._given = notation, function, make
        self._options: Any = {"name": name, "before": before, "rest": rest}
        self.constants = constants
        self.label = f"{name} {notation.written(len(notation.outputs))}"
        names, self.defaults = parameters(self.label, notation, function, before, rest)
        self.paths = names
        self.names = names[: len(names) - notation.starred]
        self.bound, self.changes, self.parts = {}, {}, {}
        self.rules: dict[str, Any] = {}  # as they were set, for the ordinary ops
        self.recipe = self.origin = self.frame = None
        self.variants = Variants(self)
        self.flat = functools.lru_cache(KEPT)(self._flat)
        self.__name__ = self.__qualname__ = name
        self.__doc__ = inspect.getdoc(function)
        self.__module__ = getattr(function, "__module__", None) or __name__
        self._look_at(self._flat(notation.example()))

    def _look_at(self, sample: Op) -> None:
        """Take over what all ordinary ops have alike."""
        for name in (
            "signature",
            "label",
            "host",
            "hidden",
            "visible",
            "dtypes",
            "sizes",
            "statics",
        ):
            setattr(self, name, getattr(sample, name))
        for name in (
            "vjp",
            "jvp",
            "vjp_on_host",
            "jvp_on_host",
            "linear",
            "reads",
            "written",
            "constants",
        ):
            setattr(self, name, getattr(sample, name))

    def _flat(self, key: tuple[Any, ...]) -> Op:
        frame = self.notation.frame(self.label, self.paths, key)
        for part in frame.arguments:
            refuse_hidden(self.label, tuple(_constants(part)))
        frame.check()
        op = self._make(frame, self.constants)
        op.label = f"{self.name} {self.notation.written(op.visible)}"
        op.__doc__, op.__module__, op.__qualname__ = self.__doc__, self.__module__, self.name
        op.origin, op.frame = (self, key), frame
        for change in self.rules.values():
            _apply(op, frame, change)
        return op

    def flatten(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Op, list[Any], dict[str, Any]]:
        """The ordinary op for a call, its arguments, and the static ones; see `take`."""
        leaves, key, kwargs = self.take(args, kwargs)
        return self.flat(tuple(key)), leaves, kwargs

    def take(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], list[Any], dict[str, Any]]:
        """The arrays in the arguments of a call, the key of the others, and the static ones.

        Raises:
            ArgumentError: one is missing, unknown, given twice, or of another structure.
        """
        patterns = self.notation.patterns
        if kwargs or self.notation.starred or len(args) != len(patterns):
            args, kwargs = self._ordered(args, kwargs)
        leaves: list[Any] = []
        key: list[Any] = []
        place = 0
        try:
            for pattern in patterns:
                if type(pattern) is Array:
                    leaves.append(args[place])
                else:
                    pattern.take(args[place], leaves, key)
                place += 1
        except Misfit as error:
            where = f"{self.paths[place]}{error.path}"
            raise ArgumentError(f"{self.label}: {where} {error.text}") from None
        return leaves, key, kwargs

    def _ordered(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        kwargs, count = dict(kwargs), len(self.names)
        last = (args[count:],) if self.notation.starred else ()
        args = self.arguments(args[:count] if last else args, kwargs)
        if self.constants:
            check_constants(self.label, self.constants, kwargs)
        refuse_unknown(self.label, self.paths, self.statics, kwargs)
        return (*args, *last), kwargs

    def copied(self, constants: Any) -> Family:
        """The same with other constants, without rules."""
        return Family(*self._given, **self._options, constants=constants)

    def _set(self, kind: str, rule: Any, host: bool | None, unknown: tuple[str, ...] = ()) -> Any:
        if rule is None:
            return lambda rule: self._set(kind, rule, host, unknown)
        if not isinstance(rule, Op):
            check_parameters(self.label, self.notation, rule, 3, f"its {kind}")
        self._change(kind, ("_set", kind, rule, host, unknown))
        return rule

    def def_jvp(
        self, rule: Any = None, *, host: bool | None = None, unknown: Sequence[str] = ()
    ) -> Any:
        """See `Op.def_jvp`; `unknown` takes arguments, and paths such as ``params.rate``."""
        return self._set("jvp", rule, host, tuple(unknown))

    def def_jvp_by_rows(self) -> None:
        """See `Op.def_jvp_by_rows`."""
        self._change("jvp", ("def_jvp_by_rows",))

    def _change(self, kind: str, change: Any) -> None:
        before = dict(self.rules)
        self.rules[kind] = self.changes[kind] = change
        try:
            sample = self._flat(self.notation.example())
        except Exception:
            self.rules = before
            self.changes.pop(kind)
            raise
        self._look_at(sample)
        self.flat.cache_clear()
        self.variants.follow(self, change)


def _apply(op: Op, frame: Frame, change: Any) -> None:
    """Give the ordinary op a rule that its family was given."""
    name, *given = change
    if name != "_set":
        getattr(op, name)(*given)
        return
    kind, rule, host, unknown = given
    if isinstance(rule, Family):
        op._set(
            kind,
            _by_family(frame, kind, with_those_of(op, rule)),
            False,
            frame.spread(unknown, "unknown"),
        )
        return
    if not isinstance(rule, Op):
        rule = _RULES[kind](rule, frame, 3)
    op._set(kind, rule, host, frame.spread(unknown, "unknown"))


def _by_family(frame: Frame, kind: str, other: Op) -> Rule:
    """Another structured op as a rule: of the cotangents or tangents and the arguments."""

    def rule(xp: Any, seeds: Any, out: Any, *leaves: Any, **static: Any) -> Any:
        given = filled(xp, seeds, as_tuple(out) if kind == "vjp" else leaves)
        dots = given if kind == "vjp" else frame.build(given)
        return other(xp, *dots, *frame.build(leaves), **static)

    return rule


def _constants(part: Part) -> Iterator[tuple[str, Any]]:
    """The constants in a structure, by their paths."""
    if isinstance(part, Fields):
        yield from ((f"{part.path}.{name}", value) for name, _, value in part.rest)
    if isinstance(part, Fields | Items):
        for each in part.parts:
            yield from _constants(each)
