"""The ops of twingrad, as definitions; `twingrad.ops.torch`, `.jax` and `.numpy` bind them.

One file holds one op.  This module imports no framework.
"""

from twingrad.ops.log1mexp import log1mexp as log1mexp
from twingrad.ops.log_ndtr_diff import log_ndtr_diff as log_ndtr_diff
from twingrad.ops.rosenbrock import rosenbrock as rosenbrock
from twingrad.ops.solve_sylvester import solve_sylvester as solve_sylvester
from twingrad.ops.sparse_solve import sparse_solve as sparse_solve
from twingrad.ops.truncated_mixture_log_normalizer import (
    truncated_mixture_log_normalizer as truncated_mixture_log_normalizer,
)
from twingrad.ops.truncated_mixture_log_weights import (
    truncated_mixture_log_weights as truncated_mixture_log_weights,
)
from twingrad.ops.truncated_mixture_weights import (
    truncated_mixture_weights as truncated_mixture_weights,
)
from twingrad.ops.truncated_normal_log_mass import (
    truncated_normal_log_mass as truncated_normal_log_mass,
)
