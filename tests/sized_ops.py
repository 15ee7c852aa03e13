"""Ops whose results have sizes of their own: a static parameter, or computed from others.

Array and host ops, each with a function of the framework itself to compare with.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from twingrad.interop import Op, define, finite_difference, from_jacobian, from_linear, from_numpy


def _phases(xp, x, n_modes):
    """exp(-i k x_j) for k from -n/2, with its rows of -i k."""
    k = xp.arange(n_modes, dtype=x.dtype) - n_modes // 2
    return xp.exp(-1j * k[:, None] * x[..., None, :]), -1j * k[:, None]


def nufft(host: bool = False) -> Op:
    """f_k = sum_j c_j exp(-i k x_j), a non-uniform Fourier transform of type 1."""

    @define("(n),(n)->(n_modes)", host=host, dtypes="complex")
    def nufft(xp, c, x, *, n_modes=6):
        return xp.sum(_phases(xp, x, n_modes)[0] * c[..., None, :], axis=-1)

    @nufft.def_vjp
    def _(xp, ct, out, c, x, *, n_modes):
        phases, slopes = _phases(xp, x, n_modes)
        x_bar = c * xp.sum(phases * slopes * ct[..., None], axis=-2)
        return xp.sum(phases * ct[..., None], axis=-2), x_bar

    @nufft.def_jvp
    def _(xp, tangents, out, c, x, *, n_modes):
        phases, slopes = _phases(xp, x, n_modes)
        c_dot, x_dot = (t[..., None, :] for t in tangents)
        return xp.sum(phases * (c_dot + slopes * c[..., None, :] * x_dot), axis=-1)

    return nufft


def _matrix(xp, x):
    n = x.shape[-1]
    k, j = xp.arange(n // 2 + 1, dtype=x.dtype), xp.arange(n, dtype=x.dtype)
    return xp.exp(-1j * (2 * np.pi / n * k[:, None] * j))


def rfft(host: bool = False) -> Op:
    """The first n//2+1 entries of the Fourier transform of a real vector; linear."""

    @define("(n)->(n//2+1)", host=host, dtypes="complex", linear="x")
    def rfft(xp, x):
        return xp.sum(_matrix(xp, x) * x[..., None, :], axis=-1)

    @rfft.def_vjp
    def _(xp, ct, out, x):
        return xp.sum(_matrix(xp, x) * ct[..., None], axis=-2)

    return rfft


def _convolve(xp, x, y):
    n, m = x.shape[-1], y.shape[-1]
    place = xp.arange(n)[:, None] + xp.arange(m)
    hot = xp.astype(place == xp.arange(n + m - 1)[:, None, None], x.dtype)
    return xp.sum(hot * x[..., None, :, None] * y[..., None, None, :], axis=(-2, -1))


def _correlate(xp, x, y):
    n, m = x.shape[-1], y.shape[-1]
    place = xp.arange(n - m + 1)[:, None] + xp.arange(m)
    hot = xp.astype(place[..., None] == xp.arange(n), x.dtype)
    return xp.sum(hot * x[..., None, None, :] * y[..., None, :, None], axis=(-2, -1))


def convolve(host: bool = False) -> Op:
    """z_k = sum_i x_i y_{k-i}; its gradients are correlations, and theirs convolutions."""

    @define("(n),(m)->(n+m-1)", host=host)
    def convolve(xp, x, y):
        return _convolve(xp, x, y)

    @define("(n),(m)->(n-m+1)", host=host)
    def correlate(xp, x, y):
        return _correlate(xp, x, y)

    @convolve.def_vjp(host=False)
    def _(xp, ct, out, x, y):
        return correlate(xp, ct, y), correlate(xp, ct, x)

    @convolve.def_jvp(host=False)
    def _(xp, tangents, out, x, y):
        return convolve(xp, tangents[0], y) + convolve(xp, x, tangents[1])

    @correlate.def_vjp(host=False)
    def _(xp, ct, out, x, y):
        return convolve(xp, ct, y), correlate(xp, x, ct)

    @correlate.def_jvp(host=False)
    def _(xp, tangents, out, x, y):
        return correlate(xp, tangents[0], y) + correlate(xp, x, tangents[1])

    return convolve


