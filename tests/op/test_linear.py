"""Ops that are declared linear: modes, orders and transposition follow from the adjoint."""

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_binder, each_side, side_of
from twingrad.interop import (
    ArgumentError,
    Host,
    MissingRuleError,
    SignatureError,
    define,
    from_linear,
    from_numpy,
)
from twingrad.interop.check import check

M = np.random.default_rng(0).normal(size=(3, 4))
C = M + 1j * M[::-1]
X, CT = np.array([0.3, -1.2, 2.0, 0.7]), np.array([1.0, -0.5, 2.0])
K = np.array([0.5, 2.0, -1.0])


def stretched(host=True):
    """k_i sum_j M_ij x_j: linear in x, not in k."""

    @define("(3),(4)->(3)", host=host, linear="x")
    def stretched(xp, k, x):
        return k * (xp.asarray(M, dtype=x.dtype) @ x[..., None])[..., 0]

    @stretched.def_vjp
    def _(xp, ct, out, k, x):
        m = xp.asarray(M, dtype=x.dtype)
        x_bar = ((k * ct)[..., None, :] @ m)[..., 0, :]
        return ct * (m @ x[..., None])[..., 0], x_bar

    return stretched


def forward(x):
    return x @ M.T


def pure(host=True):
    return from_linear(forward, lambda y: y @ M, signature="(4)->(3)", host=host, name="radon")


OPS = {
    "host": lambda: (stretched(), (K,)),
    "array": lambda: (stretched(False), (K,)),
    "from_linear": lambda: (pure(), ()),
    "one by one": lambda: (
        from_linear(
            lambda x: M @ x,
            lambda y: M.T @ y,
            signature="(4)->(3)",
            host=Host(vectorize=True),
            name="radon",
        ),
        (),
    ),
}
each_op = pytest.mark.parametrize("op", OPS)


def setting(framework, op):
    """The op as a function of x alone, its matrix, and the framework."""
    side = side_of(framework)
    made, fixed = OPS[op]()
    f, fixed = side.function(made), tuple(map(side.array, fixed))
    return side, lambda x: f(*fixed, x), (K[:, None] if fixed else 1) * M


@each_side
@each_op
def test_both_modes_and_batches(framework, op):
    side, f, matrix = setting(framework, op)
    x, ct, many = map(side.array, (X, CT, np.stack([X, 2 * X])))
    np.testing.assert_allclose(as_numpy(f(x)), matrix @ X)
    got = side.once(lambda x, ct: side.vjp(f, x)[1](ct)[0])(x, ct)
    np.testing.assert_allclose(as_numpy(got), CT @ matrix)
    got = side.once(lambda x: side.jvp(f, (x,), (2 * x,))[1])(x)
    np.testing.assert_allclose(as_numpy(got), 2 * matrix @ X)
    for mode in (side.jacrev, side.jacfwd):
        got = side.once(side.vmap(mode(f)))(many)
        np.testing.assert_allclose(as_numpy(got), [matrix, matrix])


@each_side
@each_op
def test_every_order(framework, op):
    side, f, matrix = setting(framework, op)
    x = side.array(X)
    for outer in (side.jacrev, side.jacfwd):
        for inner in (side.jacrev, side.jacfwd):
            second = as_numpy(side.once(outer(inner(f)))(x))
            assert second.shape == (3, 4, 4) and not second.any()  # exactly

    def loss(x):
        return side.LIB.sum(f(x) ** 3)

    y = matrix @ X
    want = matrix.T @ np.diag(6 * y) @ matrix
    for outer in (side.jacrev, side.jacfwd):
        for inner in (side.jacrev, side.jacfwd):
            np.testing.assert_allclose(
                as_numpy(side.once(outer(inner(loss)))(x)), want, rtol=1e-12, atol=1e-12
            )


