"""The properties of `properties`, continued: vmap and its nestings, and compilation."""

import numpy as np

from tests import pairs
from tests.closeness import as_numpy, assert_close
from tests.properties import Setting, flattened, nestings, random_like, run
from tests.references.expected import Expected

SIZE = 3


def layouts(n):
    """in_dims for n arguments: in front, at the end, and two with None that share the rest."""
    even = tuple(0 if i % 2 == 0 else None for i in range(n))
    odd = tuple(None if i % 2 == 0 else -1 for i in range(n))
    return [(0,) * n, (-1,) * n, *([even, odd] if n > 1 else [])]


class Mapped:
    """Inputs placed as in_dims says, and what a Python loop over the samples should give."""

    def __init__(self, side, row, in_dims):
        stacked = row.inputs((SIZE,))
        self.raw = [
            x[0] if dim is None else np.moveaxis(x, 0, dim)
            for x, dim in zip(stacked, in_dims, strict=True)
        ]
        self.x, self.in_dims = tuple(map(side.array, self.raw)), in_dims
        loop = [
            [x[0] if dim is None else x[b] for x, dim in zip(stacked, in_dims, strict=True)]
            for b in range(SIZE)
        ]
        self.samples = [Expected(row, x, side.CONJUGATES) for x in loop]
        self.value = np.stack([sample.value() for sample in self.samples])

    def gradients(self, ct):
        """For each argument the gradient of each sample; ct has the batch in front."""
        found = [sample.pull(seed) for sample, seed in zip(self.samples, ct, strict=True)]
        return [np.stack(parts) for parts in zip(*found, strict=True)]


def check_vmap(side, row):
    f = side.function(row.op)
    for in_dims in layouts(len(row.boxes)):
        mapped = Mapped(side, row, in_dims)
        out_dims = -1 if in_dims[0] == -1 else 0
        got = side.once(side.vmap(f, in_dims, out_dims))(*mapped.x)
        want = np.moveaxis(mapped.value, 0, out_dims)
        assert_close(got, want, f"in_dims {in_dims}, out_dims {out_dims}")


def check_nested_vmap(side, row):
    """The inner vmap over the last dimension of all, the outer over every other argument."""
    n = len(row.boxes)
    outer = tuple(0 if i % 2 == 0 else None for i in range(n))
    x = row.inputs([(2, SIZE) if dim == 0 else (SIZE,) for dim in outer])
    moved = [np.moveaxis(v, 0 if dim is None else 1, -1) for v, dim in zip(x, outer, strict=True)]
    f = side.vmap(side.vmap(side.function(row.op), (-1,) * n), outer, out_dims=1)
    want = np.moveaxis(Expected(row, x).value(), 0, 1)
    assert_close(side.once(f)(*map(side.array, moved)), want, "nested vmap")


def check_batch_is_the_loop(side, row):
    """One batched call gives what a loop gives, to 4 ulps, and vmap exactly what it gives."""
    x, f = tuple(map(side.array, row.inputs((7,)))), side.once(side.function(row.op))
    batch = f(*x)
    loop = np.stack([as_numpy(f(*[v[b] for v in x])) for b in range(7)])
    assert_close(batch, loop, "the native batch", rtol=1e-15, floor=1.0)
    vmapped = side.once(side.vmap(side.function(row.op)))(*x)
    assert_close(vmapped, batch, "vmap and the native batch", rtol=0.0)


def _vmap_of_grad(side, f, ct, x, in_dims=None):
    every = tuple(range(len(x)))

    def gradient(ct, *x):
        return side.grad(side.weighted(f, ct), argnums=every)(*x)

    return side.vmap(gradient, (0, *(in_dims or (0,) * len(x))))(ct, *x)


def check_vmap_of_grad(side, row, scale=1.0):
    for in_dims in layouts(len(row.boxes)):
        mapped = Mapped(side, row, in_dims)
        ct = random_like(mapped.value, 7)

        def mode(f, ct, x, in_dims=in_dims):
            return _vmap_of_grad(side, f, ct, x, in_dims)

        got = run(side, mode, side.function(row.op), side.array(ct), mapped.x)
        for i, (g, want) in enumerate(zip(got, mapped.gradients(ct), strict=True)):
            assert_close(g, scale * want, f"argument {i}, in_dims {in_dims}")


def check_grad_of_vmap(side, row, scale=1.0):
    for in_dims in layouts(len(row.boxes)):
        mapped = Mapped(side, row, in_dims)
        ct = random_like(mapped.value, 7)
        f = side.vmap(side.function(row.op), in_dims)
        got = run(side, side.REFERENCE_REVERSE, f, side.array(ct), mapped.x)
        wanted = mapped.gradients(ct)
        for i, (g, want, dim) in enumerate(zip(got, wanted, in_dims, strict=True)):
            want = want.sum(0) if dim is None else np.moveaxis(want, 0, dim)
            assert_close(g, scale * want, f"argument {i}, in_dims {in_dims}")


def check_vmap_of_hessian(side, row):
    raw_ct = random_like(Expected(row, row.inputs()).value(), 7)
    f, flat = flattened(side, row, side.function(row.op), side.array(raw_ct))
    many = np.stack([flat, flat * 0.9])
    points = [pairs.arguments(row, pairs.NUMPY, vector) for vector in many]
    want = [Expected(row, x, side.CONJUGATES).hessian(raw_ct) for x in points]
    for name in ("fwd over rev", "rev over rev"):
        got = side.once(side.vmap(nestings(side)[name](f)))(side.array(many))
        assert_close(got, np.stack(want), f"vmap of {name}")


def check_compiled(side, row, what, compiler, scale=1.0):
    """One of the transforms below, compiled, against the reference's derivative."""
    setting = Setting(side, row, () if what == "jacfwd" else (2,))
    want = {"call": lambda: [setting.expected.value()], "jacfwd": setting.expected.jacobians}
    wanted = want.get(what, lambda: setting.expected.pull(setting.raw_ct))()
    got = COMPILED[what](side, side.function(row.op), setting.ct, setting.x, compiler)
    factor = 1.0 if what == "call" else scale
    for i, (g, w) in enumerate(zip(got, wanted, strict=True)):
        assert_close(g, factor * w, f"compiled {what}, argument {i}")


def _call(side, f, ct, x, compiler):
    return [compiler(lambda *x: f(*x))(*x)]


def _backward(side, f, ct, x, compiler):
    return side.REFERENCE_REVERSE(compiler(lambda *x: f(*x)), ct, x)


def _grad(side, f, ct, x, compiler):
    every = tuple(range(len(x)))
    return compiler(side.grad(side.weighted(f, ct), argnums=every))(*x)


def _compiled_vmap_of_grad(side, f, ct, x, compiler):
    return compiler(lambda ct, *x: _vmap_of_grad(side, f, ct, x))(ct, *x)


def _jacfwd(side, f, ct, x, compiler):
    split = pairs.Split(side.LIB, f, x)
    return compiler(side.jacfwd(lambda *x: split(*x), argnums=tuple(range(len(x)))))(*split.x)


COMPILED = {
    "call": _call,
    "backward": _backward,
    "grad": _grad,
    "vmap of grad": _compiled_vmap_of_grad,
    "jacfwd": _jacfwd,
}
