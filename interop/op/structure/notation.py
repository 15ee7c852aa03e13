"""Signatures with structured arguments, such as ``"params: {rate: (), shift: (n)}, (t) -> (t)"``.

The names of arguments may be left out: they are those of the function's parameters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twingrad.interop.errors import SignatureError
from twingrad.interop.op.signature import Core
from twingrad.interop.op.sizes import Reader, names_in
from twingrad.interop.op.structure.frame import OWN, Frame
from twingrad.interop.op.structure.pattern import (
    AnyNames,
    Array,
    Listed,
    Maybe,
    Named,
    Pattern,
    Several,
    inner,
)

_STRUCTURED = re.compile(r"[{\[:?]|\.\.\.|\b_\b")


def is_structured(signature: Any) -> bool:
    """Whether a signature says more than the shapes of its arguments."""
    return isinstance(signature, str) and _STRUCTURED.search(signature) is not None


@dataclass(frozen=True)
class Notation:
    """A structured signature as it was read.

    Attributes:
        names: those written in it, None where there is none.
        patterns: of the arguments.
        starred: whether the last one is that of ``*xs``.
        outputs: the cores of the results.
        text: of the arguments, as written.
    """

    names: tuple[str | None, ...]
    patterns: tuple[Pattern, ...]
    starred: bool
    outputs: tuple[Core, ...]
    text: str

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def parse(text: str) -> Notation:
        """Read a signature; raise `SignatureError` where it is not one."""
        try:
            before, after = text.split("->")
            reader = _Reader(before)
            found = reader.arguments()
            results = Reader(after)
            outputs = results.several(results.core)
            starred = reader.ellipsis()
            if reader.tokens or results.tokens:
                raise ValueError(text)
        except ValueError:
            raise SignatureError(
                f"{text!r} is not a signature; arguments with structure are written as in "
                '"{rate: (), shift: (n)}, (t) -> (t)", "{...: (n)}->()" (any names), '
                '"[{w: (_,_), b: (_)}, ...], (n) -> (m)" (a list), "(n), (n)? -> ()" (may be None) '
                'and "(n)... -> ()" (any number)'
            ) from None
        if any(OWN in names_in(dim) for core in outputs for dim in core):
            raise SignatureError(
                f"{text!r}: a result cannot have the size _, which is a size of its own wherever "
                "it stands; give the size a name"
            )
        names, patterns = zip(*found, strict=True)
        if starred:
            patterns = (*patterns[:-1], Several(patterns[-1]))
        return Notation(names, patterns, starred, outputs, before.strip())

    def written(self, visible: int) -> str:
        """The signature as it was written, with that many results."""
        results = ",".join("(" + ",".join(map(str, c)) + ")" for c in self.outputs[:visible])
        return f"{self.text} -> {results}"

    def frame(self, label: str, names: tuple[str, ...], key: tuple[Any, ...]) -> Frame:
        """The structure that has this key, of arguments with these names."""
        given = iter(key)
        pairs = zip(names, self.patterns, strict=True)
        parts = [pattern.frame(name, given) for name, pattern in pairs]
        return Frame(label, self, tuple(parts), self.starred)

    def has(self, names: Sequence[str], path: str) -> bool:
        """Whether a path such as ``params.rate`` can lead to an argument, or into one."""
        first, *steps = re.findall(r"[^.\[\]]+", path) or [""]
        if first not in names:
            return False
        pattern: Pattern | None = self.patterns[names.index(first)]
        for step in steps:
            pattern = pattern and inner(pattern, step)
        return pattern is not None

    def example(self) -> tuple[Any, ...]:
        """The key of arguments that have everything once."""
        return tuple([each for pattern in self.patterns for each in pattern.example()])

    def followed_by(self, name: str) -> Notation:
        """The same, with one more argument, of shape ()."""
        if self.starred:
            raise SignatureError(
                f"{self.text}: any number of arguments, and then the {name}; write one list "
                "of them, as in [(n), ...]"
            )
        return Notation(
            (*self.names, name),
            (*self.patterns, Array(())),
            False,
            self.outputs,
            f"{self.text}, {name}: ()",
        )


class _Reader(Reader):
    """The grammar of arguments."""

    def arguments(self) -> list[tuple[str | None, Pattern]]:
        """The name, if there is one, and the pattern of each, as far as an ellipsis or the end."""
        found = [self.argument()]
        while self.next_is(","):
            self.take(",")
            if self.next_is("..."):
                break
            found.append(self.argument())
        return found

    def argument(self) -> tuple[str | None, Pattern]:
        name = None
        if not self.next_is("(", "[", "{"):
            name = self.name()
            self.take(":")
        return name, self.pattern()

    def ellipsis(self) -> bool:
        found = self.next_is("...")
        if found:
            self.take("...")
        return found

    def name(self) -> str:
        token = self.take()
        if not token.isidentifier():
            raise ValueError(token)
        return token

    def pattern(self) -> Pattern:
        found: Pattern
        if self.next_is("{"):
            found = self.fields()
        elif self.next_is("["):
            found = self.listed()
        else:
            found = Array(self.core())
        if not self.next_is("?"):
            return found
        self.take("?")
        return Maybe(found)

    def fields(self) -> Pattern:
        self.take("{")
        if self.ellipsis():
            self.take(":")
            found: Pattern = AnyNames(self.pattern())
        else:
            parts = self.several(self.field)
            if len({name for name, _ in parts}) != len(parts):
                raise ValueError(parts)
            found = Named(parts)
        self.take("}")
        return found

    def field(self) -> tuple[str, Pattern]:
        name = self.name()
        self.take(":")
        return name, self.pattern()

    def listed(self) -> Pattern:
        self.take("[")
        found = [self.pattern()]
        while self.next_is(","):
            self.take(",")
            if self.ellipsis():
                self.take("]")
                if len(found) != 1:
                    raise ValueError(found)
                return Several(found[0])
            found.append(self.pattern())
        self.take("]")
        return Listed(tuple(found))
