"""The parameters of a function with structured arguments: their names and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from twingrad.interop.errors import SignatureError
from twingrad.interop.op.signature import POSITIONAL, defaults_of
from twingrad.interop.op.structure.notation import Notation
from twingrad.interop.op.structure.pattern import Maybe


def parameters(
    label: str,
    notation: Notation,
    function: Callable[..., Any],
    before: int,
    rest: tuple[str, ...] = (),
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the arguments, and those that may be left out, with what they are then.

    `rest` are the last ones, which the function does not take.

    Raises:
        SignatureError: the function has another number of them, or another name than the
            signature says.
    """
    count = len(notation.patterns) - len(rest)
    found = check_parameters(label, notation, function, before, "its function", len(rest))
    if found is None:
        numbered = [name or f"x{i}" for i, name in enumerate(notation.names)]
        return tuple(numbered), {}
    names = tuple([p.name for p in found])
    for name, given in zip(names, notation.names[:count], strict=True):
        if given not in (None, name):
            raise SignatureError(
                f"{label}: its function calls {name!r} what the signature calls {given!r}; "
                "give both the same name, or leave it out in the signature"
            )
    optional = {
        p.name: None
        for p, pattern in zip(found, notation.patterns[:count], strict=True)
        if p.default is None and isinstance(pattern, Maybe)
    }
    return (*names, *rest), defaults_of(function) | optional


def check_parameters(
    label: str,
    notation: Notation,
    function: Callable[..., Any],
    before: int,
    what: str,
    fewer: int = 0,
) -> list[inspect.Parameter] | None:
    """The parameters for the arguments; None where nothing is known of the function.

    Raises:
        SignatureError: there is another number of them than in the signature.
    """
    try:
        given = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built in
        return None
    several = [p for p in given if p.kind is p.VAR_POSITIONAL]
    found = [p for p in given if p.kind in POSITIONAL][before:]
    count = len(notation.patterns) - fewer
    rule = what != "its function"
    if several and (rule or (len(found) < count and not notation.starred)):
        return None  # it takes any
    if notation.starred:
        found += several
        if not several or len(found) != count:
            raise SignatureError(
                f"{label}: {what} takes {len(found)} arguments; the signature has any number of "
                f"the last one: expected {count - 1} and then one with a star, such as *xs"
            )
    elif len(found) != count:
        raise SignatureError(
            f"{label}: {what} takes {len(found)} arguments besides the first {before}; "
            f"the signature has {count}"
            if before
            else f"{label}: {what} takes {len(found)} arguments; the signature has {count}"
        )
    return found
