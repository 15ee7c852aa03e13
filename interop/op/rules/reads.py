"""Which arrays a rule reads: the others need not be kept until it runs.

A rule is a Python function; a parameter that its code never loads is not read.  What cannot be
looked into, such as a compiled or wrapped function, counts as reading everything.
"""

from __future__ import annotations

import dis
import inspect
from types import CodeType
from typing import Any

from twingrad.interop.op.samples.host import OnBatches, PlainFunction
from twingrad.interop.op.signature import Signature

# A function that names one of these may see its parameters without loading them.
_SEES_ALL = frozenset(("locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"))
_UNKNOWN: tuple[Any, tuple[bool, ...]] = (None, ())
_STORES = ("STORE_FAST", "DELETE_FAST", "MAKE_CELL")


def arrays_read(rule: Any, signature: Signature) -> tuple[bool, ...]:
    """For each input, and then for each output, whether the rule reads it."""
    n_in, n_out = len(signature.inputs), len(signature.outputs)
    if isinstance(rule, OnBatches):
        return arrays_read(rule.rule, signature)
    if isinstance(rule, PlainFunction):  # of (seeds, *inputs)
        return _inputs_read(rule.function, 1, n_in) + (rule.sees_out,) * n_out
    if hasattr(rule, "signature"):  # an op, called with the seeds and the inputs
        return (True,) * n_in + (False,) * n_out
    return _inputs_read(rule, 3, n_in) + _outputs_read(rule, n_out)


def kept(op: Any, kind: str) -> tuple[bool, ...]:
    """What to keep for the rule `kind`, or without it for the one that it follows from."""
    if getattr(op, kind) is None:
        kind = "jvp" if kind == "vjp" else "vjp"
    read = _known(op, kind)
    if op.linear and read:  # forward mode is the op itself, at the inputs that it is not linear in
        n_in = len(op.signature.inputs)
        return (True,) * n_in + read[n_in:]
    return read or (True,) * (len(op.signature.inputs) + len(op.signature.outputs))


def _known(op: Any, kind: str) -> tuple[bool, ...]:
    """What the rule reads; nothing is known where another was put in its place."""
    rule, read = op.reads.get(kind, _UNKNOWN)
    return read if rule is getattr(op, kind) else ()


def shown(
    op: Any, kind: str, inputs: tuple[Any, ...], outs: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arrays as a rule in `xp` calls gets them: None where it does not read one."""
    rule, (known, read) = getattr(op, kind), op.reads.get(kind, _UNKNOWN)
    if known is not rule or op.written.get(kind) is not rule or False not in read:
        return inputs, outs
    seen = [x if r else None for x, r in zip((*inputs, *outs), read, strict=True)]
    return tuple(seen[: len(inputs)]), tuple(seen[len(inputs) :])


def _inputs_read(rule: Any, before: int, n_in: int) -> tuple[bool, ...]:
    frame = getattr(rule, "frame", None)
    if frame is not None:  # the inputs are parts of its arguments
        read = _inputs_read(rule.function, before, len(frame.arguments))
        return frame.of_leaves(read)  # type: ignore[no-any-return]
    code = _code(rule)
    if code is None:
        return (True,) * n_in
    loaded = _loaded(code)
    return tuple(_parameter(code, before + i) in loaded for i in range(n_in))


def _outputs_read(rule: Any, n_out: int) -> tuple[bool, ...]:
    rule = rule.function if hasattr(rule, "frame") else rule
    code = _code(rule)
    if code is None:
        return (True,) * n_out
    loaded, name = _loaded(code), _parameter(code, 2)
    if n_out == 1 or name not in loaded or name in code.co_cellvars:
        return (name in loaded,) * n_out
    return _parts_read(code, name, n_out, loaded)


def _parts_read(code: CodeType, name: Any, count: int, loaded: set[Any]) -> tuple[bool, ...]:
    """The entries of a tuple that is only indexed by numbers and unpacked into names."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "RESUME")]
    read: set[int] = set()
    for place, step in enumerate(steps):
        if name not in _names(step):
            continue
        after = [s.opname for s in steps[place + 1 : place + 2 + count]]
        if after[:2] == ["LOAD_CONST", "BINARY_SUBSCR"] and step.opname == "LOAD_FAST":
            index = steps[place + 1].argval
            if isinstance(index, int) and -count <= index < count:
                read.add(index % count)
                continue
        if after == ["UNPACK_SEQUENCE"] + ["STORE_FAST"] * count and step.opname == "LOAD_FAST":
            stored = [s.argval for s in steps[place + 2 : place + 2 + count]]
            read.update(i for i, part in enumerate(stored) if part in loaded)
            continue
        return (True,) * count
    return tuple(i in read for i in range(count))


def _code(rule: Any) -> CodeType | None:
    if not inspect.isfunction(rule) or _SEES_ALL.intersection(rule.__code__.co_names):
        return None
    return rule.__code__


def _parameter(code: CodeType, place: int) -> str | None:
    """The name of a positional parameter, or that of the starred one that takes it."""
    if place < code.co_argcount:
        return code.co_varnames[place]
    if code.co_flags & inspect.CO_VARARGS:
        return code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    return None


def _loaded(code: CodeType) -> set[Any]:
    """Every name that the code may load; None, for a parameter that is not known, is one."""
    found: set[Any] = {None, *code.co_cellvars}
    for step in dis.get_instructions(code):
        if step.opname not in _STORES:
            found.update(_names(step))
    return found


def _names(step: dis.Instruction) -> tuple[str, ...]:
    values = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return tuple(value for value in values if isinstance(value, str))
