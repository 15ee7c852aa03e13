"""The names by which graphs of torch call ops, so that no graph ever runs another op.

Compiled and exported graphs hold a string.  They may outlive the op, and be saved by one
process and run by another.  So a name says for certain which op it means:

- An op that its module holds under its own name, ``package.module:energy``, is found by import,
  as pickle finds functions; ``package.module:energy.vjp`` is a part of it.
- Every other op, of a factory, a notebook or a script, gets a number that is never given again,
  ``package.module.energy@3f27-12``.  It is found in this process while it lives.

Signature and static parameters stand behind that.  A name keeps nothing alive.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import os
import re
import secrets
import sys
import weakref
from dataclasses import replace
from typing import Any

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.definition import Op
from twingrad.interop.op.statics.static import written
from twingrad.interop.op.structure.family import Family
from twingrad.interop.op.structure.written import read, write

_NUMBERS = itertools.count(1)
_FUNCTIONS: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_OPS: weakref.WeakValueDictionary[str, Op] = weakref.WeakValueDictionary()
_IDENTITIES: weakref.WeakKeyDictionary[Op, str] = weakref.WeakKeyDictionary()
# Which op was first found under an importable name: another one, after a reload, never gets it.
_OWNERS: dict[str, str] = {}
_process = ""


def _new_process() -> None:
    global _process
    _process = secrets.token_hex(6)


_new_process()
os.register_at_fork(after_in_child=_new_process)  # the numbers of parent and child go on alike


def register(function: Any) -> None:
    """Give the Function of an op its name."""
    kernel = function.kernel
    text = written(kernel.static)
    kernel.statics_text = f"@{_process}-{next(_NUMBERS)}" if text is None else text
    kernel.name = _name(_identity(kernel.op), kernel)
    kernel.certain = False
    _FUNCTIONS[kernel.name] = function


def name_of(kernel: Any) -> str:
    """The name for a graph: the importable one as soon as the op's module holds it."""
    if not kernel.certain:
        public = _public(kernel.op)
        if public is not None:
            function = find(kernel.name)
            kernel.name, kernel.certain = _name(public, kernel), True
            _FUNCTIONS[kernel.name] = function
    return kernel.name  # type: ignore[no-any-return]


def find(name: str) -> Any:
    """The Function that a graph means.

    Raises:
        ArgumentError: it is not there any more, or not for certain the same.
    """
    found = _FUNCTIONS.get(name)
    return _again(name) if found is None else found


def hold(function: Any) -> None:
    """Keep a Function as long as its op, where it could not be made again from its name."""
    kernel = function.kernel
    if kernel.statics_text.startswith("@"):
        kernel.op.bound.setdefault("torch graphs", set()).add(function)


def _name(reference: str, kernel: Any) -> str:
    return f"{reference} {kernel.op.signature} {kernel.statics_text}".rstrip()


def _identity(op: Op) -> str:
    """The op's name in this process, which no other op ever had."""
    if op not in _IDENTITIES:
        where = re.sub(r"\s", "_", f"{op.__module__}.{op.name}")
        _IDENTITIES[op] = identity = f"{where}@{_process}-{next(_NUMBERS)}"
        _OPS[identity] = op
    return _IDENTITIES[op]


def _public(op: Op) -> str | None:
    """The name by which every process finds the op, if there is one."""
    module, path = op.__module__, _path(op)
    if path is None or module in ("__main__", "__mp_main__"):
        return None
    if _at(sys.modules.get(module), path) is not op:
        return None
    name, identity = f"{module}:{path}", _identity(op)
    return name if _OWNERS.setdefault(name, identity) == identity else None


def _path(op: Op) -> str | None:
    """The op's name; that of a structure is the name of its family and the structure as text."""
    if op.whole is not None and op.whole.origin is not None:
        path, kind = _path(op.whole), op.name.rpartition(".")[2]
        return path and f"{path}.{kind}"
    if op.origin is None:
        return op.name
    family, key = op.origin
    text = write(key)
    return text and f"{family.name}[{text}]"


def _at(module: Any, path: str) -> Any:
    first, *parts = path.split(".")
    name, bracket, text = first.partition("[")
    found = getattr(module, name, None)
    found = getattr(found, "op", found)  # the bound function will do
    if bracket:
        found = found.flat(read(text[:-1])) if isinstance(found, Family) else None
    for part in parts:
        found = found.parts.get(part) if isinstance(found, Op) else None
    return found


def _again(name: str) -> Any:
    """The Function of a name that was let go, or was given by another process."""
    reference, signature, *rest = name.split(" ", 2)
    op = _OPS.get(reference) if "@" in reference else _imported(reference)
    if op is None:
        raise ArgumentError(_gone(reference, signature))
    if str(op.signature) != signature:
        raise ArgumentError(
            f"{reference} {signature}: this graph calls an op of that signature; "
            f"found {op.signature} in this process. Export the graph again"
        )
    statics = rest[0] if rest else "{}"
    if not statics.startswith("@"):
        bound = importlib.import_module("twingrad.interop.torch").bind(op)
        given = ast.literal_eval(statics)
        low = given.pop("_low", "")
        function = bound.of_static(replace(op.static(given), low=low))
        if name in (function.kernel.name, name_of(function.kernel)):
            return function
    raise ArgumentError(
        f"{reference} {signature}: this graph calls the op with static parameters that cannot be "
        f"written down and read back: {statics}. Give numbers, strings or tuples of these"
        if statics.startswith("@")
        else f"{reference} {signature}: the module was loaded anew, and the op that this graph "
        "calls is gone. Compile or export it again"
    )


def _imported(reference: str) -> Op | None:
    module, _, path = reference.partition(":")
    try:
        found = _at(importlib.import_module(module), path)
    except ImportError as error:
        raise ArgumentError(
            f"{reference}: this graph calls an op of the module {module}, which cannot be imported "
            f"here: {error}"
        ) from error
    return found if isinstance(found, Op) else None


def _gone(reference: str, signature: str) -> str:
    if "@" not in reference:
        module, _, path = reference.partition(":")
        return f"{reference} {signature}: this graph calls an op {path} that {module} does not hold"
    where, _, number = reference.partition("@")
    if number.startswith(f"{_process}-"):
        return (
            f"{where} {signature}: this graph calls an op that is gone; keep the op, or what "
            "bind returned for it, as long as the graph"
        )
    return (
        f"{where} {signature}: this graph was made in another process, by an op that cannot be "
        "told for certain here: it came from a factory, a notebook, a script or with_constants. "
        f"Assign the op to the name {where.rpartition('.')[2]} in a module that both can import, "
        "and make the graph again"
    )
