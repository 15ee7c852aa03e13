"""The dtype of a result is promised: complex of real, real of complex, integers as they are."""

import importlib

import numpy as np
import pytest

from tests import closeness
from twingrad.interop import RuleError, SignatureError, define, from_jacobian, from_numpy
from twingrad.interop.check import check

each_side = pytest.mark.parametrize("framework", ["torch", "jax"])
each_binder = pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
HOST = [pytest.param(True, id="host"), pytest.param(False, id="array")]
F4 = np.exp(-2j * np.pi * np.outer(np.arange(3), np.arange(4)) / 4)
X = np.array([0.3, -1.2, 2.0, 0.7])
Z = X + 1j * X[::-1] ** 2


def side_of(framework):
    pytest.importorskip(framework)
    return importlib.import_module(f"tests.side_{framework}")


def as_numpy(x):
    return closeness.as_numpy(x.resolve_conj() if hasattr(x, "resolve_conj") else x)


def bound(framework, op):
    pytest.importorskip(framework)
    return importlib.import_module(f"twingrad.interop.{framework}").bind(op)


def given(framework, x):
    return x if framework == "numpy" else side_of(framework).array(x)


def power(host=True, dtypes="real"):
    """|z|^2: real of complex; the gradient in the plain-transpose convention is 2 conj(z)."""

    @define("()->()", host=host, dtypes=dtypes)
    def power(xp, z):
        return xp.real(z * xp.conj(z))

    power.def_vjp(lambda xp, ct, out, z: 2 * ct * xp.conj(z))
    power.def_jvp(lambda xp, tangents, out, z: xp.real(2 * xp.conj(z) * tangents[0]))
    return power


def transform(x):
    """The transform with its matrix held fixed, as one NumPy function."""
    return x @ F4.T


def of_real(host):
    if host:
        return from_numpy(
            transform,
            signature="(4)->(3)",
            dtypes="complex",
            vjp=lambda ct, x: ct @ F4,
            jvp=lambda tangents, x: tangents[0] @ F4.T,
        )

    @define("(4)->(3)")
    def transform_(xp, x):
        re, im = (xp.asarray(part, dtype=x.dtype) for part in (F4.real, F4.imag))
        return (re @ x[..., None] + 1j * (im @ x[..., None]))[..., 0]

    @transform_.def_vjp
    def _(xp, ct, out, x):
        F = xp.asarray(F4, dtype=ct.dtype)
        return (ct[..., None, :] @ F)[..., 0, :]

    return transform_


@each_binder
@pytest.mark.parametrize("host", HOST)
def test_a_complex_result_of_real_inputs_keeps_its_imaginary_part(framework, host):
    f = bound(framework, of_real(host))
    for dtype, result in (("float64", "complex128"), ("float32", "complex64")):
        got = as_numpy(f(given(framework, X.astype(dtype))))
        assert got.dtype == result
        np.testing.assert_allclose(got, X @ F4.T, rtol=1e-5 if dtype == "float32" else 1e-12)


@each_side
@pytest.mark.parametrize("host", HOST)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_derivatives_of_complex_results_of_real_inputs(framework, host, batch):
    side = side_of(framework)
    f = side.function(of_real(host))
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(2, *batch, 4))
    ct = rng.normal(size=(*batch, 3)) + 1j * rng.normal(size=(*batch, 3))
    seed = np.conj(ct) if framework == "torch" else ct  # torch's convention
    x, t, seed = map(side.array, (x, t, seed))
    want = np.real(ct @ F4)
    got = as_numpy(side.once(lambda s, x: side.vjp(f, x)[1](s)[0])(seed, x))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, want, rtol=1e-12)
    got = as_numpy(side.once(lambda x, t: side.jvp(f, (x,), (t,))[1])(x, t))
    np.testing.assert_allclose(got, as_numpy(t) @ F4.T, rtol=1e-12)
    if batch:
        got = side.once(side.vmap(lambda s, x: side.vjp(f, x)[1](s)[0]))(seed, x)
        np.testing.assert_allclose(as_numpy(got), want, rtol=1e-12)


@each_side
@pytest.mark.parametrize("host", HOST)
def test_real_results_of_complex_inputs_are_real(framework, host):
    side = side_of(framework)
    f, z = side.function(power(host)), side.array(Z)
    got = as_numpy(f(z))
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, np.abs(Z) ** 2, rtol=1e-12)
    slope = as_numpy(side.once(side.grad(lambda z: side.LIB.sum(f(z))))(z))
    assert slope.dtype == np.complex128
    np.testing.assert_allclose(slope, 2 * (Z if framework == "torch" else Z.conj()), rtol=1e-12)
    dot = as_numpy(side.once(lambda z: side.jvp(f, (z,), (1j * z + z,))[1])(z))
    assert dot.dtype == np.float64
    np.testing.assert_allclose(dot, 2 * np.abs(Z) ** 2, rtol=1e-12)


