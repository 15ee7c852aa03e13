"""Ops with right rules, small ones, whose rules `wrong_gradients` changes.

Each function returns the op and a function that draws inputs: no square shapes, no ones.
"""

import numpy as np

from twingrad.interop import define


def low(xp, x):
    """x with the digits of float32."""
    return xp.astype(xp.astype(x, xp.float32), x.dtype)


def reversed_last(xp, g, ct, out, *inputs):
    return xp.flip(g, axis=-1)


def uniform(*shapes, low=0.4, high=1.6):
    """Draws entries of both signs where low is negative."""
    return lambda rng: tuple(rng.uniform(low, high, shape) for shape in shapes)


def softmax_rule(xp, ct, y):
    return y * (ct - xp.sum(y * ct, axis=-1)[..., None])


def softmax():
    @define("(n)->(n)")
    def softmax(xp, x):
        e = xp.exp(x - xp.max(x, axis=-1)[..., None])
        return e / xp.sum(e, axis=-1)[..., None]

    softmax.def_vjp(lambda xp, ct, y, x: softmax_rule(xp, ct, y))
    softmax.def_jvp(lambda xp, t, y, x: softmax_rule(xp, t[0], y))
    return softmax, uniform((5,), low=-1.5)


def log_softmax():
    @define("(n)->(n)")
    def log_softmax(xp, x):
        shifted = x - xp.max(x, axis=-1)[..., None]
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1))[..., None]

    log_softmax.def_vjp(lambda xp, ct, y, x: ct - xp.exp(y) * xp.sum(ct, axis=-1)[..., None])
    return log_softmax, uniform((5,), low=-1.5)


def norm(xp, x):
    return xp.sqrt(xp.sum(x * x, axis=-1))[..., None]


def normalise():
    @define("(n)->(n)")
    def normalise(xp, x):
        return x / norm(xp, x)

    def rule(xp, ct, y, x):
        return (ct - y * xp.sum(y * ct, axis=-1)[..., None]) / norm(xp, x)

    normalise.def_vjp(rule)
    normalise.def_jvp(lambda xp, t, y, x: rule(xp, t[0], y, x))
    return normalise, uniform((4,), low=-1.5)


def rms(xp, x, eps=0.0, axis=-1):
    return xp.sqrt(xp.mean(x * x, axis=axis, keepdims=True) + eps)


def rmsnorm_rule(xp, ct, x, w, forgot=False, axis=-1, eps=0.0):
    r, g = rms(xp, x, eps), ct * w[..., None, :]
    inner = ct if forgot else g
    return g / r - x * xp.mean(inner * x, axis=axis, keepdims=True) / r**3


def rmsnorm():
    @define("(t,n),(n)->(t,n)")
    def rmsnorm(xp, x, w):
        return w[..., None, :] * x / rms(xp, x)

    @rmsnorm.def_vjp
    def _(xp, ct, y, x, w):
        return rmsnorm_rule(xp, ct, x, w), xp.sum(ct * x / rms(xp, x), axis=-2)

    return rmsnorm, uniform((3, 4), (4,))


def matvec():
    @define("(m,n),(n)->(m)")
    def matvec(xp, A, x):
        return xp.sum(A * x[..., None, :], axis=-1)

    @matvec.def_vjp
    def _(xp, ct, y, A, x):
        return ct[..., None] * x[..., None, :], xp.sum(A * ct[..., None], axis=-2)

    return matvec, uniform((3, 4), (4,), low=-1.5)


def quadratic():
    @define("(n),(n,n)->()")
    def quadratic(xp, x, A):
        return xp.sum(x * xp.sum(A * x[..., None, :], axis=-1), axis=-1)

    @quadratic.def_vjp
    def _(xp, ct, y, x, A):
        both = A + xp.matrix_transpose(A)
        return (
            ct[..., None] * xp.sum(both * x[..., None, :], axis=-1),
            ct[..., None, None] * x[..., None] * x[..., None, :],
        )

    return quadratic, uniform((3,), (3, 3))


def bilinear():
    @define("(n),(n,n),(n)->()")
    def bilinear(xp, a, M, b):
        return xp.sum(a[..., None] * M * b[..., None, :], axis=(-2, -1))

    @bilinear.def_vjp
    def _(xp, ct, y, a, M, b):
        return (
            ct[..., None] * xp.sum(M * b[..., None, :], axis=-1),
            ct[..., None, None] * a[..., None] * b[..., None, :],
            ct[..., None] * xp.sum(M * a[..., None], axis=-2),
        )

    return bilinear, uniform((3,), (3, 3), (3,))


