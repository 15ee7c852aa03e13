"""What a signature says of an argument, as a tree; it takes a value apart into arrays and a key.

The key is what remains of a value without its arrays: classes, names, counts, what is None, and
the fields that the signature does not name.  Keys of one pattern are read back in the order in
which they were written, by `frame`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twingrad.interop.op.sizes import Dim
from twingrad.interop.op.statics.hidden import is_array
from twingrad.interop.op.structure.frame import Fields, Items, Leaf, Nothing, Part
from twingrad.interop.op.structure.values import Misfit, contents, fixed, is_sequence

Key = Iterator[Any]
_MISSING = object()


@dataclass(frozen=True)
class Array:
    """``(n)``: an array."""

    core: tuple[Dim, ...]

    def take(self, x: Any, leaves: list[Any], key: list[Any]) -> None:
        """Append the arrays of a value, and what its key consists of.

        Raises:
            Misfit: the value has another structure.
        """
        leaves.append(x)

    def frame(self, path: str, key: Key) -> Part:
        """How values with this key are put together."""
        return Leaf(path, self.core)

    def example(self) -> list[Any]:
        """A key that has everything once."""
        return []


@dataclass(frozen=True)
class Maybe:
    """``(n)?``: it may be None."""

    part: Pattern

    def take(self, x: Any, leaves: list[Any], key: list[Any]) -> None:
        """See `Array.take`."""
        key.append(x is None)
        if x is not None:
            self.part.take(x, leaves, key)

    def frame(self, path: str, key: Key) -> Part:
        """See `Array.frame`."""
        return Nothing(path) if next(key) else self.part.frame(path, key)

    def example(self) -> list[Any]:
        """See `Array.example`."""
        return [False, *self.part.example()]


@dataclass(frozen=True)
class Named:
    """``{rate: (), shift: (n)}``: a dict with these keys, or an object with these fields."""

    parts: tuple[tuple[str, Pattern], ...]

    def take(self, x: Any, leaves: list[Any], key: list[Any]) -> None:
        """See `Array.take`."""
        cls, found = type(x), contents(x)
        if found is None:
            raise Misfit("", f"is a {cls.__name__}; expected {self}")
        key.append(cls)
        known = 0
        for name, part in self.parts:
            value = found.get(name, _MISSING)
            if value is _MISSING:
                value = self.absent(x, found, name, part)
            else:
                known += 1
            if type(part) is Array:
                leaves.append(value)
            else:
                step(part, value, leaves, key, name)
        key.append(self.rest(cls, found) if len(found) != known else ())

    def absent(self, x: Any, found: Any, name: str, part: Pattern) -> Any:
        """What an object has of its class, and None for what may be left out."""
        if is_array(x):
            raise Misfit("", f"is a {type(x).__name__}; expected {self}")
        if found is not x and hasattr(x, name):
            return getattr(x, name)
        if isinstance(part, Maybe):
            return None
        have = ", ".join(map(str, found)) or "nothing"
        raise Misfit(f".{name}", f"is missing; expected {self}, found {have}")

    def rest(self, cls: type, found: Mapping[Any, Any]) -> tuple[Any, ...]:
        """The fields that the signature does not name, which must be constants."""
        named = [name for name, _ in self.parts]
        others = [name for name in found if name not in named]
        if len(others) > 1:
            others.sort(key=str)
        return tuple([each for name in others for each in fixed(cls, name, found[name])])

    def frame(self, path: str, key: Key) -> Part:
        """See `Array.frame`."""
        cls = next(key)
        parts = tuple([part.frame(f"{path}.{name}", key) for name, part in self.parts])
        return Fields(path, cls, tuple(name for name, _ in self.parts), parts, next(key))

    def example(self) -> list[Any]:
        """See `Array.example`."""
        return [dict, *(each for _, part in self.parts for each in part.example()), ()]

    def __str__(self) -> str:
        return "a dict or an object with " + ", ".join(name for name, _ in self.parts)


@dataclass(frozen=True)
class AnyNames:
    """``{...: (n)}``: a dict of any names."""

    part: Pattern

    def take(self, x: Any, leaves: list[Any], key: list[Any]) -> None:
        """See `Array.take`."""
        if not isinstance(x, Mapping) or not all(isinstance(name, str) for name in x):
            raise Misfit("", f"is a {type(x).__name__}; expected a dict whose keys are strings")
        names = tuple(sorted(x))
        key += (type(x), names)
        for name in names:
            step(self.part, x[name], leaves, key, name)

    def frame(self, path: str, key: Key) -> Part:
        """See `Array.frame`."""
        cls, names = next(key), next(key)
        parts = tuple([self.part.frame(f"{path}.{name}", key) for name in names])
        return Fields(path, cls, names, parts, ())

    def example(self) -> list[Any]:
        """See `Array.example`."""
        return [dict, ("key",), *self.part.example()]


@dataclass(frozen=True)
class Listed:
    """``[(n), (m)]``: a list or tuple of that many."""

    parts: tuple[Pattern, ...]

    def take(self, x: Any, leaves: list[Any], key: list[Any]) -> None:
        """See `Array.take`."""
        if not is_sequence(x) or len(x) != len(self.parts):
            count = f" of {len(x)}" if is_sequence(x) else ""
            raise Misfit(
                "", f"is a {type(x).__name__}{count}; expected a list or tuple of {len(self.parts)}"
            )
        key.append(type(x))
        for i, part in enumerate(self.parts):
            step(part, x[i], leaves, key, i)

    def frame(self, path: str, key: Key) -> Part:
        """See `Array.frame`."""
        cls = next(key)
        parts = tuple([part.frame(f"{path}[{i}]", key) for i, part in enumerate(self.parts)])
        return Items(path, cls, parts)

    def example(self) -> list[Any]:
        """See `Array.example`."""
        return [list, *(each for part in self.parts for each in part.example())]


@dataclass(frozen=True)
class Several:
    """``[(n), ...]``: a list or tuple of any number."""

    part: Pattern

    def take(self, x: Any, leaves: list[Any], key: list[Any]) -> None:
        """See `Array.take`."""
        if not is_sequence(x):
            raise Misfit("", f"is a {type(x).__name__}; expected a list or tuple")
        key += (type(x), len(x))
        for i, value in enumerate(x):
            step(self.part, value, leaves, key, i)

    def frame(self, path: str, key: Key) -> Part:
        """See `Array.frame`."""
        cls, count = next(key), next(key)
        return Items(path, cls, tuple([self.part.frame(f"{path}[{i}]", key) for i in range(count)]))

    def example(self) -> list[Any]:
        """See `Array.example`."""
        return [list, 1, *self.part.example()]


Pattern = Array | Maybe | Named | AnyNames | Listed | Several


def step(part: Pattern, x: Any, leaves: list[Any], key: list[Any], place: str | int) -> None:
    """Take apart what stands at a place; an error says where."""
    try:
        part.take(x, leaves, key)
    except Misfit as error:
        error.path = (f"[{place}]" if isinstance(place, int) else f".{place}") + error.path
        raise


def inner(part: Pattern, place: str) -> Pattern | None:
    """What stands at a name or number, if that can be."""
    if isinstance(part, Maybe):
        return inner(part.part, place)
    if isinstance(part, Named):
        return dict(part.parts).get(place)
    if isinstance(part, Listed):
        return part.parts[int(place)] if place.isdigit() and int(place) < len(part.parts) else None
    if isinstance(part, AnyNames) or (isinstance(part, Several) and place.isdigit()):
        return part.part
    return None
