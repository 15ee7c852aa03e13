"""What the functions of an op share: made once for the same numbers, again where it is gone."""

import pickle
import threading

import numpy as np
import pytest
import scipy.linalg

from tests.op.test_needs import Elsewhere
from tests.op.test_result_dtypes import as_numpy, bound, each_side, side_of
from twingrad.interop import ArgumentError, Cache, Host, SignatureError, from_numpy

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(5, 3, 3)) + 4 * np.eye(3), RNG.normal(size=(5, 3))
X = np.linalg.solve(A, B[..., None])[..., 0]
CT = np.arange(1.0, 4.0)
B_BAR = np.linalg.solve(np.swapaxes(A, -1, -2), np.broadcast_to(CT, (5, 3))[..., None])[..., 0]
A_BAR = -B_BAR[..., :, None] * X[..., None, :]
S = "(n,n),(n)->(n)"
MADE = []


def factorise(matrix):
    MADE.append(matrix.shape)
    assert not matrix.flags.writeable
    return scipy.linalg.lu_factor(matrix)


def invert(matrix):
    MADE.append(matrix.shape)
    return np.linalg.inv(matrix)


def solve(matrix, b, *, kept):
    return scipy.linalg.lu_solve(kept, b)


def adjoint(ct, matrix, b, *, kept, out):
    b_bar = scipy.linalg.lu_solve(kept, ct, trans=1)
    return -np.outer(b_bar, out), b_bar


def push(tangents, matrix, b, *, kept, out):
    return scipy.linalg.lu_solve(kept, tangents[1] - tangents[0] @ out)


def solve_all(matrix, b, *, kept):
    return (kept @ b[..., None])[..., 0]


def adjoint_all(ct, matrix, b, *, kept, out):
    b_bar = (np.swapaxes(kept, -1, -2) @ ct[..., None])[..., 0]
    return -b_bar[..., :, None] * out[..., None, :], b_bar


def push_all(tangents, matrix, b, *, kept, out):
    return (kept @ (tangents[1][..., None] - tangents[0] @ out[..., None]))[..., 0]


def make(way, cache=None):
    MADE.clear()
    if way == "batches":
        rules = {"vjp": adjoint_all, "jvp": push_all, "kept": invert}
        return from_numpy(solve_all, signature=S, cache=cache, **rules)
    host = Host(vectorize=True, executor=Elsewhere() if way == "elsewhere" else None)
    rules = {"vjp": adjoint, "jvp": push, "kept": factorise}
    return from_numpy(solve, signature=S, host=host, cache=cache, **rules)


WAYS = ("one by one", "batches", "elsewhere")
COUNTS = {"one by one": 5, "batches": 1, "elsewhere": 10}  # another process makes its own


@each_side
@pytest.mark.parametrize("way", WAYS)
def test_it_is_made_once_for_a_value_and_its_gradient(framework, way):
    side, op = side_of(framework), make(way)
    f = bound(framework, op)
    a, b, ct = side.array(A), side.array(B), side.array(CT)

    def total(a, b):
        return (f(a, b) * ct).sum()

    modes = {
        "grad": side.grad(total, argnums=(0, 1)),
        "vmap of grad": side.vmap(side.grad(total, argnums=(0, 1))),
        "grad of vmap": side.grad(lambda a, b: side.vmap(total)(a, b).sum(), argnums=(0, 1)),
    }
    compiler = side.compiler("aot_eager") if side.NAME == "torch" else side.once
    modes["compiled"] = compiler(modes["grad"])
    for mode, run in modes.items():
        op = make(way)
        f = bound(framework, op)
        got = run(a, b) if mode != "compiled" else compiler(side.grad(total, argnums=(0, 1)))(a, b)
        np.testing.assert_allclose(as_numpy(got[0]), A_BAR, rtol=1e-9)
        np.testing.assert_allclose(as_numpy(got[1]), B_BAR, rtol=1e-9)
        assert len(MADE) == COUNTS[way], mode
    dot = side.once(lambda t: side.jvp(lambda b: f(a, b), (b,), (t,))[1])(b)
    np.testing.assert_allclose(as_numpy(dot), X, rtol=1e-9)


@pytest.mark.parametrize("way", ["one by one", "batches"])
def test_only_what_it_asks_for_makes_it_anew(way):
    f = bound("numpy", make(way))
    for b in (B, 2 * B, B[0]):
        f(A, b)
    assert len(MADE) == COUNTS[way]
    np.testing.assert_allclose(f(A + 1, B), np.linalg.solve(A + 1, B[..., None])[..., 0])
    assert len(MADE) == 2 * COUNTS[way]


@pytest.mark.parametrize("size", [0, 1, 3, 64])
def test_it_is_made_again_where_it_is_gone(size):
    cache = Cache(size)
    f = bound("numpy", make("one by one", cache))
    for _ in range(2):
        np.testing.assert_allclose(f(A, B), X)
        np.testing.assert_allclose(f.vjp(np.broadcast_to(CT, (5, 3)), A, B)[0], A_BAR)
    assert len(cache) == min(size, 5) and cache.computed == len(MADE)


@pytest.mark.parametrize("way", ["one by one", "batches"])
def test_it_is_pickled_without_what_is_kept(way):
    op = make(way, Cache(7))
    bound("numpy", op)(A, B)
    sent = pickle.loads(pickle.dumps(op))
    MADE.clear()
    np.testing.assert_allclose(bound("numpy", sent)(A, B), X)
    assert len(MADE) == COUNTS[way]


def test_threads_share_it():
    f, found = bound("numpy", make("one by one")), []
    threads = [threading.Thread(target=lambda: found.append(f(A, B))) for _ in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert len(found) == 8 and all(np.allclose(x, X) for x in found)
    assert len(MADE) == 5


def test_it_may_follow_from_static_parameters_and_constants():
    made = []

    def table(x, *, grid, p):
        made.append(p)
        return grid**p

    def f(x, *, kept, p=2.0):
        return x * kept

    op = from_numpy(
        f,
        signature="(n)->(n)",
        vjp=lambda ct, x, *, kept, p: ct * kept,
        kept=table,
        constants={"grid": np.arange(3.0)},
    )
    run, x = bound("numpy", op), np.ones(3)
    for p in (2.0, 3.0, 2.0):
        np.testing.assert_array_equal(run(x, p=p), np.arange(3.0) ** p)
        np.testing.assert_array_equal(run.vjp(x, x, p=p)[0], np.arange(3.0) ** p)
    assert made == [2.0, 3.0]
    other = bound("numpy", op.with_constants(grid=np.ones(3)))
    np.testing.assert_array_equal(other(x), x)
    assert op.statics == {"p": 2.0} and op.name == "f"


def test_declarations_that_are_wrong():
    with pytest.raises(SignatureError, match="kept takes 'a', which is no argument.*matrix, b"):
        from_numpy(solve, signature=S, kept=lambda a: a)
    with pytest.raises(ArgumentError, match="kept is a int; expected a function"):
        from_numpy(solve, signature=S, kept=3)
    with pytest.raises(SignatureError, match="nobody asks for what is kept.*`\\*, kept`"):
        from_numpy(lambda m, b: b, signature=S, kept=lambda m: m)
    with pytest.raises(SignatureError, match="its vjp cannot take"):
        from_numpy(lambda m, b: b, signature=S, vjp=adjoint)
