"""Define an operation and its derivatives once; use it from torch, JAX and NumPy.

``define`` makes an `Op` from a forward function and a signature; ``Op.def_vjp`` and
``Op.def_jvp`` give it its rules; a `Cache` keeps what a host function computes once for both.
``twingrad.interop.torch.bind(op)``, ``.jax.bind`` and ``.numpy.bind`` make the functions to
call.  This module imports no framework.
"""

from twingrad.interop.cache import Cache
from twingrad.interop.differences import complex_step, finite_difference
from twingrad.interop.errors import (
    ArgumentError,
    ExportError,
    GradientError,
    MissingRuleError,
    OutOfRangeError,
    RuleError,
    ShapeError,
    SignatureError,
    SingularError,
    TwingradError,
)
from twingrad.interop.estimators import gaussian_smoothing, spsa
from twingrad.interop.external import from_jacobian, from_numpy
from twingrad.interop.linear import from_linear
from twingrad.interop.missing import unknown
from twingrad.interop.op import Op, define
from twingrad.interop.samples import Host
from twingrad.interop.signature import Signature

__all__ = [
    "ArgumentError",
    "Cache",
    "ExportError",
    "GradientError",
    "Host",
    "MissingRuleError",
    "Op",
    "OutOfRangeError",
    "RuleError",
    "ShapeError",
    "Signature",
    "SignatureError",
    "SingularError",
    "TwingradError",
    "complex_step",
    "define",
    "finite_difference",
    "from_jacobian",
    "from_linear",
    "from_numpy",
    "gaussian_smoothing",
    "spsa",
    "unknown",
]
