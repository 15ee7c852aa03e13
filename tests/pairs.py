"""Complex arrays as pairs of real ones, for what frameworks do with real numbers only.

Jacobians and Hessians: a complex array becomes a real one with one more axis of size 2.
`lib` is a framework's `LIB`, or `NUMPY`.
"""

from types import SimpleNamespace

import numpy as np

NUMPY = SimpleNamespace(
    stack=np.stack,
    real=np.real,
    imag=np.imag,
    conj=np.conj,
    is_complex=np.iscomplexobj,
    complex=lambda re, im: re + 1j * im,
)


def split(lib, x):
    """A complex array in pairs; a real one as it is."""
    return lib.stack([lib.real(x), lib.imag(x)], -1) if lib.is_complex(x) else x


def whole(lib, x, paired=True):
    """The array that was split, if it was."""
    return lib.complex(x[..., 0], x[..., 1]) if paired else x


class Split:
    """A function and its arguments with everything complex in pairs; `paired` says which."""

    def __init__(self, lib, f, x):
        self.lib, self.f, self.paired = lib, f, [lib.is_complex(v) for v in x]
        self.x = tuple(split(lib, v) for v in x)

    def __call__(self, *parts):
        given = zip(parts, self.paired, strict=True)
        return split(self.lib, self.f(*[whole(self.lib, *pair) for pair in given]))


def flat(row, x):
    """NumPy arguments of a row in one real vector."""
    return np.concatenate([split(NUMPY, v).ravel() for v in x])


def arguments(row, lib, vector):
    """The arguments that are in a vector."""
    found, start = [], 0
    for core, paired in zip(row.cores, row.complex_inputs, strict=True):
        shape = (*core, 2) if paired else core
        part = vector[start : start + int(np.prod(shape))]
        start += len(part)
        found.append(whole(lib, part.reshape(shape), paired))
    return found
