"""What JAX holds for the rules of an op: the arrays that they read, and the shapes of the others.

An array that no rule reads is held as its shape only: an array of that shape and one more
dimension, of size 0.  It has no memory, and is batched and varies as the array would.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twingrad.interop.framework import Arrays
from twingrad.interop.reads import kept

Keep = tuple[bool, ...]


def read_by_either(op: Any) -> Keep:
    """For each input and then each output, whether the vjp or the jvp reads it."""
    return tuple(a or b for a, b in zip(kept(op, "vjp"), kept(op, "jvp"), strict=True))


def held(arrays: Arrays, keep: Keep) -> Arrays:
    """The arrays to hold."""
    if all(keep):
        return arrays
    pairs = zip(arrays, keep, strict=True)
    return tuple([x if k else jnp.zeros((*x.shape, 0), x.dtype) for x, k in pairs])


def restored(arrays: Arrays, keep: Keep) -> Arrays:
    """The arrays that were held, with something of the right shape and dtype for the others."""
    if all(keep):
        return arrays
    return tuple([x if k else _stand_in(x) for x, k in zip(arrays, keep, strict=True)])


def _stand_in(x: Any) -> Any:
    if isinstance(x, jax.core.Tracer):
        return jnp.sum(x, axis=-1, dtype=x.dtype)
    return np.broadcast_to(np.zeros((), x.dtype), x.shape[:-1])


def as_held(keep: Keep, place: int) -> tuple[int, ...]:
    """The dimension that follows on an array's own where it is held as a shape."""
    return () if place >= len(keep) or keep[place] else (0,)
