"""What a rule is told by request: a keyword-only parameter `needs`, or `out` of NumPy code."""

from __future__ import annotations

from typing import Any

from twingrad.interop.errors import SignatureError
from twingrad.interop.op.framework import inexact


class Needs(tuple[bool, ...]):
    """Which derivatives are wanted: one bool for each argument, ``needs.x`` or ``needs[0]``."""

    def __new__(cls, names: tuple[str, ...], wanted: tuple[bool, ...]) -> Needs:
        """The names of an op's arguments, and whether each is wanted."""
        made = super().__new__(cls, wanted)
        vars(made).update(zip(names, wanted, strict=True))
        return made

    def __getattr__(self, name: str) -> bool:
        raise AttributeError(f"there is no argument {name!r}; they are {', '.join(vars(self))}")

    def __reduce__(self) -> Any:
        return Needs, (tuple(vars(self)), tuple(self))


def told(names: tuple[str, ...], inputs: tuple[Any, ...], wanted: tuple[bool, ...] | None) -> Needs:
    """What a rule is told; `wanted` is None where all are that can be."""
    return Needs(names, tuple(map(inexact, inputs)) if wanted is None else wanted)


def refuse_statics(label: str, statics: dict[str, Any]) -> None:
    """Raise where a static parameter has a name that means something else in a rule.

    Raises:
        SignatureError: it is called `needs`.
    """
    if "needs" in statics:
        raise SignatureError(
            f"{label}: 'needs' cannot be a static parameter: in a rule it tells which derivatives "
            "are wanted; call it something else"
        )