@pytest.mark.parametrize("host", HOST)
@pytest.mark.parametrize("make", [of_real, power], ids=["complex of real", "real of complex"])
def test_compiled_results_have_the_promised_kind(make, host):
    torch = pytest.importorskip("torch")
    side = side_of("torch")
    f = side.function(make(host))
    x = side.array(X if make is of_real else Z)

    def loss(x):
        y = f(x)
        return torch.sum((y * y.conj()).real)

    compile = side.compiler("aot_eager")
    for g in (f, torch.func.grad(loss), lambda x: torch.func.jvp(loss, (x,), (x,))[1]):
        torch.testing.assert_close(compile(g)(x), g(x))


@pytest.mark.parametrize("make", [of_real, power], ids=["complex of real", "real of complex"])
def test_check_passes_right_rules_and_sees_wrong_ones(make):
    op, inputs = make(True), (X if make is of_real else Z,)
    report = check(op, *inputs)
    assert report.passed, report
    right = op.vjp
    op.vjp = lambda xp, ct, out, x: right(xp, xp.conj(ct) if make is of_real else 1j * ct, out, x)
    assert not check(op, *inputs).passed


def integers(x):
    return (x * 0 + 1).astype(np.int64) * (2**24 + 1)


MISFITS = {
    "complex for real": (np.fft.rfft, "(4)->(3)", None, "returned complex.*dtypes='complex'"),
    "complex for a declared real": (
        np.fft.rfft,
        "(4)->(3)",
        "real",
        "dtypes='complex', not 'real'",
    ),
    "a float for an integer": (np.sin, "(4)->(4)", "int64", "returned float.*dtypes='real'"),
    "an integer for a boolean": (integers, "(4)->(4)", "bool", "returned int64.*dtypes='int64'"),
    "an integer that is rounded": (integers, "(4)->(4)", "float32", "integer 16777217"),
    "an integer out of range": (integers, "(4)->(4)", "int16", "integer 16777217.*dtypes='int64'"),
}


@each_binder
@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_the_promise_raises(framework, case):
    f, signature, dtypes, text = MISFITS[case]
    op = from_numpy(f, signature=signature, dtypes=dtypes)
    with pytest.raises(Exception, match=f"{op.name} .*{text}"):
        as_numpy(bound(framework, op)(given(framework, X)))


@each_binder
def test_a_fixed_dtype_is_one_whatever_the_inputs_are(framework):
    double = from_numpy(lambda x: 2 * x, signature="()->()", dtypes="float64", name="double")
    pair = from_numpy(lambda x: (x, x > 0), signature="()->(),()", dtypes=[None, "bool"], name="p")
    for dtype in ("float16", "float32", "float64"):
        x = given(framework, np.array([1.5, -2.0], dtype))
        assert as_numpy(bound(framework, double)(x)).dtype == np.float64
        same, positive = map(as_numpy, bound(framework, pair)(x))
        assert same.dtype == dtype and positive.dtype == bool
    if framework != "numpy":
        side = side_of(framework)
        f = bound(
            framework,
            from_numpy(
                np.square,
                signature="()->()",
                dtypes="float64",
                vjp=lambda ct, x: 2 * ct * x,
                name="sq",
            ),
        )
        x = side.array(np.array([3.0], np.float32))
        slope = side.grad(lambda x: side.LIB.sum(f(x)))(x)
        assert as_numpy(slope).dtype == np.float32 and float(slope[0]) == 6


@each_side
def test_a_jacobian_can_be_complex_where_the_inputs_are_real(framework):
    side = side_of(framework)
    op = from_jacobian(
        lambda x: np.exp(1j * x),
        lambda x: 1j * np.exp(1j * x),
        signature="()->()",
        dtypes="complex",
        name="phase",
    )
    f = side.function(op)
    x = side.array(np.array([0.3, 2.0]))
    dot = side.once(lambda x: side.jvp(f, (x,), (side.LIB.ones_like(x),))[1])(x)
    np.testing.assert_allclose(as_numpy(dot), 1j * np.exp(1j * as_numpy(x)))


def test_a_wrong_declaration_is_explained():
    with pytest.raises(SignatureError, match=r"f \(\)->\(\): dtypes has 2 entries for 1 outputs"):
        from_numpy(lambda x: x, signature="()->()", dtypes=("real", "real"), name="f")
    with pytest.raises(SignatureError, match=r"f \(\)->\(\): dtypes has 'int128'; expected real"):
        from_numpy(lambda x: x, signature="()->()", dtypes="int128", name="f")


@each_binder
def test_an_array_op_is_held_to_its_declaration(framework):
    f = bound(framework, of_real(False))
    wrong = define("(4)->(3)", dtypes="real")(of_real(False).forward)
    assert as_numpy(f(given(framework, X))).dtype == np.complex128
    with pytest.raises(RuleError, match=r"returned complex128 where float64 is promised"):
        bound(framework, wrong)(given(framework, X))
