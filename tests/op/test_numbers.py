"""Python and NumPy numbers as arguments and static parameters, and low precision in NumPy."""

import numpy as np
import pytest

from tests.op.test_result_dtypes import as_numpy, bound, each_binder, each_side, given, side_of
from tests.sample_ops import multiply, power
from twingrad.interop import ArgumentError, define

X = np.array([3.0, 1.0, 2.0], np.float32)


def chosen(seen=None):
    """The entry of a vector with that index, as a host function looks it up."""

    @define("(n),()->()", host=True)
    def chosen(xp, x, k):
        if seen is not None:
            seen.append((x.dtype, k.dtype))
        return np.take_along_axis(x, np.broadcast_to(k, x.shape[:1])[:, None], 1)[:, 0]

    @chosen.def_vjp
    def _(xp, ct, out, x, k):
        return ct[:, None] * (np.arange(x.shape[1]) == k[:, None]), None

    return chosen


@each_binder
@pytest.mark.parametrize("k", [2, np.int64(2), np.int32(2), np.array(2)], ids=repr)
def test_an_integer_reaches_a_host_function_as_one(framework, k):
    seen = []
    f, x = bound(framework, chosen(seen)), given(framework, X)
    k = given(framework, k) if isinstance(k, np.ndarray) else k
    got = as_numpy(f(x, k))
    assert got == 2 and got.dtype == np.float32
    assert [(x.name, k.kind) for x, k in seen] == [("float32", "i")]


@each_side
def test_it_does_so_in_gradients_batches_and_programs(framework):
    side = side_of(framework)
    f, x = bound(framework, chosen()), side.array(X.astype(float))
    for g in (side.grad(lambda x: f(x, 2)), side.once(side.grad(lambda x: f(x, 2)))):
        assert as_numpy(g(x)).tolist() == [0, 0, 1]
    many = side.array(np.stack([X, 2 * X]))
    assert as_numpy(side.once(side.vmap(lambda x: f(x, 1)))(many)).tolist() == [1, 2]


def test_one_graph_serves_all_integers_in_torch():
    torch = pytest.importorskip("torch")
    seen, f = [], bound("torch", chosen())
    torch._dynamo.reset()

    def backend(graph, inputs):
        seen.append(graph)
        return graph

    compiled = torch.compile(f, backend=backend, fullgraph=True)
    x = torch.from_numpy(X)
    assert [float(compiled(x, k)) for k in (0, 1, 2, 1)] == [3, 1, 2, 1]
    assert len(seen) <= 2  # one for the first, one for all others


@each_binder
def test_an_integer_above_the_floats_is_not_rounded(framework):
    seen = []

    @define("(),()->()", host=True)
    def note(xp, x, k):
        seen.append(int(k[0]))
        return x

    as_numpy(bound(framework, note)(given(framework, np.float32(1) * np.ones(1)), 2**24 + 1))
    assert seen == [2**24 + 1]


@each_side
@pytest.mark.parametrize("host", [False, True])
def test_numbers_do_not_promote_and_have_no_gradient(framework, host):
    side = side_of(framework)

    @define("(),()->()", host=host)
    def times(xp, x, s):
        return x * s

    times.def_vjp(lambda xp, ct, out, x, s: (ct * s, ct * x))
    f = bound(framework, times)
    wide = () if framework == "jax" else (np.float64(2),)  # an array to JAX, which promotes
    for s in (2, 2.0, np.int64(2), True, *wide):
        x = side.array(np.array(1.5, np.float32))
        assert as_numpy(f(x, s)).dtype == np.float32 and float(f(x, s)) == 1.5 * s
        assert float(side.grad(lambda x, s=s: f(x, s))(x)) == s


NUMBERS = [np.float64(3), np.float32(3), np.int64(3), np.int32(3), np.bool_(True)]