@each_side
@pytest.mark.parametrize("host", [True, False])
def test_the_other_arguments_have_their_own_gradients(framework, host):
    side = side_of(framework)
    f = side.function(stretched(host))
    k, x, ct = map(side.array, (K, X, CT))

    def loss(k, x):
        return side.LIB.sum(ct * f(k, x))

    k_bar, x_bar = side.once(side.grad(loss, argnums=(0, 1)))(k, x)
    np.testing.assert_allclose(as_numpy(k_bar), CT * (M @ X))
    np.testing.assert_allclose(as_numpy(x_bar), (K * CT) @ M)
    if host:
        with pytest.raises(MissingRuleError, match="stretched .*forward mode needs a jvp"):
            side.jvp(f, (k, x), (k, x))
        return
    both = side.once(lambda k, x: side.jvp(f, (k, x), (k, x))[1])(k, x)
    np.testing.assert_allclose(as_numpy(both), 2 * K * (M @ X))
    mixed = side.once(side.jacfwd(side.grad(loss, argnums=1)))(k, x)
    np.testing.assert_allclose(as_numpy(mixed), (np.diag(CT) @ M).T)


@each_side
def test_parameters_of_from_linear_have_no_formula(framework):
    side = side_of(framework)
    op = from_linear(
        lambda x, s: s[:, None] * x @ M.T,
        lambda y, s: s[:, None] * y @ M,
        signature="(4),()->(3)",
        name="scaled",
    )
    f, x, s = side.function(op), side.array(X), side.array(2.0)
    got = side.grad(lambda x: side.LIB.sum(f(x, s)))(x)
    np.testing.assert_allclose(as_numpy(got), 2 * M.sum(0))
    with pytest.raises(MissingRuleError, match=r"scaled \(4\),\(\)->\(3\).*no formula for s"):
        side.grad(lambda s: side.LIB.sum(f(x, s)))(s)


@each_binder
def test_the_adjoint_of_a_complex_op_is_the_conjugate_transpose(framework):
    op = from_linear(
        lambda x: x @ C.T, lambda y: y @ C.conj(), signature="(4)->(3)", dtypes="complex", name="c"
    )
    ct, z = CT * (1 + 2j), X * (1 - 1j)
    if framework == "numpy":
        np.testing.assert_allclose(bound("numpy", op).vjp(ct, z)[0], ct @ C)
        np.testing.assert_allclose(bound("numpy", op).jvp((z,), z), C @ z)
        return
    side = side_of(framework)
    f = side.function(op)
    for x in (z, X):
        seed = side.array(np.conj(ct) if framework == "torch" else ct)
        got = as_numpy(side.once(lambda s, x: side.vjp(f, x)[1](s)[0])(seed, side.array(x)))
        want = ct @ C
        if x is X:
            want = want.real
        np.testing.assert_allclose(got, want.conj() if framework == "torch" else want)
    assert check(op, z, framework=framework, second_order=False).passed


@each_op
def test_jax_transposes_it(op):
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    _, f, matrix = setting("jax", op)
    x, cts = jnp.zeros(4), jnp.asarray(np.stack([CT, 2 * CT]))
    transposed = jax.linear_transpose(f, x)
    for wrap in (lambda g: g, jax.jit):
        np.testing.assert_allclose(wrap(lambda ct: transposed(ct)[0])(cts[0]), CT @ matrix)
    back = jax.linear_transpose(jax.jit(f), x)
    np.testing.assert_allclose(jax.vmap(lambda ct: back(ct)[0])(cts), as_numpy(cts) @ matrix)
    again = jax.linear_transpose(lambda ct: transposed(ct)[0], cts[0])
    np.testing.assert_allclose(again(jnp.asarray(X))[0], matrix @ X)
    mapped = jax.linear_transpose(jax.vmap(f), jnp.zeros((2, 4)))
    np.testing.assert_allclose(mapped(cts)[0], as_numpy(cts) @ matrix)
    slope = jax.grad(lambda ct: jnp.sum(transposed(ct)[0] ** 2))(cts[0])
    np.testing.assert_allclose(slope, 2 * matrix @ (CT @ matrix))


def square(host=True):
    A = np.eye(4) * 3 + 0.3 * np.random.default_rng(1).normal(size=(4, 4))
    op = from_linear(lambda x: x @ A.T, lambda y: y @ A, signature="(4)->(4)", name="square")
    return op, A


