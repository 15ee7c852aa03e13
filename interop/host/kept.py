"""What the functions of an op of NumPy code share: a factorisation, made once for the same numbers.

Nothing is handed from a call to the next: each asks for it by the content of the arguments, and it
is made again where it is gone, in another thread, process or order of calls.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from twingrad.interop.errors import ArgumentError, SignatureError
from twingrad.interop.host.cache import Cache
from twingrad.interop.op.samples.host import asks
from twingrad.interop.op.signature import POSITIONAL

Function = Callable[..., Any]


class Kept:
    """``make(*some of the inputs, **some keywords)``, by the names of its parameters."""

    def __init__(self, make: Function, names: tuple[str, ...], cache: Cache) -> None:
        self.make, self.names, self.cache = make, names, cache
        parameters = inspect.signature(make).parameters.values()
        self.places = [names.index(p.name) for p in parameters if p.kind in POSITIONAL]
        self.keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

    def __reduce__(self) -> Any:
        return Kept, (self.make, self.names, self.cache)

    def of(self, inputs: Sequence[Any], keywords: dict[str, Any]) -> Any:
        """What is kept for these inputs."""
        values = [keywords[name] for name in self.keywords]
        return self.cache.get(self._call, *[inputs[i] for i in self.places], *values)

    def _call(self, *args: Any) -> Any:
        cut = len(self.places)
        return self.make(*args[:cut], **dict(zip(self.keywords, args[cut:], strict=True)))


class Keeping:
    """A function or rule that asks for `kept`, as one that does not; inputs begin at `first`."""

    def __init__(self, function: Function, kept: Kept, first: int) -> None:
        functools.update_wrapper(self, function)
        self.function, self.kept, self.first = function, kept, first

    @property
    def __signature__(self) -> inspect.Signature:
        own = [p for p in inspect.signature(self.function).parameters.values() if p.name != "kept"]
        known = {p.name for p in own}
        more = [n for n in self.kept.keywords if n not in known]
        added = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in more]
        return inspect.Signature([*own, *added])

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """What the function returns."""
        found = self.kept.of(args[self.first :], keywords)
        used = {n: x for n, x in keywords.items() if self._takes(n)}
        return self.function(*args, kept=found, **used)

    def _takes(self, name: str) -> bool:
        return name not in self.kept.keywords or asks(self.function, name)


def share(
    label: str, make: Any, names: tuple[str, ...], cache: Cache | None, functions: Sequence[Any]
) -> Kept | None:
    """What these functions share; None where `make` is None.

    Raises:
        SignatureError: a parameter of `make` is no argument, or no function asks for it.
        ArgumentError: it is no function.
    """
    if make is None:
        return None
    if not callable(make):
        raise ArgumentError(f"{label}: kept is a {type(make).__name__}; expected a function")
    for p in inspect.signature(make).parameters.values():
        if p.kind in POSITIONAL and p.name not in names:
            raise SignatureError(
                f"{label}: kept takes {p.name!r}, which is no argument; its parameters are some "
                f"of {', '.join(names)}, by their names"
            )
    if not any(f is not None and asks(f, "kept") for f in functions):
        raise SignatureError(
            f"{label}: nobody asks for what is kept; give the function or a rule a keyword-only "
            "parameter, `*, kept`"
        )
    return Kept(make, names, Cache(64) if cache is None else cache)


def keeping(function: Any, kept: Kept | None, first: int) -> Any:
    """The function, with what it asks for."""
    if kept is None or function is None or not asks(function, "kept"):
        return function
    return Keeping(function, kept, first)
