"""The properties that every row of the op table has in every framework.

Each `check_...(side, row)` raises AssertionError where the property does not hold; `side`
is `side_torch` or `side_jax`.  "Right" is what the framework's own autodiff makes of the
row's textbook formula.  The seeded faults of `test_faults` must fail these same functions.
`scale` is the factor by which a row's rules are deliberately not the derivative.
"""

import numpy as np
import pytest

from tests.closeness import assert_close
from twingrad.interop import MissingRuleError

UNEQUAL = ((2, 1), (3,), (), (1, 3), (2, 3))  # batch shapes that broadcast to (2, 3)


def batches(row):
    """Batch shapes to try: none, one, two, unequal ranks, size 1 and size 0."""
    unequal = [UNEQUAL[i % len(UNEQUAL)] for i in range(len(row.boxes))]
    return [(), (5,), (2, 3), unequal, (1,), (0,), (2, 0)]


def arrays(side, row, batch=(), seed=0):
    return tuple(side.array(x) for x in row.inputs(batch, seed))


def like(side, x, seed):
    """A random array (cotangent, tangent) of the same shape."""
    rng = np.random.default_rng(seed)
    return side.array(rng.uniform(0.5, 1.5, tuple(x.shape)) * rng.choice([-1, 1], tuple(x.shape)))


def likes(side, xs, seed):
    return tuple(like(side, x, seed + i) for i, x in enumerate(xs))


def check_value(side, row):
    for batch in batches(row):
        x = arrays(side, row, batch)
        assert_close(side.function(row.op)(*x), side.reference(row)(*x), f"batch {batch}")


def check_first_derivative(side, row, scale=1.0):
    for batch in batches(row):
        x = arrays(side, row, batch)
        right = side.reference(row)
        ct = like(side, right(*x), 7)
        want = side.REFERENCE_REVERSE(right, ct, x)
        for name, (mode, f) in side.reverse_modes(row.op).items():
            if name == "jacrev" and 0 in ct.shape:
                continue  # torch's own jacrev refuses an output of size 0
            got = mode(f, ct, x)
            for i, (g, w) in enumerate(zip(got, want, strict=True)):
                assert_close(g, scale * w, f"{name} for argument {i}, batch {batch}")


def check_forward_mode(side, row, scale=1.0):
    for batch in batches(row):
        x = arrays(side, row, batch)
        t = likes(side, x, 17)
        want = side.REFERENCE_FORWARD(side.reference(row), t, x)
        for name, mode in side.FORWARD.items():
            if name == "jacfwd" and 0 in want.shape:
                continue
            got = mode(side.function(row.op), t, x)
            assert_close(got, scale * want, f"{name}, batch {batch}")


def check_each_argument_alone(side, row):
    """The derivative in one argument, while the others need none."""
    x = arrays(side, row, (2,))
    ct = like(side, side.reference(row)(*x), 7)
    for i in range(len(x)):

        def only(f, i=i):
            return lambda v: f(*x[:i], v, *x[i + 1 :])

        right, t = only(side.reference(row)), like(side, x[i], 17)
        (want,) = side.REFERENCE_REVERSE(right, ct, (x[i],))
        for name, (mode, f) in side.reverse_modes(row.op).items():
            (got,) = mode(only(f), ct, (x[i],))
            assert_close(got, want, f"{name} for argument {i} alone")
        want = side.REFERENCE_FORWARD(right, (t,), (x[i],))
        for name, mode in side.FORWARD.items():
            got = mode(only(side.function(row.op)), (t,), (x[i],))
            assert_close(got, want, f"{name} for argument {i} alone")


def flattened(side, row, f, batch=()):
    """`f` of one flat vector and a scalar result, and that vector at random inputs."""
    x = row.inputs(batch)
    sizes = np.cumsum([0, *[v.size for v in x]])
    ct = like(side, side.reference(row)(*map(side.array, x)), 7)

    def scalar(flat):
        parts = [flat[a:b] for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
        shaped = [part.reshape(v.shape) for part, v in zip(parts, x, strict=True)]
        return side.weighted(f, ct)(*shaped)

    return scalar, side.array(np.concatenate([v.ravel() for v in x]))


def nestings(side):
    """The four ways to a Hessian of a function of one vector."""
    rev, fwd = side.jacrev, side.jacfwd
    return {
        "rev over rev": lambda f: rev(rev(f)),
        "fwd over rev": lambda f: fwd(rev(f)),
        "rev over fwd": lambda f: rev(fwd(f)),
        "fwd over fwd": lambda f: fwd(fwd(f)),
    }


def check_second_derivative(side, row, scale=1.0):
    for batch in ((), (2,)):
        right, flat = flattened(side, row, side.reference(row), batch)
        want = side.jacrev(side.jacrev(right))(flat)
        f, _ = flattened(side, row, side.function(row.op), batch)
        for name, hessian in nestings(side).items():
            assert_close(hessian(f)(flat), scale * want, f"{name}, batch {batch}", rtol=1e-9)


def check_third_derivative(side, row):
    """Right where it is known; an error that names the op where it is not."""
    f, flat = flattened(side, row, side.function(row.op))
    third = side.jacrev(side.jacfwd(side.jacrev(f)))
    if row.order < 3:
        with pytest.raises(MissingRuleError, match=row.name):
            third(flat)
        return
    right, _ = flattened(side, row, side.reference(row))
    assert_close(third(flat), side.jacrev(side.jacfwd(side.jacrev(right)))(flat), rtol=1e-8)


def layouts(n):
    """in_dims for n arguments: in front, at the end, mixed, and one argument alone."""
    mixed = tuple((0, -1, None)[i % 3] for i in range(n))
    alone = [tuple(0 if i == j else None for i in range(n)) for j in range(n)]
    return [(0,) * n, (-1,) * n, mixed, *(alone if n > 1 else [])]


def place(side, x, in_dims):
    """Arrays with the batch in front, with it where vmap will look for it."""
    placed = []
    for v, dim in zip(x, in_dims, strict=True):
        v = side.numpy(v)
        placed.append(side.array(v[0] if dim is None else np.moveaxis(v, 0, dim)))
    return tuple(placed)


def samples(side, placed, in_dims):
    """The arguments of each sample, as a Python loop would take them."""
    size = next(x.shape[d] for x, d in zip(placed, in_dims, strict=True) if d is not None)
    for b in range(size):
        yield tuple(
            x if d is None else side.array(np.take(side.numpy(x), b, axis=d))
            for x, d in zip(placed, in_dims, strict=True)
        )


def stack(side, values):
    return np.stack([side.numpy(v) for v in values])
