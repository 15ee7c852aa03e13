"""One structure that arguments can have: how arrays are put into it, and taken out of it again.

A `Frame` is that of one call: every list has its length, every object its class.  Its arrays are
named by their paths, such as ``params.rate`` and ``springs[0].k``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twingrad.interop.errors import ArgumentError, RuleError, SignatureError
from twingrad.interop.op.missing import unknown
from twingrad.interop.op.signature import Signature
from twingrad.interop.op.sizes import Dim
from twingrad.interop.op.statics.hidden import is_array
from twingrad.interop.op.structure.values import Misfit, contents, is_sequence

OWN = "_"  # a size that is nobody else's


@dataclass(frozen=True)
class Leaf:
    """An array."""

    path: str
    core: tuple[Dim, ...]

    def leaves(self) -> Iterator[Leaf]:
        """The arrays in it, in order."""
        yield self

    def build(self, given: Iterator[Any]) -> Any:
        """The value, from the arrays."""
        return next(given)

    def collect(self, found: Any) -> Iterator[Any]:
        """What stands for each array in what a rule returned; None and `unknown` for all below.

        Raises:
            Misfit: it has another structure.
        """
        if isinstance(found, Mapping | list | tuple):
            raise _misfit(self.path, found, "an array")
        yield found


@dataclass(frozen=True)
class Nothing:
    """A None."""

    path: str

    def leaves(self) -> Iterator[Leaf]:
        """See `Leaf.leaves`."""
        yield from ()

    def build(self, given: Iterator[Any]) -> Any:
        """See `Leaf.build`."""

    def collect(self, found: Any) -> Iterator[Any]:
        """See `Leaf.collect`: there is no gradient."""
        yield from ()


@dataclass(frozen=True)
class Fields:
    """A dict or an object, with its constants: (name, key, value) of each."""

    path: str
    cls: Any
    names: tuple[str, ...]
    parts: tuple[Part, ...]
    rest: tuple[Any, ...]

    def leaves(self) -> Iterator[Leaf]:
        """See `Leaf.leaves`."""
        return (leaf for part in self.parts for leaf in part.leaves())

    def build(self, given: Iterator[Any]) -> Any:
        """See `Leaf.build`; an object is made without its ``__init__``."""
        pairs = [
            (name, part.build(given)) for name, part in zip(self.names, self.parts, strict=True)
        ]
        pairs += [(name, value) for name, _, value in self.rest]
        cls: Any = self.cls
        if cls is dict:
            return dict(pairs)
        if issubclass(self.cls, Mapping):
            return cls(dict(pairs))
        if issubclass(self.cls, tuple):
            values = dict(pairs)
            return cls._make([values[name] for name in cls._fields])
        made = object.__new__(cls)
        for name, value in pairs:
            object.__setattr__(made, name, value)
        return made

    def collect(self, found: Any) -> Iterator[Any]:
        """See `Leaf.collect`; a dict will do for an object."""
        if found is None or found is unknown:
            yield from (found for _ in self.leaves())
            return
        entries = None if is_array(found) else contents(found)
        if entries is None:
            raise _misfit(self.path, found, f"one with {', '.join(self.names)}")
        constants = [name for name, _, _ in self.rest]
        for name in entries:
            if isinstance(found, dict) and name not in self.names and name not in constants:
                raise Misfit(
                    self.path,
                    f"something for {self.path}.{name}, which is no argument; expected "
                    + ", ".join(self.names),
                )
        for name, part in zip(self.names, self.parts, strict=True):
            if name in entries:
                yield from part.collect(entries[name])
            elif isinstance(found, Mapping) or not hasattr(found, name):
                for leaf in part.leaves():
                    raise Misfit(
                        leaf.path,
                        f"nothing for {leaf.path}; expected an array, or None where it is zero",
                    )
            else:
                yield from part.collect(getattr(found, name))


@dataclass(frozen=True)
class Items:
    """A list or tuple."""

    path: str
    cls: Any
    parts: tuple[Part, ...]

    def leaves(self) -> Iterator[Leaf]:
        """See `Leaf.leaves`."""
        return (leaf for part in self.parts for leaf in part.leaves())

    def build(self, given: Iterator[Any]) -> Any:
        """See `Leaf.build`."""
        values = [part.build(given) for part in self.parts]
        return self.cls._make(values) if hasattr(self.cls, "_make") else self.cls(values)

    def collect(self, found: Any) -> Iterator[Any]:
        """See `Leaf.collect`."""
        if found is None or found is unknown:
            yield from (found for _ in self.leaves())
            return
        count = len(self.parts)
        if not is_sequence(found) or len(found) != count:
            raise _misfit(self.path, found, f"a list or tuple of {count}")
        for part, value in zip(self.parts, found, strict=True):
            yield from part.collect(value)


Part = Leaf | Nothing | Fields | Items
Notation = Any  # that of `structure.notation`, which imports this file


def _misfit(path: str, found: Any, expected: str) -> Misfit:
    count = f" of {len(found)}" if is_sequence(found) else ""
    return Misfit(
        path,
        f"a {type(found).__name__}{count} for {path}; expected {expected}, as the argument, or "
        "None where all of it is zero",
    )


@dataclass(frozen=True)
class Frame:
    """The structure of all arguments; those of ``*xs`` are one tuple at the end.

    Attributes:
        label: of the op, for messages.
        notation: its signature.
        arguments: one part for each.
        starred: whether the last argument is that of ``*xs``.
    """

    label: str
    notation: Notation
    arguments: tuple[Part, ...]
    starred: bool

    @functools.cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arrays, in order."""
        return tuple([leaf for part in self.arguments for leaf in part.leaves()])

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Their paths: the arguments of the flat op."""
        return tuple([leaf.path for leaf in self.leaves])

    @functools.cached_property
    def signature(self) -> Signature:
        """The signature of the flat op; each ``_`` is a size of its own."""
        count = iter(range(1, 1 + sum(dim == OWN for leaf in self.leaves for dim in leaf.core)))
        cores = [
            tuple([f"_{next(count)}" if dim == OWN else dim for dim in leaf.core])
            for leaf in self.leaves
        ]
        return Signature.of(tuple(cores), self.notation.outputs)

    def build(self, leaves: Sequence[Any]) -> list[Any]:
        """The arguments, from the arrays."""
        given = iter(leaves)
        args = [part.build(given) for part in self.arguments]
        return [*args[:-1], *args[-1]] if self.starred else args

    def collect(
        self,
        found: Any,
        what: str = "its rule returned",
        error: type[Exception] = RuleError,
    ) -> tuple[Any, ...]:
        """What was returned or given for the arguments, as one for each array.

        Raises:
            RuleError: it has another structure; or another `error`.
        """
        try:
            return tuple(self._collect(found))
        except Misfit as misfit:
            raise error(f"{self.label}: {what} {misfit.text}") from None

    def _collect(self, found: Any) -> Iterator[Any]:
        fixed = len(self.arguments) - self.starred
        last = self.arguments[-1]
        count = fixed + len(last.parts) if self.starred and isinstance(last, Items) else fixed
        values = [found] if count == 1 and not self._is_tuple_of_one(found) else found
        if not is_sequence(values) or len(values) != count:
            text = f"{len(values)} values" if is_sequence(values) else f"a {type(found).__name__}"
            raise Misfit("", f"{text}; expected a tuple of {count}, one for each argument")
        given = [*values[:fixed], values[fixed:]] if self.starred else values
        for part, value in zip(self.arguments, given, strict=True):
            yield from part.collect(value)

    def _is_tuple_of_one(self, found: Any) -> bool:
        """Whether the only argument's gradient comes in a tuple."""
        if not is_sequence(found) or hasattr(found, "_fields") or len(found) != 1:
            return False
        part = self.arguments[0]
        if self.starred or not isinstance(part, Items):
            return True
        return len(part.parts) != 1 or (
            is_sequence(found[0]) and not isinstance(part.parts[0], Items)
        )

    def __getitem__(self, some: slice) -> Frame:
        """The same for some of the arguments."""
        starred = self.starred and some.indices(len(self.arguments))[1] == len(self.arguments)
        return Frame(self.label, self.notation, self.arguments[some], starred)

    def spread(
        self, names: Any, what: str, error: type[Exception] = SignatureError
    ) -> tuple[str, ...]:
        """The paths of the arrays in what is named, as an argument or by a path.

        Raises:
            SignatureError: a name can be no argument in any structure; or another `error`.
        """
        given = (names,) if isinstance(names, str) else tuple(names)
        known = [part.path for part in self.arguments]
        for name in given:
            if not self.notation.has(known, str(name)):
                raise error(f"{self.label}: {what} has {name!r}, which is no argument")
        return tuple(
            [
                path
                for path in self.names
                if any(path == name or path.startswith((f"{name}.", f"{name}[")) for name in given)
            ]
        )

    def of_leaves(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """A value for each argument as one for each array."""
        pairs = zip(self.arguments, values, strict=True)
        return tuple([value for part, value in pairs for _ in part.leaves()])

    def check(self) -> None:
        """Raise where a value of this structure cannot be made again.

        Raises:
            ArgumentError: a class wants more than its fields.
        """
        for part in self.arguments:
            try:
                part.build(iter([None] * len(self.leaves)))
            except Exception as error:
                path, cls = getattr(part, "path", ""), getattr(part, "cls", None)
                raise ArgumentError(
                    f"{self.label}: {path} has a class that cannot be made from its fields "
                    f"({cls}: {error}); give a dict, a dataclass or a NamedTuple"
                ) from error
