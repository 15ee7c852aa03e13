"""The properties of `properties`, continued: vmap and its nestings, and compilation."""

from tests.closeness import assert_close
from tests.properties import arrays, flattened, layouts, like, nestings, place, samples, stack


def check_vmap(side, row):
    for in_dims in layouts(len(row.boxes)):
        placed = place(side, arrays(side, row, (5,)), in_dims)
        want = stack(side, [side.reference(row)(*x) for x in samples(side, placed, in_dims)])
        got = side.vmap(side.function(row.op), in_dims)(*placed)
        assert_close(got, want, f"in_dims {in_dims}")
        got = side.vmap(side.function(row.op), in_dims, out_dims=-1)(*placed)
        assert_close(got, side.numpy(side.array(want)).transpose(_to_end(want.ndim)), "out_dims -1")


def _to_end(rank):
    return (*range(1, rank), 0)


def check_nested_vmap(side, row):
    """Two vmaps, each over other arguments and other dimensions."""
    n = len(row.boxes)
    inner, outer = (-1,) * n, tuple(0 if i % 2 == 0 else None for i in range(n))
    x = arrays(side, row, (4,))
    if n > 1:
        x = tuple(v if d is None else arrays(side, row, (2, 4))[i] for i, (v, d) in _of(x, outer))
    else:
        x = arrays(side, row, (2, 4))
    # the inner batch goes to the end of every argument, the outer one stays in front
    moved = []
    for v, d in zip(x, outer, strict=True):
        v = side.numpy(v)
        axis = 0 if d is None else 1
        moved.append(side.array(v.transpose([a for a in range(v.ndim) if a != axis] + [axis])))
    want = stack(
        side,
        [
            stack(side, [side.reference(row)(*z) for z in samples(side, y, inner)])
            for y in samples(side, moved, outer)
        ],
    )
    got = side.vmap(side.vmap(side.function(row.op), inner), outer)(*moved)
    assert_close(got, want, "nested vmap")


def _of(x, dims):
    return enumerate(zip(x, dims, strict=True))


def check_batch_is_the_loop(side, row):
    """One batched call gives what a loop over the samples gives, to 4 ulps."""
    x, f = arrays(side, row, (7,)), side.function(row.op)
    want = stack(side, [f(*sample) for sample in samples(side, x, (0,) * len(x))])
    assert_close(f(*x), want, "the native batch", rtol=1e-15, floor=1.0)
    assert_close(side.vmap(f)(*x), f(*x), "vmap and the native batch", rtol=0.0)


def check_vmap_of_grad(side, row, scale=1.0):
    right, f = side.reference(row), side.function(row.op)
    for in_dims in layouts(len(row.boxes)):
        placed = place(side, arrays(side, row, (5,)), in_dims)
        ct = like(side, right(*next(samples(side, placed, in_dims))), 7)
        every = tuple(range(len(placed)))
        wanted = [side.REFERENCE_REVERSE(right, ct, x) for x in samples(side, placed, in_dims)]
        mapped = side.vmap(side.grad(side.weighted(f, ct), argnums=every), in_dims)
        for i, got in enumerate(mapped(*placed)):
            want = scale * stack(side, [w[i] for w in wanted])
            assert_close(got, want, f"argument {i}, in_dims {in_dims}")


def check_grad_of_vmap(side, row, scale=1.0):
    right, f = side.reference(row), side.function(row.op)
    for in_dims in layouts(len(row.boxes)):
        placed = place(side, arrays(side, row, (5,)), in_dims)
        values = stack(side, [right(*x) for x in samples(side, placed, in_dims)])
        ct = like(side, values, 7)

        def loop(*x, in_dims=in_dims, ct=ct):
            return sum(
                side.LIB.sum(ct[b] * right(*[_pick(v, d, b) for v, d in zip(x, in_dims)]))
                for b in range(5)
            )

        want = side.REFERENCE_REVERSE(loop, side.array(1.0), placed)
        every = tuple(range(len(placed)))
        mapped = side.vmap(f, in_dims)
        got = side.grad(side.weighted(mapped, ct), argnums=every)(*placed)
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_close(g, scale * w, f"argument {i}, in_dims {in_dims}")


def _pick(x, dim, b):
    if dim is None:
        return x
    return x[b] if dim == 0 else x[..., b]


def check_vmap_of_hessian(side, row):
    f, flat = flattened(side, row, side.function(row.op))
    right, _ = flattened(side, row, side.reference(row))
    many = side.array(stack(side, [flat, flat * 0.9, flat * 1.1]))
    want = stack(side, [side.jacrev(side.jacrev(right))(x) for x in many])
    for name, hessian in nestings(side).items():
        assert_close(side.vmap(hessian(f))(many), want, f"vmap of {name}", rtol=1e-9)


def check_compiled(side, row, what, compiler, scale=1.0):
    """One of the transforms below, compiled, against the reference's derivative."""
    right, f = side.reference(row), side.function(row.op)
    x = arrays(side, row, (2,))
    ct = like(side, right(*x), 7)
    wanted = COMPILED_WANT.get(what, _reverse)(side, right, ct, x)
    got = COMPILED[what](side, f, ct, x, compiler)
    factor = 1.0 if what == "call" else scale
    for i, (g, w) in enumerate(zip(got, wanted, strict=True)):
        assert_close(g, factor * w, f"compiled {what}, argument {i}")


def _reverse(side, f, ct, x):
    return side.REFERENCE_REVERSE(f, ct, x)


def _every(x):
    return tuple(range(len(x)))


def _call(side, f, ct, x, compiler=lambda f: f):
    return [compiler(lambda *x: f(*x))(*x)]


def _backward(side, f, ct, x, compiler):
    return side.REFERENCE_REVERSE(compiler(lambda *x: f(*x)), ct, x)


def _grad(side, f, ct, x, compiler):
    return compiler(side.grad(side.weighted(f, ct), argnums=_every(x)))(*x)


def _vmap_of_grad(side, f, ct, x, compiler):
    def gradient(ct, *x):
        return side.grad(side.weighted(f, ct), argnums=_every(x))(*x)

    return compiler(side.vmap(gradient, (0,) * (len(x) + 1)))(ct, *x)


def _jacfwd(side, f, ct, x, compiler=lambda f: f):
    return compiler(side.jacfwd(f, argnums=_every(x)))(*x)


COMPILED = {
    "call": _call,
    "backward": _backward,
    "grad": _grad,
    "vmap of grad": _vmap_of_grad,
    "jacfwd": _jacfwd,
}
COMPILED_WANT = {"call": _call, "jacfwd": _jacfwd}
