"""Constants in every way to make an op and in every mode; in each kind and precision."""

import pickle

import numpy as np
import pytest

from tests import constant_ops
from tests.constant_ops import GRID, OTHER, WAYS, formula, ops
from tests.op.test_result_dtypes import as_numpy, bound, each_binder, each_side, given, side_of
from twingrad.interop import define, spsa

X = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
each_way = pytest.mark.parametrize("way", WAYS)
NUMERIC = ("differences",)


def agree(got, want, way):
    rtol = 1e-7 if way in NUMERIC else 1e-12
    np.testing.assert_allclose(as_numpy(got), want, rtol=rtol)


@each_binder
@each_way
def test_values(framework, way):
    for op, grid in ops(way):
        agree(bound(framework, op)(given(framework, X)), (grid * X * X).sum(-1), way)


@each_way
def test_numpy_rules(way):
    for op, grid in ops(way):
        f = bound("numpy", op)
        agree(f.vjp(np.ones(2), X)[0], 2 * grid * X, way)
        if op.jvp is not None:
            agree(f.jvp(X, X), (2 * grid * X * X).sum(-1), way)


def modes(side, f):
    """name -> the gradient for each of two samples."""

    def total(x):
        return f(x).sum()

    def linearized(x):
        pull = side.linearize(total, x)[1]
        return side.vmap(side.vmap(pull))(side.array(np.eye(6).reshape(2, 3, 2, 3)))

    compiler = side.compiler("aot_eager") if side.NAME == "torch" else side.once
    return {
        "grad": side.grad(total),
        "jacrev": side.jacrev(total),
        "vmap of grad": side.vmap(side.grad(f)),
        "grad of vmap": side.grad(lambda x: side.vmap(f)(x).sum()),
        "compiled": compiler(side.grad(total)),
        "compiled vmap of grad": compiler(side.vmap(side.grad(f))),
        "jacfwd": side.jacfwd(total),
        "linearize": linearized,
    }


COMPILED = ("formula", "NumPy code", "rules call ops", "an op as rule")
FORWARD = ("jacfwd", "linearize")
MODES = ("grad", "jacrev", "vmap of grad", "grad of vmap", "compiled", "compiled vmap of grad")


def pairs():
    """Every way in every mode; those that differ in host code alone are not compiled each time."""
    for way in WAYS:
        for mode in (*MODES, *FORWARD):
            slow = way not in COMPILED and ("compiled" in mode or mode == "linearize")
            yield pytest.param(way, mode, marks=[pytest.mark.slow] if slow else [])


@each_side
@pytest.mark.parametrize(("way", "mode"), pairs())
def test_gradients(framework, way, mode):
    side = side_of(framework)
    for op, grid in ops(way)[1 : 2 + (mode == "grad")]:
        if mode in FORWARD and op.host and op.jvp is None:
            op.def_jvp_by_rows() if op.vjp_on_host else pytest.skip("no forward mode")
        agree(modes(side, bound(framework, op))[mode](side.array(X)), 2 * grid * X, way)


@each_side
@pytest.mark.parametrize("way", ["formula", "from_jacobian", "an op as rule"])
def test_second_derivatives(framework, way):
    side = side_of(framework)
    for op, grid in ops(way)[1:2]:
        f = bound(framework, op)
        for outer in (side.jacrev, side.jacfwd):
            agree(side.once(outer(side.jacrev(f)))(side.array(X[0])), np.diag(2 * grid), way)


@each_side
def test_linear_ops(framework):
    side = side_of(framework)
    for op, grid in ((constant_ops.linear(), GRID),) + (
        (constant_ops.linear().with_constants(grid=OTHER), OTHER),
    ):
        for jacobian in (side.jacrev, side.jacfwd):
            agree(jacobian(bound(framework, op))(side.array(X[0])), np.diag(grid), "")


