"""Every mode of differentiation inside shard_map and of it, on two devices, in JAX.

Where an op makes one mode from the other (a vjp alone gives forward mode, a jvp alone reverse
mode) it transposes a rule, and a zero that varies over fewer axes than its primal then gives a
sum over the devices too many.  One subprocess, which has two devices, runs all programs with
twingrad's ops and with JAX's own operations in their place; the tests compare.
"""

import pickle
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

from tests import side_jax  # noqa: E402
from tests.closeness import assert_close  # noqa: E402
from tests.conformance import NO_REFERENCE  # noqa: E402
from tests.jax.test_sharding_jax import row_setting, run_python  # noqa: E402
from tests.op_table import ROWS  # noqa: E402
from tests.suite import each_row, line  # noqa: E402


def modes(loss):
    """name -> function of (w, x), for a scalar function of both: every mode and nesting in w."""
    import jax

    ones = lambda x: jax.tree.map(lambda v: 0 * v + 1, x)  # noqa: E731

    def twice(outer, inner):
        return lambda w, x: outer(lambda w: inner(loss)(w, x).sum())(w)

    return {
        "grad": jax.grad(loss),
        "vjp": lambda w, x: jax.vjp(loss, w, x)[1](1 + 0 * loss(w, x))[0],
        "jvp": lambda w, x: jax.jvp(loss, (w, x), (ones(w), ones(x)))[1],
        "jacfwd": jax.jacfwd(loss),
        "linearize": lambda w, x: jax.linearize(lambda w: loss(w, x), w)[1](ones(w)),
        "reverse over reverse": twice(jax.jacrev, jax.jacrev),
        "forward over reverse": twice(jax.jacfwd, jax.jacrev),
        "reverse over forward": twice(jax.jacrev, jax.jacfwd),
        "forward over forward": twice(jax.jacfwd, jax.jacfwd),
    }


def program(f, mesh, specs, check=True, names=None):
    """(w, ct, x) -> name -> derivative: w is replicated, x as the specs say, ct is sharded.

    With names, only those modes, inside shard_map.
    """
    import jax
    from jax.sharding import PartitionSpec as P

    def loss(ct):
        return lambda w, x: side_jax.inner(ct, f(x[0] + w, *x[1:]))

    def body(w, ct, x):
        every = modes(loss(ct))
        found = {name: every[name](w, x) for name in names or every}
        return jax.tree.map(lambda y: jax.lax.psum(y, "d"), found), jax.grad(loss(ct), 1)(w, x)

    def mapped(body, outs):
        given = (P(), P("d"), specs)
        return jax.shard_map(body, mesh=mesh, in_specs=given, out_specs=outs, check_vma=check)

    total = mapped(lambda w, ct, x: jax.lax.psum(loss(ct)(w, x), "d"), P())

    def run(w, ct, x):
        inside, of_x = mapped(body, (P(), specs))(w, ct, x)
        if names:
            return {"inside": inside, "inside, x": of_x, "outside": {}}
        outside = {name: mode(w, x) for name, mode in modes(lambda w, x: total(w, ct, x)).items()}
        return {"inside": inside, "inside, x": of_x, "outside": outside}

    return run


def place(mesh, x, spec):
    import jax

    return jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))


FEW = ("jvp", "forward over reverse")


def run_rows(path, names=None):
    import jax
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_enable_x64", True)
    mesh, found = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,)), {}
    for row in ROWS:
        setting = row_setting(row)
        specs = tuple(P("d") if batch else P() for batch in setting.batch)
        w, ct = place(mesh, np.zeros(row.cores[0]), P()), place(mesh, setting.ct, P("d"))
        x = tuple(place(mesh, v, spec) for v, spec in zip(setting.x, specs, strict=True))
        both = {"ours": side_jax.function(row.op), "JAX's": side_jax.reference(row)}
        found[row.name] = {}
        for which, f in both.items():
            try:
                out = side_jax.once(program(f, mesh, specs, names=names))(w, ct, x)
                found[row.name][which] = jax.tree.map(np.asarray, out)
            except ValueError as error:
                if which == "ours":
                    raise
                found[row.name][which] = f"JAX {jax.__version__} itself: {error}"
    Path(path).write_bytes(pickle.dumps(found))


