"""Ops of the kinds that the package does not ship, for rows of the op table.

Each is at the top of this module, under its own name: so it can be pickled.
"""

import cmath
from dataclasses import dataclass
from typing import Any

import numpy as np

from twingrad.interop import define, from_linear


@define("(n),(m)->(n+m-1)")
def convolve(xp, x, y):
    """z_k = sum_i x_i y_{k-i}; its gradients are correlations, and theirs convolutions."""
    n, m = x.shape[-1], y.shape[-1]
    around = [xp.zeros_like(x[..., :1])] * (m - 1)
    longer = xp.concat([*around, x, *around], axis=-1)
    return sum(y[..., j, None] * longer[..., m - 1 - j : n + 2 * m - 2 - j] for j in range(m))


@define("(n),(m)->(n-m+1)")
def correlate(xp, x, y):
    """z_k = sum_i x_{k+i} y_i."""
    n, m = x.shape[-1], y.shape[-1]
    return sum(y[..., j, None] * x[..., j : n - m + 1 + j] for j in range(m))


@convolve.def_vjp
def _(xp, ct, out, x, y):
    return correlate(xp, ct, y), correlate(xp, ct, x)


@convolve.def_jvp
def _(xp, tangents, out, x, y):
    return convolve(xp, tangents[0], y) + convolve(xp, x, tangents[1])


@correlate.def_vjp
def _(xp, ct, out, x, y):
    return convolve(xp, ct, y), correlate(xp, x, ct)


@correlate.def_jvp
def _(xp, tangents, out, x, y):
    return correlate(xp, tangents[0], y) + correlate(xp, x, tangents[1])


@define("(n),(),()->(n)")
def transfer(xp, frequencies, pole, residue):
    """H(w) = r / (i w - p): a system with one pole, at real frequencies w."""
    return residue[..., None] / (1j * frequencies - pole[..., None])


# With d = 1/(i w - p): dH = d dr + r d^2 (dp - i dw).  The rules are plain transposes.
@transfer.def_vjp
def _(xp, ct, out, frequencies, pole, residue):
    d = 1 / (1j * frequencies - pole[..., None])
    pole_bar = ct * residue[..., None] * d * d
    return -1j * pole_bar, xp.sum(pole_bar, axis=-1), xp.sum(ct * d, axis=-1)


@transfer.def_jvp
def _(xp, tangents, out, frequencies, pole, residue):
    w_dot, p_dot, r_dot = tangents
    d = 1 / (1j * frequencies - pole[..., None])
    moved = residue[..., None] * d * (p_dot[..., None] - 1j * w_dot)
    return d * (r_dot[..., None] + moved)


