"""Define an operation and its derivatives once; use it from torch, JAX and NumPy.

``define`` makes an `Op` from a forward function and a signature; ``Op.def_vjp`` and
``Op.def_jvp`` give it its rules; a `Cache` keeps what a host function computes once for both.
``twingrad.interop.torch.bind(op)``, ``.jax.bind`` and ``.numpy.bind`` make the functions to
call.  This module imports no framework.
"""

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
from twingrad.interop.host.cache import Cache
from twingrad.interop.host.differences import complex_step, finite_difference
from twingrad.interop.host.estimators import gaussian_smoothing, spsa
from twingrad.interop.host.external import from_jacobian, from_numpy
from twingrad.interop.host.linear import from_linear
from twingrad.interop.op.define import define
from twingrad.interop.op.definition import Op
from twingrad.interop.op.missing import unknown
from twingrad.interop.op.samples.host import Host
from twingrad.interop.op.signature import Signature

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