def powers(way: str) -> Op:
    """The sums of x^1 ... x^count, made in each of the ways that external code comes in."""

    def exponents(count):
        return np.arange(1, count + 1)[:, None]

    def sums(x, *, count=3):
        return (x[..., None, :] ** exponents(count)).sum(-1)

    def slopes(x, *, count=3):
        return exponents(count) * x[..., None, :] ** (exponents(count) - 1)

    if way == "from_numpy":
        return from_numpy(
            sums,
            signature="(n)->(count)",
            vjp=lambda ct, x, *, count: (ct[..., None] * slopes(x, count=count)).sum(-2),
            jvp=lambda t, x, *, count: (slopes(x, count=count) * t[0][..., None, :]).sum(-1),
        )
    if way == "from_jacobian":
        return from_jacobian(sums, slopes, signature="(n)->(count)")
    if way == "jac=True":
        return from_jacobian(_both(sums, slopes), True, signature="(n)->(count)", name="sums")
    return finite_difference(sums, signature="(n)->(count)")


def _both(sums, slopes):
    return lambda x, *, count=3: (sums(x, count=count), slopes(x, count=count))


def repeated() -> Op:
    """A linear function from NumPy code: x, `times` times in a row."""

    def repeat(x, *, times=2):
        return np.tile(x, times)

    def adjoint(y, *, times):
        return y.reshape(*y.shape[:-1], times, -1).sum(-2)

    return from_linear(repeat, adjoint, signature="(n)->(times*n)")


def _plain_nufft(lib, c, x, n_modes=6):
    k = lib.arange(n_modes, dtype=x.dtype) - n_modes // 2
    return (lib.exp(-1j * k[:, None] * x) * c).sum(-1)


def _plain_convolve(lib, x, y):
    size = len(x) + len(y) - 1
    return lib.fft.irfft(lib.fft.rfft(x, size) * lib.fft.rfft(y, size), size)


def _plain_powers(lib, x, count=3):
    return lib.stack([(x**k).sum() for k in range(1, count + 1)])


@dataclass(frozen=True)
class Sized:
    """An op, the same function in a framework's own calls, and the sizes of its arguments.

    `order`: how many derivatives it has; `static`: values of its static parameter that is a size.
    """

    make: Any
    plain: Any
    sizes: tuple[int, ...]
    order: int = 9
    static: tuple[dict[str, int], ...] = ({},)

    def inputs(self, batch: tuple[int, ...] = ()) -> list[np.ndarray]:
        rng = np.random.default_rng(3)
        return [rng.normal(size=(*batch, size)) for size in self.sizes]


_MODES = ({}, {"n_modes": 1}, {"n_modes": 9})
_COUNTS = ({}, {"count": 5})

OPS = {
    "nufft": Sized(nufft, _plain_nufft, (4, 4), 9, _MODES),
    "nufft on the host": Sized(lambda: nufft(True), _plain_nufft, (4, 4), 1, _MODES),
    "rfft": Sized(rfft, lambda lib, x: lib.fft.rfft(x), (7,)),
    "rfft on the host": Sized(lambda: rfft(True), lambda lib, x: lib.fft.rfft(x), (6,)),
    "convolve": Sized(convolve, _plain_convolve, (4, 3)),
    "convolve on the host": Sized(lambda: convolve(True), _plain_convolve, (3, 4)),
    "from_numpy": Sized(lambda: powers("from_numpy"), _plain_powers, (4,), 1, _COUNTS),
    "from_jacobian": Sized(lambda: powers("from_jacobian"), _plain_powers, (4,), 1, _COUNTS),
    "jac=True": Sized(lambda: powers("jac=True"), _plain_powers, (4,), 1, _COUNTS),
    "differences": Sized(lambda: powers("differences"), _plain_powers, (4,), 1, _COUNTS),
    "from_linear": Sized(
        repeated,
        lambda lib, x, times=2: lib.concatenate([x] * times),
        (3,),
        9,
        ({}, {"times": 3}),
    ),
}
