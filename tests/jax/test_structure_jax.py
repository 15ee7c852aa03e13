"""Structured arguments as JAX's own trees: grad, in_axes, jit, export, shards."""

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from tests.structured_ops import CASES  # noqa: E402
from twingrad.interop import ArgumentError  # noqa: E402
from twingrad.interop.jax import bind  # noqa: E402


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tree:
    rate: Any
    shift: Any
    power: int = field(default=2, metadata={"static": True})


class Pair(NamedTuple):
    rate: Any
    shift: Any

    @property
    def power(self):
        return 2


TREES = {"dataclass": Tree, "NamedTuple": Pair}
each_tree = pytest.mark.parametrize("tree", TREES)
each_way = pytest.mark.parametrize("way", ["array", "host"])
RATE, SHIFT, T = np.array(1.5), np.array([0.3, -0.2, 0.5]), np.array([1.0, 2.0, 3.0, 4.0])


@functools.cache
def simulate(way):
    case = CASES["simulator of a dataclass" + " on the host" * (way == "host")]
    return bind(case.structured())


def expected(rate, shift):
    """The gradient of the sum over t."""
    return (T**2).sum(), 2 * shift * len(T)


@each_way
@each_tree
@pytest.mark.parametrize("compile", [False, True], ids=["eager", "jit"])
def test_a_gradient_is_a_tree_like_the_argument(tree, way, compile):
    f = simulate(way)
    gradient = jax.grad(lambda p, t: f(p, t).sum())
    found = (jax.jit(gradient) if compile else gradient)(TREES[tree](RATE, SHIFT), T)
    assert type(found) is TREES[tree]
    for g, e in zip((found.rate, found.shift), expected(RATE, SHIFT), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-14)


@each_way
@each_tree
def test_in_axes_are_a_tree_like_the_argument(tree, way):
    f, cls = simulate(way), TREES[tree]
    rates = np.array([1.0, 2.0, 3.0])
    mapped = jax.vmap(jax.grad(lambda p, t: f(p, t).sum()), in_axes=(cls(0, None), None))
    found = jax.jit(mapped)(cls(rates, SHIFT), T)
    assert found.rate.shape == (3,) and found.shift.shape == (3, 3)
    np.testing.assert_allclose(found.rate, np.full(3, (T**2).sum()))


@each_tree
def test_an_exported_program_takes_the_tree(tree):
    f, cls = simulate("array"), TREES[tree]
    leaves, shape = jax.tree.flatten(cls(jnp.asarray(RATE), jnp.asarray(SHIFT)))
    program = jax.jit(lambda leaves, t: f(jax.tree.unflatten(shape, leaves), t))
    exported = jax.export.export(program)(leaves, jnp.asarray(T))
    again = jax.export.deserialize(exported.serialize())
    found = again.call(leaves, jnp.asarray(T))
    np.testing.assert_allclose(found, 1.5 * T**2 + (SHIFT**2).sum())


@each_way
@each_tree
@pytest.mark.parametrize("check_vma", [True, False])
def test_shards_of_a_tree(tree, way, check_vma):
    f, cls = simulate(way), TREES[tree]
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    rates = np.array([1.0, 2.0])
    sharded = jax.shard_map(
        lambda p, t: jax.lax.psum(f(p, t).sum(), "d"),
        mesh=mesh,
        in_specs=(cls(P("d"), P()), P()),
        out_specs=P(),
        check_vma=check_vma,
    )
    found = jax.jit(jax.grad(sharded))(cls(rates, SHIFT), T)
    np.testing.assert_allclose(found.rate, np.full(2, (T**2).sum()))
    np.testing.assert_allclose(found.shift, 2 * 2 * SHIFT * len(T))


def test_a_number_that_jit_makes_an_array_is_refused_by_its_path():
    f = simulate("array")
    with pytest.raises(ArgumentError, match="params.power is an array that the signature does not"):
        jax.jit(f)({"rate": RATE, "shift": SHIFT, "power": 2}, T)
