"""The solution of Sylvester's equation as a host op: LAPACK's algorithm with its adjoint.

The Schur forms of A and B serve the equation and its transpose, so that the value, the
gradient and every higher derivative share them, through a cache of the latest matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs, schur

from twingrad.interop import Cache, SingularError, define

DENSE = 1024  # unknowns m n that are solved for as one dense system where LAPACK gives up
FORMS = Cache(256)  # of matrices; a batch with more of them is taken apart again in its gradient


@define("(m,m),(n,n),(m,n)->(m,n)", host=True)
def solve_sylvester(
    xp: Any, A: np.ndarray, B: np.ndarray, C: np.ndarray, *, transpose: bool = False
) -> Any:
    """X with A X + X B = C, or with A^T X + X B^T = C.

    Computed by LAPACK on the host in float64, or complex128, as scipy.linalg.solve_sylvester
    does it (Bartels and Stewart); A and B are brought to Schur form once, however many right
    sides, gradients and orders follow.  Differentiable to every order.

    Args:
        A: matrix, shape (m, m), real or complex.
        B: matrix, shape (n, n).
        C: right-hand side, shape (m, n).
        transpose: static; solve the transposed equation (plain transposes, also of complex
            matrices).

    Returns:
        The solution, shape (m, n).  NaN where an argument is not finite.

    Raises:
        SingularError: A and -B have an eigenvalue in common, or two that are equal up to
            rounding; there is no solution, or more than one.  Rounding is that of each entry
            of A and B, so that rows of any size may stand together; above 1024 unknowns m n it
            is that of the largest entry.

    Reference: R. H. Bartels and G. W. Stewart (1972), "Solution of the matrix equation
    AX + XB = C", Communications of the ACM 15, 820-826.  The gradient: T.-C. Kao and
    G. Hennequin (2020), "Automatic differentiation of Sylvester, Lyapunov, and algebraic
    Riccati equations", arXiv:2011.11430, the part on Sylvester's equation.
    """
    (size,) = np.broadcast_shapes(A.shape[:1], B.shape[:1], C.shape[:1])
    dtype = np.result_type(A, B, C, np.float64)
    A, B, C = (array.astype(dtype) for array in (A, B, C))
    X = np.empty((size, *C.shape[1:]), dtype)
    for i in range(size if X.size else 0):
        X[i], singular = _solve(A[i % len(A)], B[i % len(B)], C[i % len(C)], transpose)
        if singular:
            raise SingularError(
                f"{solve_sylvester.label}: A and -B of sample {i} have an eigenvalue in common, "
                "up to rounding"
            )
    return X


# With A = U R U^H and B = V S V^H the equation is R Y + Y S = U^H C V for Y = U^H X V.  The
# transposed one is, conjugated, A^H Z + Z B^H = conj(C) for Z = conj(X): R^H and S^H for R
# and S.  LAPACK solves for scale times the right side, and info is 1 where it had to perturb:
# where a sum of eigenvalues is below its rounding of the largest one, or below 1e-292, hence
# the unit 2^e.
def _solve(A: np.ndarray, B: np.ndarray, C: np.ndarray, transpose: bool) -> tuple[Any, bool]:
    if not all(np.isfinite(array).all() for array in (A, B, C)):
        return np.nan, False
    (R, U), (S, V) = FORMS.get(_schur, A), FORMS.get(_schur, B)
    e = np.frexp(max(np.abs(R).max(), np.abs(S).max()))[1]
    R, S = _times_power(R, -e), _times_power(S, -e)
    (trsyl,) = get_lapack_funcs(("trsyl",), (R, S, C))
    right = U.conj().T @ (C.conj() if transpose else C) @ V
    how = "C" if transpose else "N"
    Y, scale, info = trsyl(R, S, right, trana=how, tranb=how)
    if info == 1:
        A, B = _times_power(A, -e), _times_power(B, -e)
        X, singular = _solve_dense(*((A.T, B.T) if transpose else (A, B)), C)
        return _times_power(X, -e), singular
    X = _times_power(U @ (Y / scale) @ V.conj().T, -e)
    return X.conj() if transpose else X, False


def _times_power(x: Any, e: int) -> Any:
    """x 2^e, where 2^e itself may overflow."""
    return x * 2.0 ** (e // 2) * 2.0 ** (e - e // 2)


# Row by row, the equation is P x = c with P = A (x) 1 + 1 (x) B^T.  Scaled by powers of 2 so that
# all its rows and columns are of one size, it is singular up to the rounding of its entries if
# | |P^-1| |P| | eps is near 1 (Bauer's and Skeel's condition number).
def _solve_dense(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> tuple[Any, bool]:
    if C.size > DENSE:
        return np.nan, True
    P = np.kron(A, np.eye(len(B))) + np.kron(np.eye(len(A)), B.T)
    rows = _sizes(P, 1)
    P = P / rows[:, None]
    columns = _sizes(P, 0)
    P = P / columns
    try:
        inverse = np.linalg.inv(P)
    except np.linalg.LinAlgError:
        return np.nan, True
    condition = (np.abs(inverse) @ np.abs(P)).sum(1).max()
    if not condition < 1e-3 / np.finfo(float).eps:
        return np.nan, True
    c = C.ravel() / rows
    x = inverse @ c
    x = x + inverse @ (c - P @ x)
    return (x / columns).reshape(C.shape), False


def _sizes(P: np.ndarray, axis: int) -> Any:
    """Powers of 2 near the largest entries; 1 for those that are 0."""
    return np.exp2(np.frexp(np.abs(P).max(axis))[1].astype(float))


def _schur(matrix: np.ndarray) -> Any:
    return schur(matrix, output="complex" if np.iscomplexobj(matrix) else "real")


# From A X + X B = C: A X' + X' B = C' - A' X - X B', which is linear in (A', B', C').  For a
# cotangent ct of X let A^T G + G B^T = ct.  Then
#   <ct, X'> = <G, A X' + X' B> = <G, C' - A' X - X B'>,
# so that C_bar = G, A_bar = -G X^T, B_bar = -X^T G.  For the transposed equation A_bar and
# B_bar are the transposes of these: G and X change places.
@solve_sylvester.def_vjp(host=False)
def _(xp: Any, ct: Any, out: Any, A: Any, B: Any, C: Any, *, transpose: bool) -> Any:
    G = solve_sylvester(xp, A, B, ct, transpose=not transpose)
    left, right = (out, G) if transpose else (G, out)
    A_bar = -xp.matmul(left, xp.matrix_transpose(right))
    B_bar = -xp.matmul(xp.matrix_transpose(right), left)
    return A_bar, B_bar, G


@solve_sylvester.def_jvp(host=False)
def _(xp: Any, tangents: Any, out: Any, A: Any, B: Any, C: Any, *, transpose: bool) -> Any:
    A_dot, B_dot, C_dot = tangents
    if transpose:
        A_dot, B_dot = xp.matrix_transpose(A_dot), xp.matrix_transpose(B_dot)
    C_dot = C_dot - xp.matmul(A_dot, out) - xp.matmul(out, B_dot)
    return solve_sylvester(xp, A, B, C_dot, transpose=transpose)
