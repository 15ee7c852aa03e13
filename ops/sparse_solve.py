"""The solution of a sparse linear system as a host op: SciPy's SuperLU with its adjoint.

A matrix is factorised once.  The factors serve A x = b and A^T x = b, so that the value, the
gradient and every higher derivative share them, through a cache of the latest matrices.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.linalg import splu

from twingrad.interop import ArgumentError, Cache, OutOfRangeError, SingularError, define
from twingrad.interop.op.statics.constants import content

FACTORS = Cache(128)  # of matrices; a batch with more of them is factorised again in its gradient


@define("(z),(z),(z),(n)->(n)", host=True)
def sparse_solve(
    xp: Any,
    values: np.ndarray,
    rows: np.ndarray,
    cols: np.ndarray,
    b: np.ndarray,
    *,
    transpose: bool = False,
) -> Any:
    """x = A^-1 b for a sparse matrix A, or x = A^-T b.

    A is (n, n): the sum of values[k] at (rows[k], cols[k]), k = 1 .. z.  It needs no symmetry.
    Computed by SuperLU on the host in float64, or complex128: one factorisation for each
    matrix of a batch, however many right-hand sides, gradients and orders follow.
    Differentiable in `values` and `b` to every order.

    Args:
        values: entries of A, shape (z), real or complex.
        rows: their rows, shape (z), integers from 0 to n - 1.
        cols: their columns, shape (z), likewise.  Entries at the same place add up.
        b: right-hand side, shape (n).
        transpose: static; solve A^T x = b (the plain transpose, also for complex A).

    Returns:
        The solution, shape (n).  NaN where A or b is not finite.  It solves a system whose
        entries differ from these by 1e-14 of themselves at the most, so its relative error is
        up to 1e-14 times the condition number of A, mostly 1e-16 times; the gradient's likewise.

    Raises:
        SingularError: A is singular; one that is so only up to rounding gives large numbers.
            Or no factorisation of it was accurate enough.
        OutOfRangeError: an index is not in 0 .. n - 1.
        ArgumentError: the indices are not integers.

    Reference: M. B. Giles (2008), "An extended collection of matrix derivative results for
    forward and reverse mode algorithmic differentiation", Oxford report NA-08/01, section
    2.3.1, with our x, b and lambda for his C, B and B-bar.
    """
    n = b.shape[-1]
    _check_indices(n, rows=rows, cols=cols)
    (size,) = np.broadcast_shapes(*[array.shape[:1] for array in (values, rows, cols, b)])
    x = np.empty((size, n), np.result_type(values, b, np.float64))
    if not x.size:
        return x
    matrices = values.astype(np.result_type(values, np.float64)), rows, cols
    b = np.broadcast_to(b, (size, n))
    for which in _alike(matrices, size):
        one = [array[which[0] % len(array)] for array in matrices]
        try:
            x[which] = _solve(one, b[which], "T" if transpose else "N")
        except RuntimeError as error:
            if "singular" not in str(error):
                raise
            raise SingularError(
                f"{sparse_solve.label}: the matrix of sample {which[0]} is singular"
            ) from error
    return x


def _alike(matrices: tuple[np.ndarray, ...], size: int) -> Iterable[Any]:
    """The samples of a batch, grouped by equal matrices."""
    if all(len(array) == 1 for array in matrices):
        return [range(size)]
    groups: dict[Any, list[int]] = {}
    for i in range(size):
        key = tuple(content(array[i % len(array)]) for array in matrices)
        groups.setdefault(key, []).append(i)
    return groups.values()


def _solve(matrix: list[np.ndarray], b: np.ndarray, trans: str) -> Any:
    """The solutions for many right-hand sides, shape (count, n), with one matrix."""
    values = matrix[0]
    if not np.isfinite(values).all():
        return np.nan
    factors = FACTORS.get(_Factors, *matrix, b.shape[1])
    if np.iscomplexobj(b) and not np.iscomplexobj(values):
        both = factors.solve(np.concatenate([np.real(b), np.imag(b)]).T.astype(float), trans).T
        return both[: len(b)] + 1j * both[len(b) :]
    return factors.solve(b.T.astype(values.dtype), trans).T


class _Factors:
    """A matrix and its factors.

    Elimination can lose all digits of a well-conditioned system, if its intermediate numbers
    grow.  The residual shows it; then the solution is refined (Skeel 1980: a step or two
    suffice), and where that fails A^T is factorised in place of A, which grows elsewhere.
    """

    def __init__(self, values: np.ndarray, rows: np.ndarray, cols: np.ndarray, n: int) -> None:
        self.exponent = _exponent(values)
        values = _scaled(values, -self.exponent)
        self.matrix = coo_array((values, (rows, cols)), shape=(n, n)).tocsc()
        self.sizes = abs(self.matrix)
        self.factors = splu(self.matrix)

    @functools.cached_property
    def of_transpose(self) -> Any:
        return splu(self.matrix.T.tocsc())

    def solve(self, b: np.ndarray, trans: str) -> Any:
        """In units in which the largest numbers are near 1: subnormal ones have few digits."""
        exponent = _exponent(b)
        x = self._solve(_scaled(b, -exponent), trans)
        return _scaled(x, exponent - self.exponent)

    def _solve(self, b: np.ndarray, trans: str) -> Any:
        x, exact = self._refined(self.factors, trans, b, trans)
        if not exact:
            x, exact = self._refined(self.of_transpose, "N" if trans == "T" else "T", b, trans)
        if not exact:
            raise RuntimeError("singular, or too near to it for its factors")
        return x

    def _refined(self, factors: Any, how: str, b: np.ndarray, trans: str) -> tuple[Any, bool]:
        plain = trans == "N"
        matrix, sizes = (self.matrix, self.sizes) if plain else (self.matrix.T, self.sizes.T)
        x = factors.solve(b, how)
        with np.errstate(all="ignore"):
            for _ in range(4):
                residual = b - matrix @ x
                off = np.abs(residual) > 1e-14 * (sizes @ np.abs(x) + np.abs(b))
                if not off.any():  # nor where anything is NaN
                    return x, True
                x = x + factors.solve(residual, how)
        return x, False


def _exponent(x: np.ndarray) -> Any:
    """e with the largest entry of each column near 2^e."""
    sizes = np.maximum(np.abs(np.real(x)), np.abs(np.imag(x)))
    return np.frexp(np.max(sizes, axis=0, initial=0.0))[1]


def _scaled(x: np.ndarray, exponent: Any) -> Any:
    """x 2^e, which is exact."""
    with np.errstate(all="ignore"):
        if np.iscomplexobj(x):
            return np.ldexp(np.real(x), exponent) + 1j * np.ldexp(np.imag(x), exponent)
        return np.ldexp(x, exponent)


def _check_indices(n: int, **indices: np.ndarray) -> None:
    for name, index in indices.items():
        if index.dtype.kind not in "iu":
            raise ArgumentError(
                f"{sparse_solve.label}: {name} has dtype {index.dtype}; expected integers"
            )
        if index.size and not 0 <= index.min() <= index.max() < n:
            sample, place = np.argwhere((index < 0) | (index >= n))[0]
            raise OutOfRangeError(
                f"{sparse_solve.label}: {name}[{place}] is {index[sample, place]} in sample "
                f"{sample}; expected 0 to {n - 1}"
            )


# From A x = b: A x' = b' - A' x.  For a cotangent g of x, with lambda = A^-T g,
#   g . x' = lambda . b' - lambda . A' x,
# so that b_bar = lambda and A_bar = -lambda x^T (Giles, 2.3.1), of which the op has the
# entries at (rows, cols).  With A^T in place of A, A_bar is -x lambda^T.
@sparse_solve.def_vjp(host=False)
def _(
    xp: Any, ct: Any, out: Any, values: Any, rows: Any, cols: Any, b: Any, *, transpose: bool
) -> Any:
    b_bar = sparse_solve(xp, values, rows, cols, ct, transpose=not transpose)
    left, right = (out, b_bar) if transpose else (b_bar, out)
    return -_take(xp, left, rows) * _take(xp, right, cols), None, None, b_bar


def _take(xp: Any, x: Any, index: Any) -> Any:
    """x at the indices, in the integer type that the framework indexes with."""
    integers = xp.__array_namespace_info__().default_dtypes()["indexing"]
    return xp.take_along_axis(x, xp.astype(index, integers), axis=-1)
