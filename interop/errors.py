"""The errors that twingrad raises, all with the op's name and signature in front.

Every message reads ``op signature: what was found``, then what to do about it.
Each type derives from the built-in that a caller would expect to catch.
"""

from __future__ import annotations


class TwingradError(Exception):
    """Base of every error that twingrad raises on purpose."""


class SignatureError(TwingradError, ValueError):
    """A signature that cannot be parsed, or a function that does not fit its signature."""


class ShapeError(TwingradError, ValueError):
    """Arguments whose shapes do not fit the op's signature."""


class ArgumentError(TwingradError, TypeError):
    """An argument of the wrong kind: missing, unknown, not an array, or on another device."""


class RuleError(TwingradError, ValueError):
    """A forward function or rule that returned something its signature does not promise."""


class MissingRuleError(TwingradError, NotImplementedError):
    """A derivative was asked for that the op has no rule for."""


class ExportError(TwingradError, NotImplementedError):
    """A program was exported for a place where one of its ops cannot run."""
