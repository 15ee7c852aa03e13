"""What JAX holds for the rules of an op: the arrays that they read, and the shapes of the others.

An array that no rule reads is held as its shape only: an array of that shape and one more
dimension, of size 0.  It has no memory, and is batched and varies as the array would.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from twingrad.interop.op.framework import Arrays
from twingrad.interop.op.rules.reads import kept

Keep = tuple[bool, ...]


def to_keep(op: Any, kinds: tuple[str, ...], arrays: Arrays) -> Keep:
    """For each input and then each output, whether it is held: whether one of the rules reads it.

    On a mesh all are held: the types of results are those of outputs, with their sharding.
    """
    if any(on_mesh(x) for x in arrays):
        return (True,) * len(arrays)
    return tuple(map(any, zip(*[kept(op, kind) for kind in kinds], strict=True)))


def on_mesh(x: Any) -> bool:
    """Whether the type of an array says how it lies on several devices."""
    sharding = getattr(jax.typeof(x), "sharding", None)
    return sharding is not None and not sharding.mesh.empty


def held(arrays: Arrays, keep: Keep) -> Arrays:
    """The arrays to hold."""
    if all(keep):
        return arrays
    pairs = zip(arrays, keep, strict=True)
    return tuple([x if k else _shape_of(x) for x, k in pairs])


def _shape_of(x: Any) -> Any:
    zeros = jnp.zeros if isinstance(x, Tracer) else np.zeros  # which costs nothing in eager calls
    return zeros((*x.shape, 0), x.dtype)


def restored(arrays: Arrays, keep: Keep) -> Arrays:
    """The arrays that were held, with something of the right shape and dtype for the others."""
    if all(keep):
        return arrays
    return tuple([x if k else _stand_in(x) for x, k in zip(arrays, keep, strict=True)])


def _stand_in(x: Any) -> Any:
    if isinstance(x, Tracer):
        return jnp.sum(x, axis=-1, dtype=x.dtype)
    return np.broadcast_to(np.zeros((), x.dtype), x.shape[:-1])


def as_held(keep: Keep, place: int) -> tuple[int, ...]:
    """The dimension that follows on an array's own where it is held as a shape."""
    return () if place >= len(keep) or keep[place] else (0,)
