"""The properties that every row of the op table has in every framework.

Each `check_...(side, row)` raises AssertionError where the property does not hold; `side`
is `side_torch` or `side_jax`.  "Right" is what the mpmath closed form says.  The seeded
faults of `test_faults` must fail these same functions.  `scale` is the factor by which a
row's rules are deliberately not the derivative.

Modes run in `side.once`: in JAX that is jit, because eager JAX compiles each operation of
each shape.  `check_eager` is for what runs without it.
"""

import numpy as np

from tests import pairs
from tests.closeness import as_numpy, assert_close
from tests.references.expected import Expected

UNEQUAL = ((2, 1), (3,), (), (1, 3), (2, 3))  # batch shapes that broadcast to (2, 3)


def unequal(row):
    return [UNEQUAL[i % len(UNEQUAL)] for i in range(len(row.boxes))]


def arrays(side, row, batch=(), seed=0):
    return tuple(side.array(x) for x in row.inputs(batch, seed))


def random_like(x, seed):
    """A cotangent or tangent of an array or shape: no entry near 0, no two alike, both signs."""
    rng, shape = np.random.default_rng(seed), getattr(x, "shape", x)

    def draw():
        return rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)

    return draw() + 1j * draw() if np.iscomplexobj(x) else draw()


class Setting:
    """Inputs, a cotangent and tangents, as NumPy and as a framework's arrays; what is right."""

    def __init__(self, side, row, batch=()):
        self.raw = row.inputs(batch)
        self.expected = Expected(row, self.raw, side.CONJUGATES)
        self.raw_ct = random_like(self.expected.value(), 7)
        self.raw_t = [random_like(x, 17 + i) for i, x in enumerate(self.raw)]
        self.x, self.t = tuple(map(side.array, self.raw)), tuple(map(side.array, self.raw_t))
        self.ct = side.array(self.raw_ct)
        self.batch = batch


def run(side, mode, f, seed, x):
    return side.once(lambda seed, x: mode(f, seed, x))(seed, x)


def check_value(side, row):
    for batch in [(), unequal(row), (1,), (0,), (2, 0)]:
        setting = Setting(side, row, batch)
        got = side.once(lambda x: side.function(row.op)(*x))(setting.x)
        assert_close(got, setting.expected.value(), f"batch {batch}")


def check_first_derivative(side, row, scale=1.0):
    for batch in [unequal(row), (2, 0)]:
        setting = Setting(side, row, batch)
        want = setting.expected.pull(setting.raw_ct)
        for name, (mode, f) in side.reverse_modes(row.op).items():
            if name == "jacrev" and 0 in setting.raw_ct.shape:
                continue  # torch's own jacrev refuses an output of size 0
            got = run(side, mode, f, setting.ct, setting.x)
            for i, (g, w) in enumerate(zip(got, want, strict=True)):
                assert_close(g, scale * w, f"{name} for argument {i}, batch {batch}")


def check_forward_mode(side, row, scale=1.0):
    for batch in [unequal(row), (2, 0)]:
        setting = Setting(side, row, batch)
        want = setting.expected.push(setting.raw_t)
        for name, mode in side.FORWARD.items():
            if name in ("jacfwd", "linearize") and 0 in want.shape:
                continue  # torch's own functions fail there
            got = run(side, mode, side.function(row.op), setting.t, setting.x)
            assert_close(got, scale * want, f"{name}, batch {batch}")


def check_transposition(side, row, scale=1.0):
    """The derivative as a linear function of the tangents, walked back by the framework."""
    setting = Setting(side, row, unequal(row))
    want = setting.expected.pull(setting.raw_ct)
    got = run(side, side.transposed, side.function(row.op), setting.ct, setting.x)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert_close(g, scale * w, f"argument {i}")


def check_eager(side, row, scale=1.0):
    """Call, gradient and jvp without any compiler, one after the other."""
    setting, f = Setting(side, row), side.function(row.op)
    assert_close(f(*setting.x), setting.expected.value(), "call")
    got = side.REFERENCE_REVERSE(f, setting.ct, setting.x)
    for g, want in zip(got, setting.expected.pull(setting.raw_ct), strict=True):
        assert_close(g, scale * want, "gradient")
    got = side.REFERENCE_FORWARD(f, setting.t, setting.x)
    assert_close(got, scale * setting.expected.push(setting.raw_t), "jvp")


def check_each_argument_alone(side, row):
    """The derivative in one argument, while the others need none."""
    setting = Setting(side, row, (2,))
    x, gradients = setting.x, setting.expected.pull(setting.raw_ct)
    for i in range(len(x)):

        def only(v, i=i):
            return side.function(row.op)(*x[:i], v, *x[i + 1 :])

        (got,) = run(side, side.REFERENCE_REVERSE, only, setting.ct, (x[i],))
        assert_close(got, gradients[i], f"gradient in argument {i} alone")
        got = run(side, side.REFERENCE_FORWARD, only, (setting.t[i],), (x[i],))
        t = [v if i == j else np.zeros_like(v) for j, v in enumerate(setting.raw_t)]
        assert_close(got, setting.expected.push(t), f"jvp in argument {i} alone")


def flattened(side, row, f, ct):
    """`f` of one flat real vector and a scalar result, and that vector at random inputs."""

    def scalar(vector):
        return side.weighted(f, ct)(*pairs.arguments(row, side.LIB, vector))

    return scalar, pairs.flat(row, row.inputs())


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
    setting = Setting(side, row)
    f, flat = flattened(side, row, side.function(row.op), setting.ct)
    want = setting.expected.hessian(setting.raw_ct)
    for name, hessian in nestings(side).items():
        assert_close(side.once(hessian(f))(side.array(flat)), scale * want, name)


def check_second_derivative_of_a_batch(side, row, scale=1.0):
    """Products with the Hessian where the batch shapes broadcast, in three nestings."""
    setting, f = Setting(side, row, unequal(row)), side.function(row.op)
    want = setting.expected.pull_second(setting.raw_ct, setting.raw_t)
    every = tuple(range(len(setting.x)))

    def gradient(*x):
        return side.grad(side.weighted(f, setting.ct), argnums=every)(*x)

    def slope(*x):
        return sum(side.inner(t, g) for t, g in zip(setting.t, gradient(*x), strict=True))

    def rate(*x):
        return side.inner(setting.ct, side.jvp(f, x, setting.t)[1])

    products = {
        "rev over rev": side.grad(slope, argnums=every),
        "rev over fwd": side.grad(rate, argnums=every),
        "fwd over rev": lambda *x: side.jvp(gradient, x, setting.t)[1],
    }
    for name, product in products.items():
        got = side.once(product)(*setting.x)
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            assert_close(g, scale * w, f"{name}, argument {i}")


def check_third_derivative(side, row):
    ct = side.array(random_like(Expected(row, row.inputs()).value(), 7))
    f, flat = flattened(side, row, side.function(row.op), ct)
    third = side.once(side.jacrev(side.jacfwd(side.jacrev(f))))
    got = third(side.array(flat))  # raises where the row says that it is not known
    right, _ = flattened(side, row, side.reference(row), ct)
    want = side.once(side.jacrev(side.jacrev(side.jacrev(right))))(side.array(flat))
    assert_close(got, as_numpy(want), rtol=1e-8)