@each_binder
@pytest.mark.parametrize("p", NUMBERS, ids=lambda p: type(p).__name__)
def test_a_number_of_numpy_is_a_static_parameter(framework, p):
    f, seen = bound(framework, power()), []

    @define("()->()")
    def note(xp, x, *, p, pair=()):
        seen.append((p, pair))
        return x

    x = given(framework, np.array(2.0))
    assert float(f(x, p=p)) == 2.0 ** float(p)
    bound(framework, note)(x, p=p, pair=(p, (1, p)))
    assert type(seen[-1][0]) in (float, int, bool)
    assert seen[-1] == (p.item(), (p.item(), (1, p.item())))
    with pytest.raises(ArgumentError, match=r"power .*'p' is a static parameter"):
        f(x, p=np.array(3.0))


SCALARS = [
    np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_,
    np.complex128, np.complex64,
]  # fmt: skip


@pytest.mark.parametrize("kind", SCALARS)
@pytest.mark.parametrize("host", [False, True])
def test_a_number_of_numpy_is_an_argument(kind, host):
    """In torch it does not promote, and no part of it is lost; JAX and NumPy: as there."""
    torch = pytest.importorskip("torch")

    @define("(),()->()", host=host)
    def times(xp, x, s):
        return x * s

    number = kind(2 + 3j) if kind(0).dtype.kind == "c" else kind(2)
    want = 1.5 * number.item()
    for framework, x in (("torch", torch.full((2,), 1.5)), ("numpy", np.full(2, 1.5, "f4"))):
        runs = [bound(framework, times)]
        if framework == "torch":
            runs.append(torch.compile(runs[0], fullgraph=True, backend="aot_eager"))
        for run in runs:
            y = run(x, number)
            assert as_numpy(y).tolist() == [want, want]
            low = framework == "torch" or kind(0).dtype.itemsize < (16 if want.imag else 8)
            precision = "complex64" if want.imag else "float32"
            assert not low or str(y.dtype).removeprefix("torch.") == precision


def test_a_symbolic_size_in_a_tuple_is_a_number():
    torch = pytest.importorskip("torch")

    @define("(n)->(n)")
    def scaled(xp, x, *, shape):
        return x * shape[0] * shape[1][0]

    scaled.def_vjp(lambda xp, ct, out, x, *, shape: ct * shape[0] * shape[1][0])
    f = bound("torch", scaled)
    torch._dynamo.reset()

    def sized(x):
        return f(x, shape=(x.shape[0], (x.shape[0] + 1,)))

    compiled = torch.compile(sized, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (2, 3, 4):
        x = torch.ones(n, dtype=torch.float64)
        assert compiled(x).tolist() == [n * (n + 1.0)] * n


def low(name):
    return np.float16 if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("host", [False, True])
def test_numpy_computes_low_precision_in_float32_and_gives_it_back(name, host):
    seen, dtype = [], low(name)

    @define("(),()->(),()", host=host, dtypes=(None, "float32"))
    def product(xp, a, b):
        seen.append((a.dtype, b.dtype))
        return a * b, a

    product.def_vjp(lambda xp, ct, out, a, b: (ct[0] * b + ct[1], ct[0] * a))
    product.def_jvp(lambda xp, t, out, a, b: (t[0] * b + a * t[1], t[0]))
    f, a = bound("numpy", product), np.array([1.5, 300], dtype)
    for b in (a, 2, 2.5, np.array(3)):
        outs = f(a, b)
        assert outs[0].dtype == dtype and outs[1].dtype == np.float32
        assert seen[-1][0] == np.float32
        want = np.asarray(a, np.float32) * np.asarray(b, np.float32)
        np.testing.assert_array_equal(outs[0], want.astype(dtype))
    gradients = f.vjp((np.ones(2), np.zeros(2)), a, a)
    assert all(g.dtype == dtype for g in gradients)
    dots = f.jvp((a, a), a, a)
    assert dots[0].dtype == dtype and dots[1].dtype == np.float32


@pytest.mark.parametrize("other", ["float32", "float64", "float16"])
def test_bfloat16_promotes_as_in_the_frameworks(other):
    a, b = np.ones(2, low("bfloat16")), np.ones(2, other)
    wanted = "float32" if other == "float16" else other
    assert bound("numpy", multiply())(a, b).dtype == wanted
