"""Small ops that the tests of the binders share; made fresh by functions, so that rules can vary.

Several are wrong on purpose: a rule that is `factor` times the derivative shows, by the
factor in the result, that it is the hand-written rule which ran and not autodiff.
"""

from typing import Any

import numpy as np

from twingrad.interop import Op, define


def cube(factor: float = 1.0, rules: str = "both") -> Op:
    """x^3 with rules that are `factor` times the derivative; rules is vjp, jvp, both or none."""

    @define("()->()")
    def cube(xp, x):
        return x**3

    if rules in ("vjp", "both"):
        cube.def_vjp(lambda xp, ct, out, x: factor * 3 * x**2 * ct)
    if rules in ("jvp", "both"):
        cube.def_jvp(lambda xp, tangents, out, x: factor * 3 * x**2 * tangents[0])
    return cube


def affine(vjp: Any = None) -> Op:
    """x s + b for a vector x and scalars s and b; the default rules leave sums to the binder."""

    @define("(n),(),()->(n)")
    def affine(xp, x, s, b):
        return x * s[..., None] + b[..., None]

    def rule(xp, ct, out, x, s, b):
        return ct * s[..., None], xp.sum(ct * x, axis=-1), xp.sum(ct, axis=-1)

    affine.def_vjp(vjp or rule)
    return affine


def dot(factor: float = 1.0) -> Op:
    """The dot product of two vectors, with both rules."""

    @define("(n),(n)->()")
    def dot(xp, x, y):
        return xp.sum(x * y, axis=-1)

    @dot.def_vjp
    def _(xp, ct, out, x, y):
        return factor * ct[..., None] * y, factor * ct[..., None] * x

    @dot.def_jvp
    def _(xp, tangents, out, x, y):
        x_dot, y_dot = tangents
        return factor * xp.sum(x_dot * y + x * y_dot, axis=-1)

    return dot


def moments(seen: list | None = None) -> Op:
    """Two outputs, sum x and sum x^2; `seen` records the cotangents that the rule gets."""

    @define("(n)->(),()")
    def moments(xp, x):
        return xp.sum(x, axis=-1), xp.sum(x * x, axis=-1)

    @moments.def_vjp
    def _(xp, ct, out, x):
        if seen is not None:
            seen.append(ct)
        first, second = ct
        return first[..., None] + 2 * x * second[..., None]

    return moments


def softplus_hidden(seen: list | None = None) -> Op:
    """log(1 + e^x) with the sigmoid as a hidden output, which the rule wants again."""

    @define("()->(),()", hidden=1)
    def softplus(xp, x):
        return xp.log1p(xp.exp(x)), 1 / (1 + xp.exp(-x))

    @softplus.def_vjp
    def _(xp, ct, out, x):
        if seen is not None:
            seen.append(ct)
        s = out[1]
        return ct[0] * s if ct[1] is None else ct[0] * s + ct[1] * s * (1 - s)

    return softplus


def power() -> Op:
    """x^p with a static parameter p, 2 where it is not given."""

    @define("()->()")
    def power(xp, x, *, p=2.0):
        return x**p

    power.def_vjp(lambda xp, ct, out, x, *, p: ct * p * x ** (p - 1))
    return power


def host_power() -> Op:
    """The same on the host, with its adjoint."""

    @define("()->()", host=True)
    def power(xp, x, *, p=2.0):
        return x**p

    power.def_vjp(lambda xp, ct, out, x, *, p: ct * p * x ** (p - 1))
    return power


def pick() -> Op:
    """x[k] for an integer k and, where the boolean flag is set, else 0."""

    @define("(n),(),()->()")
    def pick(xp, x, k, flag):
        hot = _hot(xp, x, k, flag)
        return xp.sum(xp.where(hot, x, xp.zeros_like(x)), axis=-1)

    @pick.def_vjp
    def _(xp, ct, out, x, k, flag):
        zero = xp.zeros_like(x * ct[..., None])
        return xp.where(_hot(xp, x, k, flag), ct[..., None] + zero, zero), None, None

    @pick.def_jvp
    def _(xp, tangents, out, x, k, flag):
        assert tangents[1] is None and tangents[2] is None
        dot = tangents[0]
        return xp.sum(xp.where(_hot(xp, x, k, flag), dot, xp.zeros_like(dot)), axis=-1)

    return pick


