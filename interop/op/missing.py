"""Derivatives that an op has no formula for: said by a rule, and raised where they are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twingrad.interop.errors import MissingRuleError


class Unknown:
    """See `unknown`."""

    def __repr__(self) -> str:
        return "unknown"

    def __reduce__(self) -> str:
        return "unknown"  # there is one only, in every process


unknown = Unknown()
"""What a vjp returns for an argument that it has no formula for.

The gradient of that argument raises `MissingRuleError` where it is asked for, and only there.
``None`` is something else: the gradient is exactly zero.
"""


def check_known(op: Any, kind: str, found: Iterable[tuple[int, Any]]) -> None:
    """Raise where what a rule returned for one of these arguments is `unknown`.

    Raises:
        MissingRuleError: it names the op and the argument.
    """
    for i, value in found:
        if value is unknown:
            raise no_formula(op, kind, op.names[i])


def no_formula(op: Any, kind: str, name: str) -> MissingRuleError:
    """The error for one argument."""
    what = "gradient" if kind == "vjp" else "tangent"
    return MissingRuleError(
        f"{op.label}: its {kind} has no formula for {name}, and the derivative in {name} was asked "
        f"for; hold {name} fixed (with stop_gradient or detach), or give the rule its {what}"
    )


def no_rule(op: Any, kind: str, mode: str) -> MissingRuleError:
    """The error for a rule that is not there, and that follows from none that is."""
    origin, _, rule = op.name.partition(".")
    if rule:
        way = {
            "jac": f"Give from_jacobian a hess for {origin}",
            "hess": f"Write the rules of {origin} with define",
        }
        otherwise = f"Give {origin} a {rule} with host=False that calls another op with rules"
        return MissingRuleError(
            f"{op.label}: the {rule} of {origin} runs on the host and has no rules of "
            f"its own, so a higher derivative of {origin} in {mode} is not known. "
            f"{way.get(rule, otherwise)}"
        )
    by_rows = f", or {origin}.def_jvp_by_rows()" if kind == "jvp" and op.vjp else ""
    return MissingRuleError(
        f"{op.label}: {mode} needs a {kind} rule and it has none that it follows "
        f"from; add one with @{origin}.def_{kind}{by_rows}"
    )
