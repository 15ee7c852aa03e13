"""JAX ops on two devices: shard_map with and without check_vma, and jit on sharded arrays.

The devices are two CPU ones, which only a fresh process can have: one subprocess runs all
programs, with twingrad's ops and with JAX's own in their place, and the tests compare.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

PROGRAMS = ("shard_map value", "shard_map grad", "shard_map jvp", "jit grad", "vmap in shard_map")


def programs(f, mesh, check):
    """name -> function of (w, x): w replicated, x sharded over its batch."""
    import jax
    from jax.sharding import PartitionSpec as P

    def mapped(body, outs=None):
        outs = P() if outs is None else outs
        return jax.shard_map(
            body, mesh=mesh, in_specs=(P(), P("d")), out_specs=outs, check_vma=check
        )

    total = mapped(lambda w, x: jax.lax.psum(f(x, w).sum(), "d"))
    each = mapped(lambda w, x: jax.vmap(f, (0, None))(x, w), P("d"))
    return {
        "shard_map value": mapped(lambda w, x: f(x, w), P("d")),
        "shard_map grad": jax.grad(total, (0, 1)),
        "shard_map jvp": lambda w, x: jax.jvp(total, (w, x), (w, x))[1],
        "jit grad": jax.grad(lambda w, x: f(x, w).sum(), (0, 1)),
        "vmap in shard_map": jax.grad(lambda w, x: each(w, x).sum(), (0, 1)),
    }


def run_all(axes):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    from tests import sample_ops
    from twingrad.interop.jax import bind

    jax.config.update("jax_enable_x64", True)
    op = sample_ops.host_energy()[0]
    op.def_jvp(lambda xp, t, out, x, s: 2 * (x * t[0]).sum(-1) * s + (x * x).sum(-1) * t[1])
    energy = bind(op)
    pairs = {
        "array": (bind(sample_ops.dot()), lambda x, w: (x * w).sum(-1)),
        "host": (lambda x, w: energy(x, w[0]), lambda x, w: (x * x).sum(-1) * w[0]),
    }
    axes, _, claim = axes.partition("|")
    mesh = jax.make_mesh((2,), ("d",), axis_types=(getattr(AxisType, axes),))
    w = jax.device_put(jnp.array([1.0, 2.0, 3.0]), NamedSharding(mesh, P()))
    x = jax.device_put(jnp.arange(12.0).reshape(4, 3), NamedSharding(mesh, P("d")))

    def attempt(g):
        try:
            return [np.asarray(a).tolist() for a in jax.tree.leaves(jax.jit(g)(w, x))]
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:400]

    if claim:
        body = lambda w, x: energy(x, w[0])  # noqa: E731
        found = {
            claim: attempt(jax.shard_map(body, mesh=mesh, in_specs=(P(), P("d")), out_specs=P()))
        }
    else:
        found = {
            f"{op}|check_vma={check}|{name}|{which}": attempt(g)
            for op, both in pairs.items()
            for check in (True, False)
            for which, f in zip(("ours", "jax"), both, strict=True)
            for name, g in programs(f, mesh, check).items()
        }
    print(json.dumps(found))


def measured(axes):
    root = Path(__file__).resolve().parent.parent
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JAX_PLATFORMS": "cpu",
    }
    code = f"from tests.test_sharding_jax import run_all; run_all({axes!r})"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("axes", ["Auto", "Explicit"])
def test_results_on_two_devices_are_what_jax_operations_give(axes):
    """J2: a gradient of a replicated argument is summed once, not never and not twice."""
    results = measured(axes)
    assert len(results) == 2 * 2 * 2 * len(PROGRAMS)
    theirs = {key: value for key, value in results.items() if key.endswith("|jax")}
    assert {k: v for k, v in theirs.items() if isinstance(v, str)} == {}
    wrong = {
        key: (ours, value)
        for key, value in theirs.items()
        if (ours := results[key.replace("|jax", "|ours")]) != value
    }
    assert wrong == {}


def test_a_sharded_host_result_is_not_taken_for_a_replicated_one():
    """A callback's result varies over the axes that its arguments vary over."""
    assert "out_specs" in measured("Auto|claim")["claim"]