def small_ops():
    """name -> (our function, JAX's) of two arguments, with one rule or both."""
    import jax.numpy as jnp

    from tests import sample_ops
    from twingrad.interop.jax import bind

    product = lambda x, y: x * y  # noqa: E731
    found = {f"{r} only": (bind(sample_ops.multiply(r)), product) for r in ("vjp", "jvp")}
    sin = bind(sample_ops.host_sin())
    found["both"] = bind(sample_ops.multiply("both")), product
    found["host"] = (lambda x, y: sin(x * y)), (lambda x, y: jnp.sin(x * y))
    for rule in ("vjp", "jvp"):  # the other mode of a host op that follows from this rule
        op = sample_ops.host_sin()
        setattr(op, "jvp" if rule == "vjp" else "vjp", None)
        one = bind(op)
        found[f"host, {rule} only"] = (lambda x, y, f=one: f(x * y)), found["host"][1]
    square = bind(sample_ops.moments())
    found["two outputs"] = (
        lambda x, y: square(x * y[..., None])[1] + y,
        lambda x, y: jnp.sum((x * y[..., None]) ** 2, -1) + y,
    )
    return found


def run_small(path, settings):
    import jax
    from jax.sharding import AxisType
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_enable_x64", True)
    found = {}
    for axes, check, jitted in settings:
        mesh = jax.make_mesh((2,), ("d",), axis_types=(getattr(AxisType, axes),))
        for name, both in small_ops().items():
            core = (3,) if name == "two outputs" else ()
            x = np.arange(1.0, 5).reshape(4, *[1] * len(core)) + np.zeros((4, *core))
            specs = (P("d"), P())
            args = (
                place(mesh, np.full(core, 0.5), P()),
                place(mesh, np.array([1.0, -1.0, 2.0, 0.5]), P("d")),
                (place(mesh, x, P("d")), place(mesh, np.array(0.7), P())),
            )
            for which, f in zip(("ours", "JAX's"), both, strict=True):
                if jitted:
                    out = side_jax.once(program(f, mesh, specs, check))(*args)
                else:  # shard_map compiles each operation by itself
                    with jax.set_mesh(mesh):
                        out = program(f, mesh, specs, check, FEW)(*args)
                out = jax.tree.map(np.asarray, out)
                found[axes, check, jitted, name, which] = out
    Path(path).write_bytes(pickle.dumps(found))


FAST = [("Explicit", True, True)]
SLOW = [("Explicit", False, True), ("Auto", True, True), ("Auto", False, True)]
SLOW += [("Auto", True, False), ("Explicit", False, False)]
SMALL = (
    "vjp only",
    "jvp only",
    "both",
    "host",
    "host, vjp only",
    "host, jvp only",
    "two outputs",
)


def measured(tmp_path_factory, run, *args):
    path = tmp_path_factory.mktemp("sharding") / "found"
    given = ", ".join(map(repr, (str(path), *args)))
    run_python(f"from tests.jax import test_sharding_modes_jax as t; t.{run}({given})")
    return pickle.loads(path.read_bytes())


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    return measured(tmp_path_factory, "run_rows", FEW)


@pytest.fixture(scope="session")
def all_modes(tmp_path_factory):
    return measured(tmp_path_factory, "run_rows")


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    return measured(tmp_path_factory, "run_small", FAST)


@pytest.fixture(scope="session")
def more(tmp_path_factory):
    return measured(tmp_path_factory, "run_small", SLOW)


def check(ours, theirs, rtol):
    if isinstance(theirs, str):  # as erf in JAX 0.12, whose polynomial primitive is refused there
        pytest.skip(f"{NO_REFERENCE}: {theirs}")
    for place in ("inside", "outside"):
        assert ours[place].keys() == theirs[place].keys()
        for name, want in theirs[place].items():
            assert_close(ours[place][name], want, f"{name}, {place}", rtol)
    for i, (got, want) in enumerate(zip(ours["inside, x"], theirs["inside, x"], strict=True)):
        assert_close(got, want, f"in argument {i}", rtol)


@line("modes inside shard_map")
@each_row
def test_both_modes_inside_shard_map_are_those_of_jax_operations(row, rows):
    check(rows[row.name]["ours"], rows[row.name]["JAX's"], 1e-8)


@pytest.mark.slow
@line("modes inside shard_map")
@each_row
def test_every_mode_inside_and_of_shard_map_is_that_of_jax_operations(row, all_modes):
    check(all_modes[row.name]["ours"], all_modes[row.name]["JAX's"], 1e-8)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("setting", FAST, ids=str)
def test_modes_that_follow_from_one_rule_sum_over_the_devices_once(setting, name, small):
    check(*(small[*setting, name, which] for which in ("ours", "JAX's")), 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("setting", SLOW, ids=str)
def test_the_same_for_other_axes_without_checks_and_not_jitted(setting, name, more):
    check(*(more[*setting, name, which] for which in ("ours", "JAX's")), 1e-12)
