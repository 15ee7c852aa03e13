"""The structure of arguments as text that other processes read: for the names in graphs."""

from __future__ import annotations

import ast
import importlib
import sys
from typing import Any
from urllib.parse import quote, unquote


def write(key: tuple[Any, ...]) -> str | None:
    """A key as text without spaces, dots and brackets; None where it cannot be read back."""
    try:
        text = repr(_literals(key))
        same = _values(ast.literal_eval(text)) == key
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return quote(text, safe="").replace(".", "%2E") if same else None


def read(text: str) -> tuple[Any, ...]:
    """The key that was written; raise ValueError or ImportError where it cannot be."""
    key: tuple[Any, ...] = _values(ast.literal_eval(unquote(text)))
    return key


def _literals(value: Any) -> Any:
    """With a set of one string for each class: a key has no sets."""
    if isinstance(value, type):
        name = f"{value.__module__}:{value.__qualname__}"
        if value.__module__ in ("__main__", "__mp_main__") or _class(name) is not value:
            raise ValueError(name)
        return {name}
    return tuple(map(_literals, value)) if type(value) is tuple else value


def _values(value: Any) -> Any:
    if isinstance(value, set):
        return _class(*value)
    return tuple(map(_values, value)) if isinstance(value, tuple) else value


def _class(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