def _hot(xp, x, k, flag):
    places = xp.cumsum(xp.ones_like(x), axis=-1) - 1
    return (places == k[..., None]) & flag[..., None]


def multiply(rules: str = "both") -> Op:
    """a b, complex or real, in the plain-transpose convention: no conjugates."""

    @define("(),()->()")
    def multiply(xp, a, b):
        return a * b

    if rules in ("vjp", "both"):
        multiply.def_vjp(lambda xp, ct, out, a, b: (ct * b, ct * a))
    if rules in ("jvp", "both"):
        multiply.def_jvp(lambda xp, t, out, a, b: t[0] * b + a * t[1])
    return multiply


def identity() -> Op:
    """The forward returns its input itself."""

    @define("(n)->(n)")
    def identity(xp, x):
        return x

    identity.def_vjp(lambda xp, ct, out, x: 100 * ct)
    return identity


def flip_axes() -> Op:
    """The output is a view of the input, in torch."""

    @define("(n,m)->(m,n)")
    def flip_axes(xp, x):
        return xp.matrix_transpose(x)

    flip_axes.def_vjp(lambda xp, ct, out, x: 100 * xp.matrix_transpose(ct))
    return flip_axes


class Recorder:
    """Host functions that record what they were given: sum x^2 s and its adjoint."""

    def __init__(self) -> None:
        self.calls: list[tuple[np.ndarray, ...]] = []
        self.adjoint_calls: list[tuple[np.ndarray, ...]] = []

    def value(self, xp, x, s):
        self.calls.append((x, s))
        return (x * x).sum(-1) * s

    def adjoint(self, xp, ct, out, x, s):
        self.adjoint_calls.append((ct, out, x, s))
        return 2 * x * (ct * s)[:, None], ct * (x * x).sum(-1)

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.calls), len(self.adjoint_calls)

    def clear(self) -> None:
        self.calls.clear()
        self.adjoint_calls.clear()


def host_energy() -> tuple[Op, Recorder]:
    """A host op (n),()->() whose adjoint runs on the host too, with its recorder."""
    recorder = Recorder()

    @define("(n),()->()", host=True)
    def energy(xp, x, s):
        return recorder.value(xp, x, s)

    @energy.def_vjp
    def _(xp, ct, out, x, s):
        return recorder.adjoint(xp, ct, out, x, s)

    return energy, recorder


def host_sin(second: bool = True) -> Op:
    """sin on the host; its derivative is another host op where `second`, else plain NumPy."""

    @define("()->()", host=True)
    def host_cos(xp, x):
        return np.cos(x)

    host_cos.def_vjp(lambda xp, ct, out, x: -ct * host_sin(xp, x), host=False)
    host_cos.def_jvp(lambda xp, t, out, x: -t[0] * host_sin(xp, x), host=False)

    @define("()->()", host=True)
    def host_sin(xp, x):
        return np.sin(x)

    if second:
        host_sin.def_vjp(lambda xp, ct, out, x: ct * host_cos(xp, x), host=False)
        host_sin.def_jvp(lambda xp, t, out, x: t[0] * host_cos(xp, x), host=False)
    else:
        host_sin.def_vjp(lambda xp, ct, out, x: ct * np.cos(x))
        host_sin.def_jvp(lambda xp, t, out, x: t[0] * np.cos(x))
    return host_sin


@define("()->()")
def module_level(xp, x):
    """2 x: an op that a module holds under its own name, as pickling needs."""
    return 2 * x


module_level.def_vjp(lambda xp, ct, out, x: 2 * ct)


@define("()->()", host=True)
def host_power_of_module(xp, x, *, p=2.0):
    """x^p on the host, held by its module."""
    return x**p


host_power_of_module.def_vjp(lambda xp, ct, out, x, *, p: ct * p * x ** (p - 1))
