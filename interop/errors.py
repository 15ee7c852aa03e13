"""The errors that twingrad raises, all with the op's name and signature in front.

Every message reads ``op signature: what was found``, then what to do about it.
Each type derives from the one, of Python or NumPy, that a caller would expect to catch.
"""

from __future__ import annotations

from numpy.linalg import LinAlgError


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


class GradientError(TwingradError, AssertionError):
    """A gradient that failed its check; the message is the whole report."""


class ExportError(TwingradError, NotImplementedError):
    """A program was exported for a place where one of its ops cannot run."""


class SingularError(TwingradError, LinAlgError):
    """Equations that have no solution, or more than one."""


class OutOfRangeError(TwingradError, IndexError):
    """An index that points outside of what it indexes."""