@define("(n)->(n//2+1)", dtypes="complex", linear="x")
def spectrum(xp, x):
    """The first half of the Fourier transform of real numbers."""
    n = x.shape[-1]
    rows = [sum(_turn(j * k, n) * x[..., j] for j in range(n)) for k in range(n // 2 + 1)]
    return xp.stack(rows, axis=-1)


@spectrum.def_vjp
def _(xp, ct, out, x):
    n = x.shape[-1]
    rows = [sum(_turn(j * k, n) * ct[..., k] for k in range(n // 2 + 1)) for j in range(n)]
    return xp.real(xp.stack(rows, axis=-1))


def _turn(k, n):
    return cmath.exp(-2j * cmath.pi * (k % n) / n)


@define("(),(n)->(n)", dtypes="real")
def intensity(xp, gain, field):
    """I_k = g |E_k|^2, real for a complex field E."""
    return gain[..., None] * (xp.real(field) ** 2 + xp.imag(field) ** 2)


# dI = |E|^2 dg + 2 g Re(conj(E) dE), whose plain transpose is ct -> (.., 2 g ct conj(E))
@intensity.def_vjp
def _(xp, ct, out, gain, field):
    slope = 2 * gain[..., None] * xp.conj(field)
    return xp.sum(ct * (xp.real(field) ** 2 + xp.imag(field) ** 2), axis=-1), ct * slope


@intensity.def_jvp
def _(xp, tangents, out, gain, field):
    g_dot, moved = tangents
    rest = 2 * gain[..., None] * xp.real(xp.conj(field) * moved)
    return g_dot[..., None] * (xp.real(field) ** 2 + xp.imag(field) ** 2) + rest


@dataclass(frozen=True)
class Decay:
    """How fast, and from where."""

    rate: Any
    amplitude: Any


@define("{rate: (), amplitude: ()}, (n), ()? -> (n)")
def decay(xp, params, times, offset=None):
    """y_k = a exp(-r t_k), and an offset if there is one."""
    y = params.amplitude[..., None] * xp.exp(-params.rate[..., None] * times)
    return y if offset is None else y + offset[..., None]


@decay.def_vjp
def _(xp, ct, out, params, times, offset):
    fallen = ct * xp.exp(-params.rate[..., None] * times)
    slope = -params.amplitude[..., None] * fallen
    bars = Decay(rate=xp.sum(slope * times, axis=-1), amplitude=xp.sum(fallen, axis=-1))
    times_bar = slope * params.rate[..., None]
    return bars, times_bar, None if offset is None else xp.sum(ct, axis=-1)


@decay.def_jvp
def _(xp, tangents, out, params, times, offset):
    dots, times_dot, offset_dot = tangents
    fallen = xp.exp(-params.rate[..., None] * times)
    power = dots.rate[..., None] * times + params.rate[..., None] * times_dot
    y_dot = (dots.amplitude[..., None] - params.amplitude[..., None] * power) * fallen
    return y_dot if offset is None else y_dot + offset_dot[..., None]


# the ordinary op for calls with a Decay and without an offset
decay_of_object = decay.flatten((Decay(rate=1.0, amplitude=1.0), 0.0), {})[0]

GRID = (-1.0, 1 / 3, 1.25)


@define("(n),()->(3)", constants={"grid": np.array(GRID)})
def density(xp, x, width, *, grid):
    """sum_i exp(-(g - x_i)^2 / 2 w^2) at the points g of a grid."""
    u = _distances(x, width, grid)
    return xp.sum(xp.exp(-0.5 * u * u), axis=-2)


# d exp(-u^2/2) = -u exp(-u^2/2) du, and du = -(dx + u dw) / w
@density.def_vjp
def _(xp, ct, out, x, width, *, grid):
    u = _distances(x, width, grid)
    slope = ct[..., None, :] * u * xp.exp(-0.5 * u * u) / width[..., None, None]
    return xp.sum(slope, axis=-1), xp.sum(u * slope, axis=(-2, -1))


@density.def_jvp
def _(xp, tangents, out, x, width, *, grid):
    x_dot, w_dot = tangents
    u = _distances(x, width, grid)
    moved = (x_dot[..., None] + u * w_dot[..., None, None]) / width[..., None, None]
    return xp.sum(u * xp.exp(-0.5 * u * u) * moved, axis=-2)


def _distances(x, width, grid):
    return (grid - x[..., None]) / width[..., None, None]


def _running_sums(x, *, times=2):
    """The running sums of x, their running sums, and so on, one after the other."""
    found = []
    for _ in range(times):
        x = np.cumsum(x, -1)
        found.append(x)
    return np.concatenate(found, -1)


def _adjoint(y, *, times):
    """Each block summed from its end, that of the last one first: the transpose of a sum."""
    n = y.shape[-1] // times
    total = 0.0
    for block in range(times)[::-1]:
        total = total + y[..., n * block : n * (block + 1)]
        total = np.cumsum(total[..., ::-1], -1)[..., ::-1]
    return total


integrals = from_linear(_running_sums, _adjoint, signature="(n)->(times*n)", name="integrals")