def test_solvers_that_transpose_what_they_are_given():
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    op, A = square()
    f, b = bound("jax", op), jnp.asarray(X)

    def solved(b):
        return jnp.sum(jnp.sin(jax.scipy.sparse.linalg.gmres(f, b, tol=1e-13, atol=0.0)[0]))

    want = jax.grad(lambda b: jnp.sum(jnp.sin(jnp.linalg.solve(A, b))))(b)
    np.testing.assert_allclose(jax.jit(jax.grad(solved))(b), want, rtol=1e-8)

    def direct(matvec, b):
        return jnp.linalg.solve(A, b)

    def transposed(matvec, b):
        return jnp.linalg.solve(A.T, b)

    def custom(b):
        found = jax.lax.custom_linear_solve(f, b, direct, transposed)
        return jnp.sum(jnp.sin(found))

    np.testing.assert_allclose(jax.jit(jax.grad(custom))(b), want, rtol=1e-10)


def test_a_lineax_operator_has_a_transpose():
    jax = pytest.importorskip("jax")
    lineax = pytest.importorskip("lineax")
    op, A = square()
    x = jax.ShapeDtypeStruct((4,), np.float64)
    operator = lineax.FunctionLinearOperator(bound("jax", op), x)
    np.testing.assert_allclose(operator.T.mv(jax.numpy.asarray(X)), A.T @ X)


def test_a_host_op_that_is_not_declared_linear_names_the_way():
    jax = pytest.importorskip("jax")
    op = from_numpy(forward, signature="(4)->(3)", vjp=lambda ct, x: ct @ M)
    way = r"forward \(4\)->\(3\): it was transposed in x.*linear=\('x',\).*from_linear"
    for f in (bound("jax", op), jax.jit(bound("jax", op))):
        with pytest.raises(MissingRuleError, match=way):
            jax.linear_transpose(f, X)(CT)
    with pytest.raises(MissingRuleError, match=r"stretched .* transposed in k"):
        jax.linear_transpose(lambda k: bound("jax", stretched())(k, X), K)(CT)


def test_compiled_in_torch():
    torch = pytest.importorskip("torch")
    for op in ("host", "array"):
        side, f, matrix = setting("torch", op)
        x, compiled = side.array(X), side.compiler("aot_eager")

        def loss(x, f=f):
            return (f(x) ** 2).sum()

        want = 2 * matrix.T @ (matrix @ X)
        np.testing.assert_allclose(as_numpy(compiled(torch.func.grad(loss))(x)), want)
        push = compiled(lambda x, f=f: torch.func.jvp(f, (x,), (x,))[1])
        np.testing.assert_allclose(as_numpy(push(x)), matrix @ X)
        leaf = x.clone().requires_grad_()
        f(leaf).sum().backward()
        np.testing.assert_allclose(as_numpy(leaf.grad), matrix.sum(0))
        assert torch.autograd.gradgradcheck(f, leaf)


def test_numpy_has_both_modes():
    for make in OPS.values():
        op, fixed = make()
        matrix, f = (K[:, None] if fixed else 1) * M, bound("numpy", op)
        np.testing.assert_allclose(f.vjp(CT, *fixed, X, wanted=["x"])[-1], CT @ matrix)
        dots = (*(None for _ in fixed), X)
        np.testing.assert_allclose(f.jvp(dots, *fixed, X), matrix @ X)


@pytest.mark.parametrize("host", [True, False])
def test_check_sees_a_declaration_that_is_not_true(host):
    assert check(stretched(host), K, X).passed

    @define("()->()", host=host, linear="x")
    def bent(xp, x):
        return x * x

    bent.def_vjp(lambda xp, ct, out, x: 2 * x * ct)
    assert not check(bent, np.array(1.5)).passed


def test_a_wrong_declaration_is_explained():
    with pytest.raises(SignatureError, match="stretch .*linear has 'y', which is no argument"):

        @define("()->()", linear="y")
        def stretch(xp, x):
            return x

    with pytest.raises(ArgumentError, match="adjoint is a ndarray; expected a function"):
        from_linear(forward, M, signature="(4)->(3)")
