"""The ops of twingrad, as definitions; `twingrad.ops.torch`, `.jax` and `.numpy` bind them.

One file holds one op.  This module imports no framework.
"""

from twingrad.ops.log1mexp import log1mexp as log1mexp
from twingrad.ops.rosenbrock import rosenbrock as rosenbrock
