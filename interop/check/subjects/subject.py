"""What the check needs of a framework: one function with its derivatives, on NumPy arrays.

`torch_side` and `jax_side` implement `Subject`; this file imports neither framework.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any, Protocol

from twingrad.interop.errors import ArgumentError
from twingrad.interop.op.definition import Op
from twingrad.interop.op.missing import unknown
from twingrad.interop.op.variants import copied

Arrays = tuple[Any, ...]
FRAMEWORKS = ("torch", "jax")


class Unsupported(Exception):  # noqa: N818
    """The function cannot do what was asked, and says so; it is not wrong."""


class Subject(Protocol):
    """A function of arrays in one framework; everything is in the plain-transpose convention.

    Every method takes and returns NumPy arrays.  Outputs are tuples, gradients have None for
    inputs that have none.  `Unsupported` is raised where there is no such derivative.
    """

    name: str

    def value(self, *inputs: Any) -> Arrays:
        """The outputs."""
        ...

    def vjp(self, ct: Arrays, *inputs: Any) -> Arrays:
        """J^T ct: a gradient for each input."""
        ...

    def jvp(self, tangents: Arrays, *inputs: Any) -> Arrays:
        """J v: a tangent for each output."""
        ...

    def second(self, nesting: str, ct: Arrays, v: Arrays, w: Arrays, *inputs: Any) -> Arrays:
        """Second derivatives in one of `NESTINGS`.

        The derivative of vjp(ct, x) along v; for "fwd over fwd" that of jvp(w, x) along v.
        """
        ...

    def mapped(self, ct: Arrays, *inputs: Any) -> tuple[Arrays, Arrays]:
        """vmap over the first axis of everything: values and vjp."""
        ...

    def compiled(self, ct: Arrays, *inputs: Any) -> Arrays:
        """The vjp by the framework's functional transform, compiled."""
        ...

    def marked(self, factor: float) -> Any:
        """The same subject with rules that are `factor` times its own; None where unknown."""
        ...

    def raw(self, ct: Arrays, *inputs: Any) -> list[tuple[tuple[int, ...], str] | None]:
        """Shape and dtype of each gradient as it comes, without any conversion."""
        ...


NESTINGS = ("rev over rev", "fwd over rev", "rev over fwd", "fwd over fwd")


def installed() -> tuple[str, ...]:
    """The frameworks that are there."""
    return tuple(f for f in FRAMEWORKS if importlib.util.find_spec(f) is not None)


def frameworks_of(target: Any, inputs: Arrays, asked: str | None) -> tuple[str, ...]:
    """Where the target is checked.

    Raises:
        ArgumentError: a framework that is not there, or a function of an unknown one.
    """
    if asked not in (None, "both", *FRAMEWORKS):
        raise ArgumentError(f"check: framework={asked!r}; expected 'torch', 'jax' or 'both'")
    if asked in FRAMEWORKS and asked not in installed():
        raise ArgumentError(f"check: framework={asked!r} is not installed")
    if isinstance(target, Op):
        return installed() if asked in (None, "both") else (str(asked),)
    if asked == "both":
        raise ArgumentError(
            "check: framework='both' needs an Op; a function belongs to one of them"
        )
    found = asked or _guess(target, inputs)
    if found is None:
        raise ArgumentError(
            f"check: {target!r} may be a function of torch or of JAX; say framework='torch' or "
            "framework='jax'"
        )
    return (found,)


def _guess(target: Any, inputs: Arrays) -> str | None:
    """By the class of the target or of an input, without importing a framework."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None:
        function = isinstance(target, type) and issubclass(target, torch.autograd.Function)
        module = isinstance(target, torch.nn.Module)
        if function or module or any(isinstance(x, torch.Tensor) for x in inputs):
            return "torch"
    if jax is not None:
        own = isinstance(target, jax.custom_vjp | jax.custom_jvp)
        if own or any(isinstance(x, jax.Array) for x in inputs):
            return "jax"
    return None


def subject(target: Any, framework: str, static: dict[str, Any]) -> Subject:
    """The target in one framework, with its static parameters."""
    side = importlib.import_module(f"twingrad.interop.check.subjects.{framework}_side")
    made: Subject = side.make(target, static)
    return made


def as_tuple(y: Any) -> Arrays:
    """A result as a tuple, also where it is one array."""
    return tuple(y) if isinstance(y, tuple | list) else (y,)


def scaled(op: Op, factor: float) -> Op:
    """The op with rules that are `factor` times the derivative."""

    def times(rule: Any) -> Any:
        def made(xp: Any, ct: Any, out: Any, *inputs: Any, **static: Any) -> Any:
            found = rule(xp, ct, out, *inputs, **static)
            if isinstance(found, tuple):
                return tuple(g if g is None or g is unknown else factor * g for g in found)
            return factor * found

        return made

    copy: Op = copied(op, op.constants)
    copy.takes = op.takes
    copy.vjp, copy.jvp = (rule and times(rule) for rule in (op.vjp, op.jvp))
    return copy
