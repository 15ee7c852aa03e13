"""JAX ops on two devices: shard_map with and without check_vma, and jit on sharded arrays.

The devices are two CPU ones, which only a fresh process can have: one subprocess runs all
programs, with twingrad's ops and with JAX's own in their place, and the tests compare.
"""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from tests import side_jax  # noqa: E402
from tests.closeness import assert_close  # noqa: E402
from tests.properties import Setting  # noqa: E402
from tests.suite import each_row, line  # noqa: E402

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


def run_rows(path, names=None):
    """The gradients of every row of the op table, or of those named, in its arguments.

    Every other argument is replicated, the others are sharded over the batch; the first has a
    replicated shift besides.
    """
    import jax
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    from tests.op_table import ROWS

    jax.config.update("jax_enable_x64", True)
    mesh, found = jax.make_mesh((2,), ("d",)), {}

    def shifted(f):
        return lambda w, ct, x: side_jax.inner(ct, f(x[0] + w, *x[1:]))

    def mapped(f, specs, check):
        total = jax.shard_map(
            lambda w, ct, x: jax.lax.psum(shifted(f)(w, ct, x), "d"),
            mesh=mesh,
            in_specs=(P(), P("d"), specs),
            out_specs=P(),
            check_vma=check,
        )
        return jax.grad(total, (0, 2))

    for row in ROWS if names is None else [row for row in ROWS if row.name in names]:
        setting, f = row_setting(row), side_jax.function(row.op)
        specs = tuple(P("d") if batch else P() for batch in setting.batch)
        place = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))  # noqa: E731
        w, ct = place(np.zeros(row.cores[0]), P()), place(setting.ct, P("d"))
        x = tuple(map(place, setting.x, specs))
        gradients = {
            "shard_map": mapped(f, specs, True),
            "unchecked": mapped(f, specs, False),
            "unchecked, JAX's own": mapped(side_jax.reference(row), specs, False),
            "jit": jax.grad(shifted(f), (0, 2)),
        }
        found[row.name] = {
            name: jax.tree.map(np.asarray, side_jax.once(g)(w, ct, x))
            for name, g in gradients.items()
        }
    Path(path).write_bytes(pickle.dumps(found))


def row_setting(row):
    return Setting(side_jax, row, [(4,) if i % 2 == 0 else () for i in range(len(row.boxes))])


def run_python(code):
    root = Path(__file__).resolve().parent.parent.parent
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JAX_PLATFORMS": "cpu",
    }
    code = f"from tests.jax.test_sharding_jax import run_all, run_rows; {code}"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured(axes):
    return json.loads(run_python(f"run_all({axes!r})").splitlines()[-1])


@pytest.mark.parametrize("axes", [pytest.param("Auto", marks=pytest.mark.slow), "Explicit"])
def test_results_on_two_devices_are_what_jax_operations_give(axes):
    """J2; r75 (jax-ml/jax#3970): a replicated argument's gradient is summed once, not twice."""
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
    """r44 (jax-ml/jax#30619): a callback's result varies over the axes of its arguments."""
    assert "out_specs" in measured("Auto|claim")["claim"]


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("sharding") / "found"
    run_python(f"run_rows({str(path)!r})")
    return pickle.loads(path.read_bytes())


def check_row(row, found):
    setting, (shift, data) = row_setting(row), found
    want = setting.expected.pull(setting.raw_ct)
    assert_close(shift, want[0].sum(0), "in the replicated shift")
    for i, (g, w) in enumerate(zip(data, want, strict=True)):
        assert_close(g, w, f"in argument {i}")


@line("data parallel")
@each_row
def test_the_gradient_under_shard_map_is_that_of_the_whole_batch(row, rows):
    """With check_vma off: what JAX's own operations give in the same program."""
    check_row(row, rows[row.name]["shard_map"])
    ours, theirs = (rows[row.name][name] for name in ("unchecked", "unchecked, JAX's own"))
    for got, want in zip([ours[0], *ours[1]], [theirs[0], *theirs[1]], strict=True):
        assert_close(got, want, "check_vma off", rtol=1e-9)


@line("sharded batch")
@each_row
def test_the_gradient_under_jit_of_sharded_arrays_is_that_of_whole_ones(row, rows):
    check_row(row, rows[row.name]["jit"])
