"""Constants as JAX arrays: one for each precision, also while JAX traces."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from twingrad.interop.op.framework import DTYPES, kind
from twingrad.interop.op.statics.constants import Constant


def constant(constant: Constant, like: Any, bits: int) -> Any:
    """See `Framework.constant`.  It is committed to no device: JAX takes it to the others."""
    key = "jax", bits, jax.dtypes.canonicalize_dtype("int64").itemsize  # as x64 is on or off
    found = constant.made.get(key)
    if found is None:
        found = constant.made[key] = constant.hand(_make(constant, bits))
    return found


def _make(constant: Constant, bits: int) -> Any:
    array = constant.array
    name, _ = kind(array.dtype)
    if name:
        bits = bits or kind(jnp.result_type(float))[1]
        array = array.astype(DTYPES[name, bits])
    with jax.ensure_compile_time_eval():  # or it would belong to the trace
        made = jnp.asarray(array)
    if not name and not np.array_equal(np.asarray(made), array):
        raise OverflowError(
            f"holds integers that {made.dtype} cannot; JAX has 64-bit numbers with "
            "jax_enable_x64 only"
        )
    return made


def read(value: Any) -> np.ndarray:
    """The numbers of an array.

    Raises:
        ValueError: it is being traced, or not all of it is here.
    """
    if isinstance(value, Tracer):
        raise ValueError("is an array that JAX traces")
    if not value.is_fully_addressable:
        raise ValueError("is an array of which other processes hold a part")
    found = np.asarray(value)
    return found.astype(np.float32) if found.dtype.name == "bfloat16" else found
