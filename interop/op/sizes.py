"""Sizes in a signature: a number, a name, or an expression of these such as ``n//2+1``.

A signature is read once, when an op is defined, by the grammar below; nothing is run as code.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Dim: TypeAlias = "str | int | Size"

_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|\d+|//|\.\.\.|[-+*(),{}\[\]:?])")
_APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
}
_SUMS, _PRODUCTS = ("+", "-"), ("*", "//")


@dataclass(frozen=True)
class Size:
    """Two sizes and the sign between them."""

    sign: str
    left: Dim
    right: Dim

    def __str__(self) -> str:
        product = self.sign in _PRODUCTS
        left, right = map(str, (self.left, self.right))
        if isinstance(self.left, Size) and product and self.left.sign in _SUMS:
            left = f"({left})"
        if isinstance(self.right, Size) and (product or self.right.sign in _SUMS):
            right = f"({right})"
        return f"{left}{self.sign}{right}"


def names_in(dim: Dim) -> Iterator[str]:
    """The names that a size depends on."""
    if isinstance(dim, Size):
        yield from names_in(dim.left)
        yield from names_in(dim.right)
    elif isinstance(dim, str):
        yield dim


def value_of(dim: Dim, sizes: Mapping[str, Any]) -> Any:
    """The size as a number; it may be negative.

    Raises:
        ZeroDivisionError: it divides by a size of 0.
    """
    if isinstance(dim, Size):
        return _APPLY[dim.sign](value_of(dim.left, sizes), value_of(dim.right, sizes))
    return sizes[dim] if isinstance(dim, str) else dim


def with_values(dim: Dim, values: Mapping[str, int]) -> Dim:
    """The size with numbers in the place of some names."""
    if isinstance(dim, Size):
        return _joined(dim.sign, with_values(dim.left, values), with_values(dim.right, values))
    return values.get(dim, dim) if isinstance(dim, str) else dim


def read_side(text: str) -> tuple[tuple[Dim, ...], ...]:
    """The cores of one side of a signature.

    Raises:
        ValueError: it is not one.
    """
    reader = Reader(text)
    cores = reader.several(reader.core)
    if reader.tokens:
        raise ValueError(text)
    return cores


class Reader:
    """The grammar, one method for each of its rules; `tokens` are those still to be read."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        place, text = 0, text.rstrip()
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise ValueError(text)
            self.tokens.insert(0, match[1])  # the next one is the last
            place = match.end()

    def next_is(self, *expected: str) -> bool:
        """Whether the next token is one of these."""
        return bool(self.tokens) and self.tokens[-1] in expected

    def take(self, *expected: str) -> str:
        """The next token, which must be one of these if any are given."""
        if not self.tokens or (expected and not self.next_is(*expected)):
            raise ValueError(self.tokens)
        return self.tokens.pop()

    def several(self, one: Callable[[], Any]) -> tuple[Any, ...]:
        """Some of the same with commas between."""
        found = [one()]
        while self.next_is(","):
            self.take(",")
            found.append(one())
        return tuple(found)

    def core(self) -> tuple[Dim, ...]:
        """The sizes in one pair of brackets."""
        self.take("(")
        dims = () if self.next_is(")") else self.several(self.sum)
        self.take(")")
        return dims

    def sum(self) -> Dim:
        """Terms with + or -."""
        return self.joined(self.product, _SUMS)

    def product(self) -> Dim:
        """Factors with * or //."""
        return self.joined(self.atom, _PRODUCTS)

    def joined(self, part: Callable[[], Dim], signs: tuple[str, ...]) -> Dim:
        """Parts with signs of one rank between."""
        found = part()
        while self.next_is(*signs):
            found = _joined(self.take(), found, part())
        return found

    def atom(self) -> Dim:
        """A number, a name, or an expression in brackets."""
        token = self.take()
        if token == "(":
            found = self.sum()
            self.take(")")
            return found
        if token.isdigit():
            return int(token)
        if not (token[0].isalpha() or token[0] == "_"):
            raise ValueError(token)
        return token


def _joined(sign: str, left: Dim, right: Dim) -> Dim:
    """The number where both are numbers, else a `Size`."""
    numbers = isinstance(left, int) and isinstance(right, int)
    if numbers and not (sign == "//" and right == 0):
        number: int = _APPLY[sign](left, right)
        return number
    return Size(sign, left, right)
