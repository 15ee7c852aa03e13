"""Ops of the kinds that the package does not ship, for rows of the op table.

Each is at the top of this module, under its own name: so it can be pickled.
"""

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
