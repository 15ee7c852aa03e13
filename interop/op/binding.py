"""What the three binders do alike with a call, and how a bound function presents itself."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from typing import Any

from twingrad.interop.op.definition import Op
from twingrad.interop.op.framework import DTYPES
from twingrad.interop.op.statics.static import Static
from twingrad.interop.op.structure.family import Family

_ARRAY_TYPES = {"numpy": "numpy.ndarray", "torch": "torch.Tensor", "jax": "jax.Array"}


def split_call(
    op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Static]:
    """The array arguments in order, and the static parameters as a key.

    Raises:
        ArgumentError: one is missing, unknown, given twice, or not hashable.
    """
    if kwargs or len(args) != len(op.names):
        kwargs = dict(kwargs)
        args = op.arguments(args, kwargs)
    return args, op.static(kwargs)


def number_dtype(op: Op, x: Any, bits: int) -> str:
    """The dtype that a number arrives in: it does not promote, and has no gradient.

    An integer reaches a host function as one, so that it can count and index; the formulas of
    an array op get it in the precision of the other arguments.
    """
    if isinstance(x, bool):
        return "bool"
    if op.host and isinstance(x, numbers.Integral):
        return "int64"
    return DTYPES["complex" if isinstance(x, complex) else "real", bits]


def bind_family(
    op: Family, framework: str, bind: Callable[[Op], Any], function: Any = None, **attributes: Any
) -> Any:
    """The function of an op with structured arguments, from the binder of ordinary ops.

    Or the `function` that is given, with its name, signature and docstring.
    """
    flatten = op.flatten

    def bound(*args: Any, **kwargs: Any) -> Any:
        flat, leaves, static = flatten(args, kwargs)
        return bind(flat)(*leaves, **static)

    def all_outputs(*args: Any, **kwargs: Any) -> Any:
        flat, leaves, static = flatten(args, kwargs)
        return bind(flat).all_outputs(*leaves, **static)

    return describe(function or bound, op, framework, all_outputs=all_outputs, **attributes)


def _parameters(op: Op) -> list[inspect.Parameter]:
    """The arguments, ``*xs`` if there is one, and the static parameters, with their defaults."""
    kind = inspect.Parameter
    plain = all(name.isidentifier() for name in op.names)  # no paths such as params.rate
    names = op.names if plain else [f"argument_{i}" for i in range(len(op.names))]
    found = [
        kind(n, kind.POSITIONAL_OR_KEYWORD, default=op.defaults.get(n, kind.empty)) for n in names
    ]
    if isinstance(op, Family):
        found += [kind(n, kind.VAR_POSITIONAL) for n in op.paths[len(op.names) :]]
    return found + [kind(n, kind.KEYWORD_ONLY, default=x) for n, x in op.statics.items()]


def describe(function: Callable[..., Any], op: Op, framework: str, **attributes: Any) -> Any:
    """Give a bound function the op's name, signature and docstring, and its attributes."""
    function.__name__, function.__qualname__ = op.name, f"{op.__qualname__}.for_{framework}"
    function.__module__ = op.__module__
    parameters = _parameters(op)
    array = _ARRAY_TYPES[framework]
    doc = op.__doc__ or ""
    function.__doc__ = (
        f"{doc}\n\nSignature: ``{op.label.partition(' ')[2]}``; arrays are `{array}`.".lstrip()
    )
    # pickle finds it by `__qualname__`: at the op, or where it took the place of the op
    function.__dict__.update(attributes, op=op, **{f"for_{framework}": function})
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function
