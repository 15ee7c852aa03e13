"""Functions and rules of structured arguments, as functions and rules of the arrays in them.

All of them can be pickled where the user's function can be.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from twingrad.interop.op.rules.asked import Needs
from twingrad.interop.op.signature import as_tuple
from twingrad.interop.op.structure.frame import Fields, Frame, Items, Leaf, Part


@dataclass(frozen=True)
class Function:
    """A function of structured arguments, as one of the arrays in them.

    Attributes:
        function: as the user wrote it.
        frame: the structure.
        before: how many arguments stand before the structured ones, such as `xp`.
    """

    function: Callable[..., Any]
    frame: Frame
    before: int = 0

    def __post_init__(self) -> None:
        """Pass for the function where its module and name are asked for."""
        for name in ("__module__", "__name__", "__doc__"):
            if hasattr(self.function, name):
                vars(self)[name] = getattr(self.function, name)

    @property
    def __signature__(self) -> inspect.Signature:
        count, kind = self.before + len(self.frame.leaves), inspect.Parameter.POSITIONAL_ONLY
        placed = [inspect.Parameter(f"argument_{i}", kind) for i in range(count)]
        return inspect.Signature(placed + keywords(self.function))

    def __call__(self, *args: Any, **static: Any) -> Any:
        """What the function returns."""
        return self.function(*self.given(args), **self.told(static))

    def given(self, args: tuple[Any, ...]) -> list[Any]:
        """The arguments of the function."""
        return [*args[: self.before], *self.frame.build(args[self.before :])]

    def told(self, static: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the function: with the wanted derivatives in the structure."""
        if isinstance(static.get("needs"), Needs):
            static["needs"] = _needs(self.frame, static["needs"])
        return static


class Gradients(Function):
    """A rule that returns something for each argument, in its structure."""

    def __call__(self, *args: Any, **static: Any) -> Any:
        """The same for each array."""
        return self.frame.collect(super().__call__(*args, **static))


class Tangents(Function):
    """A rule that is given tangents in the structure, just before the output or the arguments."""

    def given(self, args: tuple[Any, ...]) -> list[Any]:
        """The arguments of the rule."""
        place = max(self.before - 2, 0)
        dots = self.frame.build([*as_tuple(args[place])])
        whole = super().given(args)
        return [*whole[:place], tuple(dots), *whole[place + 1 :]]


class Pair(Function):
    """A function that returns its value, and then something for each argument."""

    def __call__(self, *args: Any, **static: Any) -> Any:
        """The value, and the same for each array."""
        value, found = super().__call__(*args, **static)
        return value, self.frame.collect(found)


def keywords(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The keyword-only parameters of a function."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built in: nothing is known
        return []
    return [p for p in parameters if p.kind is p.KEYWORD_ONLY]


class Wanted:
    """Which derivatives are wanted, below an argument: by field, key or place; true if any is."""

    def __init__(self, parts: dict[Any, Any]) -> None:
        self._parts = parts

    def __getitem__(self, place: Any) -> Any:
        return self._parts[place]

    def __getattr__(self, name: str) -> Any:
        try:
            return vars(self)["_parts"][name]
        except KeyError:
            raise AttributeError(f"there is no argument {name!r} here") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts.values())

    def __len__(self) -> int:
        return len(self._parts)

    def __bool__(self) -> bool:
        return any(self._parts.values())


def _needs(frame: Frame, needs: Needs) -> Needs:
    given = iter(needs)
    found = [_wanted(part, given) for part in frame.arguments]
    names = [part.path for part in frame.arguments]
    return Needs(tuple(names), tuple(found))


def _wanted(part: Part, given: Iterator[bool]) -> Any:
    if isinstance(part, Leaf):
        return next(given)
    if isinstance(part, Fields):
        pairs = zip(part.names, part.parts, strict=True)
        return Wanted({name: _wanted(each, given) for name, each in pairs})
    if isinstance(part, Items):
        return Wanted({i: _wanted(each, given) for i, each in enumerate(part.parts)})
    return False
