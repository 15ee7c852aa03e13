"""Constants as they are given: one op for one content, a copy, what is refused, what travels."""

import copy
import gc
import pickle

import numpy as np
import pytest

from tests import constant_ops
from tests.constant_ops import GRID, OTHER, WAYS, formula, ops
from tests.op.test_result_dtypes import as_numpy, bound, each_binder, each_side, given, side_of
from twingrad.interop import ArgumentError, RuleError, SignatureError, define, from_numpy
from twingrad.interop.check import check

X = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
each_way = pytest.mark.parametrize("way", WAYS)


def agree(got, want, rtol=1e-12):
    np.testing.assert_allclose(as_numpy(got), want, rtol=rtol)


@each_way
def test_the_same_content_is_the_same_op(way):
    op = WAYS[way]({"grid": GRID})
    assert op.with_constants(grid=GRID.copy()) is op
    other = op.with_constants(grid=OTHER.copy())
    assert other is op.with_constants(grid=OTHER.copy()) is other.with_constants(grid=OTHER)
    assert other is not op and other.with_constants(grid=GRID) is op
    assert op.with_constants(grid=OTHER.astype(np.float32)) is not other
    assert op.with_constants(grid=-GRID * 0.0) is not op.with_constants(grid=GRID * 0.0)


@each_side
def test_arrays_of_the_frameworks_are_constants(framework):
    side, op = side_of(framework), formula()
    assert op.with_constants(grid=side.array(OTHER)) is op.with_constants(grid=OTHER)
    low = side.cast(side.array(OTHER), "bfloat16")
    assert op.with_constants(grid=low).constants["grid"].array.dtype == np.float32


def test_it_is_a_copy():
    mine = GRID.copy()
    op = formula(True, {"grid": mine})
    mine[:] = 0
    assert bound("numpy", op)(X[0]) == (GRID * X[0] ** 2).sum()
    agree(bound("numpy", pickle.loads(pickle.dumps(from_module_functions())))(X[0]), 45.0)


def from_module_functions():
    mine = GRID.copy()
    op = WAYS["from_numpy"]({"grid": mine})
    mine[:] = 0
    return op


@each_binder
@pytest.mark.parametrize("rule", ["function", "vjp"])
@pytest.mark.parametrize("host", [False, True])
def test_a_rule_that_writes_into_it_raises(framework, rule, host):
    if framework == "jax" and not host:
        pytest.skip("JAX's arrays do not change")
    op = formula(host)

    def write(grid):
        grid[...] = 0

    if rule == "function":

        @define("(n)->()", host=host, constants={"grid": GRID})
        def op(xp, x, *, grid):
            write(grid)
            return xp.sum(x, axis=-1)

    else:
        op.def_vjp(lambda xp, ct, out, x, *, grid: write(grid))
    f, x = bound(framework, op), given(framework, X[0])
    run = f if rule == "function" else lambda x: f.vjp(1.0, x)
    if rule == "vjp" and framework != "numpy":
        run = side_of(framework).grad(f)
    with pytest.raises(Exception, match="read-only|changed an array") as error:
        run(x)
    assert host or error.type is RuleError
    if rule == "vjp":  # nobody else sees what was written
        op.def_vjp(lambda xp, ct, out, x, *, grid: 2 * grid * x * ct[..., None])
        got = f.vjp(1.0, x)[0] if framework == "numpy" else side_of(framework).grad(f)(x)
        agree(got, 2 * GRID * X[0])


def test_writes_are_seen_in_inference_mode():
    torch = pytest.importorskip("torch")
    write = [True]

    @define("(n)->()", constants={"grid": OTHER})
    def f(xp, x, *, grid):
        if write[0]:
            grid[...] = 0
        return xp.sum(grid * x, axis=-1)

    f.def_vjp(lambda xp, ct, out, x, *, grid: ct[..., None] * grid)
    with torch.inference_mode():
        x = given("torch", X[0])
        with pytest.raises(RuleError, match="changed an array"):
            bound("torch", f)(x)
        write[0] = False
        agree(bound("torch", f)(x), (OTHER * X[0]).sum())
    x = given("torch", X[0]).requires_grad_()
    bound("torch", f)(x).backward()  # what was made in there can be saved for backward
    agree(x.grad, OTHER)


@each_binder
def test_a_result_that_is_the_constant_is_a_copy(framework):
    @define("(n)->(n)", constants={"grid": OTHER})
    def f(xp, x, *, grid):
        return grid

    for _ in range(2):
        y = bound(framework, f)(given(framework, X[0]))
        agree(y, OTHER)
        if framework != "jax":
            y[...] = 0


NOT_ONES = {
    "a list": ([1.0, 2.0], "is a list"),
    "a number": (1.0, "is a float"),
    "text": (np.array(["a"]), "has dtype <U1"),
    "objects": (np.array([None]), "has dtype object"),
    "long": (np.zeros(3, np.longdouble), "has dtype"),
    "masked": (np.ma.masked_array([1.0], [True]), "is a MaskedArray"),
}