def affine():
    @define("(n),(),()->(n)")
    def affine(xp, x, s, b):
        return x * s[..., None] + b[..., None]

    @affine.def_vjp
    def _(xp, ct, y, x, s, b):
        return ct * s[..., None], xp.sum(ct * x, axis=-1), xp.sum(ct, axis=-1)

    return affine, uniform((4,), (), ())


def gaussian():
    """log of the normal density: -((x - m)/s)^2/2 - log s."""

    @define("(n),(),()->(n)")
    def gaussian(xp, x, m, s):
        z = (x - m[..., None]) / s[..., None]
        return -0.5 * z * z - xp.log(s)[..., None]

    @gaussian.def_vjp
    def _(xp, ct, y, x, m, s):
        z = (x - m[..., None]) / s[..., None]
        x_bar = -ct * z / s[..., None]
        return x_bar, -xp.sum(x_bar, axis=-1), xp.sum(ct * (z * z - 1), axis=-1) / s

    @gaussian.def_jvp
    def _(xp, t, y, x, m, s):
        z = (x - m[..., None]) / s[..., None]
        moved = (t[0] - t[1][..., None]) / s[..., None]
        return -z * moved + (z * z - 1) * (t[2] / s)[..., None]

    return gaussian, uniform((4,), (), ())


def cumsum():
    @define("(n)->(n)")
    def running(xp, x):
        return xp.cumulative_sum(x * x, axis=-1)

    @running.def_vjp
    def _(xp, ct, y, x):
        back = xp.flip(xp.cumulative_sum(xp.flip(ct, axis=-1), axis=-1), axis=-1)
        return 2 * x * back

    return running, uniform((4,))


def power():
    @define("(n),()->(n)")
    def power(xp, x, p):
        return x ** p[..., None]

    @power.def_vjp
    def _(xp, ct, y, x, p):
        return ct * p[..., None] * y / x, xp.sum(ct * y * xp.log(x), axis=-1)

    @power.def_jvp
    def _(xp, t, y, x, p):
        return p[..., None] * y / x * t[0] + y * xp.log(x) * t[1][..., None]

    return power, lambda rng: (rng.uniform(0.4, 1.6, 4), rng.uniform(1.5, 2.5))


def hypot():
    @define("(n),(n)->(n)")
    def hypot(xp, a, b):
        return xp.sqrt(a * a + b * b)

    hypot.def_vjp(lambda xp, ct, y, a, b: (ct * a / y, ct * b / y))
    hypot.def_jvp(lambda xp, t, y, a, b: (a * t[0] + b * t[1]) / y)
    return hypot, uniform((4,), (4,))


def product():
    """Complex: the rules are plain transposes."""

    @define("(n),(n)->(n)")
    def product(xp, a, b):
        return a * b * b

    product.def_vjp(lambda xp, ct, y, a, b: (ct * b * b, 2 * ct * a * b))
    product.def_jvp(lambda xp, t, y, a, b: t[0] * b * b + 2 * a * b * t[1])

    def draw(rng):
        return tuple(rng.uniform(0.4, 1.6, 3) + 1j * rng.uniform(0.4, 1.6, 3) for _ in "ab")

    return product, draw


def moments():
    @define("(n)->(),()")
    def moments(xp, x):
        return xp.sum(x, axis=-1), xp.sum(x * x, axis=-1)

    @moments.def_vjp
    def _(xp, ct, out, x):
        return ct[0][..., None] + 2 * x * ct[1][..., None]

    return moments, uniform((4,))


def energy():
    """A host op: NumPy code, s times the sum of the sines, whose gradient is another host op."""

    @define("(n),()->()", host=True)
    def energy(xp, x, s):
        return s * np.sin(x).sum(-1)

    @energy.def_vjp
    def _(xp, ct, y, x, s):
        return (ct * s)[..., None] * np.cos(x), ct * np.sin(x).sum(-1)

    return energy, uniform((4,), ())


def softplus():
    """With the sigmoid as a hidden output, which the rule wants again."""

    @define("(n)->(n),(n)", hidden=1)
    def softplus(xp, x):
        sigmoid = 1 / (1 + xp.exp(-x))
        return xp.log(1 + xp.exp(x)), sigmoid

    @softplus.def_vjp
    def _(xp, ct, out, x):
        y, s = out
        slope = 0 if ct[1] is None else ct[1] * s * (1 - s)
        return ct[0] * s + slope

    return softplus, uniform((3,), low=-1.5)
