"""With the fix for any one trap taken out of the JAX binder, a test of the suite fails.

Each entry takes out one fix, as a naive binder would be written, and names the test that must
then fail.  That the same tests pass with the fix is shown where they stand.
"""

import functools
import pickle

import pytest

pytest.importorskip("jax")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.interpreters import batching  # noqa: E402

from tests.jax import test_cases_jax as cases  # noqa: E402
from tests.jax import test_sharding_jax as sharding  # noqa: E402
from tests.jax import test_traps_jax as traps  # noqa: E402
from tests.op_table import ROWS  # noqa: E402
from tests.ops import test_ops_jax_programs as programs  # noqa: E402
from twingrad.interop.jax import binder as ours  # noqa: E402
from twingrad.interop.jax import host as jax_host  # noqa: E402
from twingrad.interop.numpy import binder as ours_numpy  # noqa: E402
from twingrad.interop.op import kernel as kernels  # noqa: E402

BY_NAME = {row.name: row for row in ROWS}


def custom_vjp_alone(patch):
    """J1: no forward mode."""
    patch.setattr(ours, "_differentiable", ours._custom_vjp)


def autodiff_of_the_function(patch):
    """J1: a custom_jvp without the primitive, whose tangent is that of the forward code."""
    patch.setattr(ours, "_differentiable", lambda kernel: lambda *x: kernel.evaluate(ours.JAX, x))


def gradients_as_returned(patch):
    """J3: gradients keep the dtype that the rule gave them."""
    patch.setattr(kernels, "cast_like", lambda fw, g, x: g)


def arrays_as_they_come(patch):
    """J4: host functions get what the callback got."""
    patch.setattr(ours_numpy, "_flat", lambda x, batch, rank, size: x[None])


def one_call_per_sample(patch):
    """A callback that vmap runs in a loop."""

    def sequential(axis, args, dims, *, results, **params):
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        pairs = zip(args, dims, strict=True)
        stacked = [jnp.stack([x] * size) if d is None else jnp.moveaxis(x, d, 0) for x, d in pairs]
        one = functools.partial(jax_host.host_p.bind, results=results, **params)
        found = jax.lax.map(lambda xs: one(*xs), stacked)
        return found, (0,) * len(found)

    patch.setitem(batching.fancy_primitive_batchers, jax_host.host_p, sequential)


def exported_without_a_word(patch):
    """Nothing says that a callback cannot be exported."""
    patch.setattr(jax_host, "ExportError", NotImplementedError)


def check_export():
    row = BY_NAME["rosenbrock"]
    try:
        programs.test_an_exported_program_gives_value_and_gradient(row)
    except row.limits["exported", "JAX"].error:
        return


REVERTS = [
    (custom_vjp_alone, TypeError, lambda: _first("jacfwd")),
    (autodiff_of_the_function, AssertionError, lambda: _first("grad")),
    (
        gradients_as_returned,
        AssertionError,
        traps.test_a_gradient_never_changes_dtype_because_a_rule_did,
    ),
    (
        arrays_as_they_come,
        AssertionError,
        lambda: traps.test_host_functions_get_numpy_arrays(lambda f: f),
    ),
    (
        one_call_per_sample,
        AssertionError,
        lambda: cases.test_r02_r39_a_host_op_is_called_once_per_batch_however_it_is_mapped(jax.jit),
    ),
    (exported_without_a_word, NotImplementedError, check_export),
]


def _first(mode):
    traps.test_the_hand_written_rule_runs_in_every_first_order_mode(mode, "both")


@pytest.mark.parametrize(("revert", "error", "check"), REVERTS)
def test_without_the_fix_a_test_fails(revert, error, check, monkeypatch):
    revert(monkeypatch)
    with pytest.raises(error):
        check()


def test_without_the_cast_over_mesh_axes_a_replicated_gradient_is_wrong(tmp_path):
    """J2: nothing is made to vary alike over the axes of a shard_map."""
    path, name = tmp_path / "found", "log_ndtr_diff"
    revert = "import twingrad.interop.jax.linear as m; m.vary_alike = lambda arrays: arrays; "
    with pytest.raises(AssertionError):
        sharding.run_python(f"{revert}run_rows({str(path)!r}, [{name!r}])")
        found = pickle.loads(path.read_bytes())[name]["shard_map"]
        sharding.check_row(BY_NAME[name], found)
