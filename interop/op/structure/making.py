"""How the functions that make ops take signatures with structured arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from twingrad.interop.errors import ArgumentError, SignatureError
from twingrad.interop.op.definition import Op
from twingrad.interop.op.structure.family import Family
from twingrad.interop.op.structure.frame import Frame
from twingrad.interop.op.structure.functions import Function
from twingrad.interop.op.structure.notation import Notation, is_structured
from twingrad.interop.op.structure.parameters import check_parameters

P = ParamSpec("P")
Made = TypeVar("Made")
Option = Callable[[Any, Frame, dict[str, Any]], Any]


def structured(
    *, rest: tuple[str, ...] = (), **options: Option
) -> Callable[[Callable[P, Made]], Callable[P, Made]]:
    """For a function that makes an op of its first argument: let it take structured signatures.

    Args:
        rest: the arguments that the op has beyond those of its function, numbers.
        options: for the arguments of the maker that have to do with the op's arguments, what
            they are for the ordinary op of one frame: ``option(value, frame, given)``, with
            all that the maker was given.
    """

    def decorate(make: Callable[P, Made]) -> Callable[P, Made]:
        @functools.wraps(make)
        def made(*args: P.args, **given: P.kwargs) -> Made:
            signature: Any = given.get("signature")
            if not is_structured(signature):
                return make(*args, **given)
            notation = Notation.parse(signature)
            for name in rest:
                notation = notation.followed_by(name)
            bound = inspect.signature(make).bind(*args, **given).arguments
            family: Any = _family(make, notation, bound, rest, options)
            return family  # type: ignore[no-any-return]

        return made

    return decorate


def _family(
    make: Callable[..., Any],
    notation: Notation,
    given: dict[str, Any],
    rest: tuple[str, ...],
    options: dict[str, Option],
) -> Op:
    first, f = next(iter(given.items()))
    name = str(given.get("name") or getattr(f, "__name__", type(f).__name__))
    if not callable(f):
        raise ArgumentError(f"{notation.text}: f is a {type(f).__name__}; expected a function")

    def flat(frame: Frame, constants: Any) -> Op:
        inner = frame[: len(frame.arguments) - len(rest)]
        changed = {k: o(given[k], inner, given) for k, o in options.items() if k in given}
        own = {"name": name, "signature": inner.signature, "constants": constants}
        whole = {**given, first: Function(f, inner), **own}
        return make(**{**whole, **changed})  # type: ignore[no-any-return]

    return Family(
        notation, f, flat, name=name, before=0, rest=rest, constants=given.get("constants", ())
    )


def wrapped(kind: Callable[..., Any], what: str, before: int = 0, fewer: int = 0) -> Option:
    """An option that is a function or rule with that many arguments before the structured ones.

    `fewer` of these are not among its arguments.
    """

    def option(value: Any, frame: Frame, given: dict[str, Any]) -> Any:
        if not callable(value):
            return value
        check_parameters(frame.label, frame.notation, value, before, what, fewer)
        return kind(value, frame, before)

    return option


def refused(what: str) -> Option:
    """An option that ops with structured arguments do not have."""

    def option(value: Any, frame: Frame, given: dict[str, Any]) -> Any:
        if value is None:
            return None
        raise SignatureError(
            f"{frame.label}: {what} does not take arguments with structure; write the rules with "
            "define, where they can call other ops"
        )

    return option


def argnums(value: Any, frame: Frame, given: dict[str, Any]) -> Any:
    """An option that is the names or places of arguments, None for all."""
    if value is None:
        return None
    names, several = [part.path for part in frame.arguments], not isinstance(value, str | int)
    found = [
        names[i] if isinstance(i, int) and -len(names) <= i < len(names) else i
        for i in (value if several else [value])
    ]
    return frame.spread(found, "argnums", ArgumentError)


def one_for_each(value: Any, frame: Frame, given: dict[str, Any]) -> Any:
    """An option that is one value, or a sequence of one for each argument."""
    return frame.of_leaves(value) if isinstance(value, Sequence) else value
