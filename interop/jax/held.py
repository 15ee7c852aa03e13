"""An op as a parameter of a JAX primitive, so that JAX's caches do not keep it alive.

A program must hold the ops that it calls, and a cache of JAX must not: it keeps the parameters of
the latest 2,048 equations that it has seen.  JAX makes that distinction for jaxprs: programs hold
them, its caches only refer to them.  So the op goes in as the constant of an empty jaxpr.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Var

from twingrad.interop.op.kernel import Kernel


def hold(kernel: Kernel) -> Any:
    """What a primitive takes as its parameter; the same for the same kernel."""
    if kernel.held is None:
        kernel.held = ClosedJaxpr(_one_constant(), [kernel])
    return kernel.held


def kernel_of(held: Any) -> Kernel:
    """The kernel that `hold` was given."""
    return held.consts[0]  # type: ignore[no-any-return]


@functools.cache
def _one_constant() -> Any:
    empty = jax.make_jaxpr(lambda: ())().jaxpr
    return empty.replace(constvars=[Var(ShapedArray((), jax.dtypes.canonicalize_dtype("int32")))])