@pytest.mark.parametrize("kind", NOT_ONES)
def test_what_is_no_constant_is_refused(kind):
    value, why = NOT_ONES[kind]
    for make in (lambda: formula().with_constants(grid=value), lambda: formula(0, {"grid": value})):
        with pytest.raises(ArgumentError, match=rf"energy \(n\)->\(\): the constant 'grid' {why}"):
            make()


@each_side
def test_what_may_have_a_gradient_is_refused(framework):
    side, op = side_of(framework), formula()

    def use(grid):
        return bound(framework, op.with_constants(grid=grid))(side.array(X[0]))

    grid = side.array(GRID)
    uses = [side.grad(use), side.vmap(use), side.jacfwd(use)]
    uses.append(lambda grid: side.jvp(use, (grid,), (grid,)))
    if framework == "jax":
        uses.append(side.once(use))
    else:
        import torch.autograd.forward_ad as dual

        def on_dual(grid):
            with dual.dual_level():
                return use(dual.make_dual(grid, grid))

        uses += [lambda grid: use(grid.requires_grad_()), on_dual]
    for run in uses:
        with pytest.raises(ArgumentError, match="'grid' is a.*is an argument: write it into"):
            run(side.array(np.stack([GRID] * 3)) if run is uses[1] else grid)


@each_binder
def test_calls_that_cannot_be_made_say_what_to_do(framework):
    x = given(framework, X[0])
    with pytest.raises(ArgumentError, match=r"'grid' has no value; call op.with_constants\(grid"):
        bound(framework, formula(False, ("grid",)))(x)
    with pytest.raises(ArgumentError, match=r"'grid' is a constant.*use op.with_constants\(grid"):
        bound(framework, formula())(x, grid=GRID)


def test_declarations_that_are_wrong():
    with pytest.raises(ArgumentError, match="'mesh' is no constant of the op; it has grid"):
        formula().with_constants(mesh=GRID)
    with pytest.raises(SignatureError, match=r"the constant 'mesh' is no parameter.*`\*, mesh`"):
        formula(False, {"mesh": GRID})


def test_a_name_that_means_something_else_in_a_rule_is_refused():
    with pytest.raises(SignatureError, match="'out' is a constant of its function, and means"):
        from_numpy(
            lambda x, *, out: x * out,
            signature="(n)->(n)",
            vjp=lambda ct, x, *, out: ct * out,
            constants={"out": GRID},
        )


def test_a_default_is_the_value():
    @define("(n)->(n)", constants="grid")
    def scale(xp, x, *, grid=GRID, p=2):
        return x * grid * p

    assert scale.statics == {"p": 2}
    np.testing.assert_array_equal(bound("numpy", scale)(X), 2 * X * GRID)


@each_side
def test_integers_that_do_not_fit_raise(framework):
    if framework == "torch":
        pytest.skip("torch has 64 bits always")
    import jax

    big = np.array([2**40, 1, 1])
    f = bound("jax", formula(False, {"grid": big}))
    assert float(f(X[0])) == float((big * X[0] ** 2).sum())
    with jax.enable_x64(False):
        with pytest.raises(ArgumentError, match="'grid' holds integers that int32 cannot"):
            f(X[0].astype(np.float32))


def test_a_rule_that_is_set_later_reaches_all():
    op = formula()
    made = op.with_constants(grid=OTHER)
    op.def_vjp(lambda xp, ct, out, x, *, grid: -grid * x)
    agree(bound("numpy", made).vjp(1.0, X[0])[0], -OTHER * X[0])


@pytest.mark.parametrize("way", ["from_numpy", "from_jacobian", "jac=True", "differences"])
def test_pickled(way):
    for op, grid in ops(way):
        sent = pickle.loads(pickle.dumps(op))
        agree(bound("numpy", sent)(X), (grid * X * X).sum(-1))
        agree(bound("numpy", sent).vjp(np.ones(2), X)[0], 2 * grid * X, 1e-7)


def test_pickled_by_name():
    op = constant_ops.energy_of_module
    for made in (op, op.with_constants(grid=OTHER)):
        assert pickle.loads(pickle.dumps(made)) is made is copy.deepcopy(made)


def test_nothing_grows():
    op, kept = formula(), []
    for i in range(200):
        made = op.with_constants(grid=GRID + i + 0.5)
        bound("numpy", made)(X)
        kept.append(made.constants["grid"].key)
    gc.collect()
    from twingrad.interop.op.statics import constants

    assert sum(key in constants._KNOWN for key in kept) <= 8
    assert len(op.variants.alive) <= 8
    assert len(constants._HANDED) < 200


@pytest.mark.parametrize("host", [False, True])
def test_the_doctor_takes_them(host):
    pytest.importorskip("torch")
    for op in (formula(host), formula(host).with_constants(grid=OTHER)):
        report = check(op, shapes={"n": 3}, framework="torch")
        assert report.passed, str(report)
    report = check(formula(host, factor=1.01), shapes={"n": 3}, framework="torch")
    assert not report.passed