@each_side
@pytest.mark.parametrize("host", [False, True])
def test_the_written_rule_runs(framework, host):
    side = side_of(framework)
    f = bound(framework, formula(host, {"grid": OTHER}, factor=10.0))
    for mode in (*MODES, *FORWARD):
        agree(modes(side, f)[mode](side.array(X)), 20 * OTHER * X, mode)


@each_side
def test_structured_ops(framework):
    side, op = side_of(framework), constant_ops.structured_of_module
    params = {"scale": side.array(X[1]), "offset": side.array(np.array(1.0))}
    for made, grid in ((op, GRID), (op.with_constants(grid=OTHER), OTHER)):
        assert pickle.loads(pickle.dumps(made)) is made is op.with_constants(grid=grid.copy())
        run = side.grad(bound(framework, made), argnums=(0, 1))
        by_params, by_x = run(params, side.array(X[0]))
        agree(by_params["scale"], grid * X[0], "")
        agree(by_x, grid * X[1], "")


@each_side
def test_a_constant_that_is_handed_on_keeps_its_digits(framework):
    """A float32 rule sees it rounded; the op of NumPy code that it calls does not."""
    seen = []

    @define("(n)->(n)", host=True, constants="grid")
    def note(xp, x, *, grid):
        seen.append(grid)
        return x

    @define("(n)->(n)", constants={"grid": OTHER})
    def outer(xp, x, *, grid):
        assert str(grid.dtype).endswith("float32")
        return note(xp, x, grid=grid)

    bound(framework, outer)(side_of(framework).cast(side_of(framework).array(X), "float32"))
    assert seen[0].dtype == np.float64 and (seen[0] == OTHER).all()


def test_estimators_take_them():
    plain = spsa(constant_ops.value, signature="(n)->()", step=1e-3, constants={"grid": GRID})
    for op, grid in ((plain, GRID), (plain.with_constants(grid=OTHER), OTHER)):
        f = bound("numpy", op)
        draws = [f.vjp(1.0, X[0], seed)[0] for seed in range(300)]
        np.testing.assert_allclose(np.mean(draws, 0), 2 * grid * X[0], rtol=0.5)


LOW = {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}


@each_binder
@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("dtype", LOW)
def test_floating_constants_do_not_promote(framework, host, dtype):
    if framework == "numpy" and dtype == "bfloat16":
        pytest.skip("NumPy has none")
    x = given(framework, X)
    x = x.astype(dtype) if framework == "numpy" else side_of(framework).cast(x, dtype)
    y = bound(framework, formula(host, {"grid": OTHER}))(x)
    assert str(y.dtype).removeprefix("torch.") == dtype
    np.testing.assert_allclose(as_numpy(y), (OTHER * X * X).sum(-1), rtol=LOW[dtype])


KINDS = {
    "bool": np.array([True, False, True]),
    "int64": np.array([2, 0, 1]),
    "int32": np.array([2, 0, 1], np.int32),
    "uint8": np.array([2, 0, 1], np.uint8),
    "float16": np.array([0.5, 2.0, 1.0], np.float16),
    "float32": np.array([0.5, 2.0, 1.0], np.float32),
    "complex128": np.array([0.5, 2.0j, 1.0]),
    "a number": np.float64(2.0),
    "other byte order": np.array([0.5, 2.0, 1.0], ">f8"),
    "strided": np.arange(6.0)[::2],
    "empty": np.zeros((0, 3)),
}


@each_binder
@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_arrives_as_it_is(framework, host, kind):
    seen = []

    @define("(n)->(n)", host=host, constants={"c": KINDS[kind]})
    def look(xp, x, *, c):
        seen.append(c)
        return x

    bound(framework, look)(given(framework, X))
    (c,) = seen
    floating = "complex128" if kind == "complex128" else "float64"
    exact = host or KINDS[kind].dtype.kind in "biu"
    want = KINDS[kind].dtype.newbyteorder("=").name if exact else floating
    assert str(c.dtype).removeprefix("torch.") == want and tuple(c.shape) == KINDS[kind].shape
    np.testing.assert_array_equal(as_numpy(c), KINDS[kind])
    assert host or type(c) is type(given(framework, X))
