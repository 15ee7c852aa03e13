"""Steady diffusion on a square, -div(kappa grad u) = f with u = 0 around it: 10,000 unknowns.

Finite volumes on N x N cells: the flux between two cells goes through the harmonic mean of
their kappa, which is constant in each of BLOCKS x BLOCKS blocks.  The unknown parameters are
the logarithms of the blocks' kappa.  `lib` is torch, jax.numpy or numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

N, BLOCKS = 100, 4
UNKNOWNS, PARAMETERS = N * N, BLOCKS * BLOCKS
_CELLS = np.arange(UNKNOWNS).reshape(N, N)
_BLOCK = BLOCKS * (np.arange(N) * BLOCKS // N)[:, None] + np.arange(N) * BLOCKS // N
BLOCK_OF = _BLOCK.ravel()  # the block of each cell
_FIRST = np.concatenate([_CELLS[:, :-1].ravel(), _CELLS[:-1].ravel()])  # of each inner face
_SECOND = np.concatenate([_CELLS[:, 1:].ravel(), _CELLS[1:].ravel()])
_EDGE = np.concatenate([_CELLS[0], _CELLS[-1], _CELLS[:, 0], _CELLS[:, -1]])
ROWS = np.concatenate([_FIRST, _SECOND, _FIRST, _SECOND, _EDGE])
COLS = np.concatenate([_FIRST, _SECOND, _SECOND, _FIRST, _EDGE])


def entries(lib: Any, theta: Any) -> Any:
    """The entries of the matrix at (ROWS, COLS), for the logarithms of the blocks' kappa."""
    kappa = lib.exp(theta)[BLOCK_OF]
    first, second = kappa[_FIRST], kappa[_SECOND]
    flux = 2 * first * second / (first + second)
    # around the square the wall is half a cell away
    return lib.concatenate([flux, flux, -flux, -flux, 2 * kappa[_EDGE]])


def sources() -> np.ndarray:
    """Four smooth sources, times the area of a cell: shape (4, UNKNOWNS)."""
    x = (np.arange(N) + 0.5) / N
    centres = [(0.25, 0.25), (0.25, 0.75), (0.75, 0.25), (0.75, 0.75)]
    bumps = [np.exp(-50 * ((x[:, None] - a) ** 2 + (x - b) ** 2)) for a, b in centres]
    return np.reshape(bumps, (4, UNKNOWNS)) / UNKNOWNS


def sensors() -> np.ndarray:
    """The cells where u is measured: every eighth one in both directions."""
    return _CELLS[6::8, 6::8].ravel()
