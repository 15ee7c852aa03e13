"""Elimination whose numbers grow: the sparse solution has the digits of its condition number."""

import numpy as np
import pytest

from twingrad import ops
from twingrad.interop.numpy import bind


def wilkinson(n):
    """Of condition n/2, and elimination multiplies its last column by 2^(n - 1)."""
    matrix = np.eye(n) - np.tril(np.ones((n, n)), -1)
    matrix[:, -1] = 1
    return matrix


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("n", [20, 40, 60, 100, 200])
def test_growth_in_the_elimination_costs_no_digits(n, transpose):
    """With all entries listed, zeros too: no order of the columns avoids it."""
    matrix, x = wilkinson(n), np.random.default_rng(0).uniform(-1, 1, n)
    rows, cols = np.indices((n, n)).reshape(2, -1)
    b = (matrix.T if transpose else matrix) @ x
    found = bind(ops.sparse_solve)(matrix.ravel(), rows, cols, b, transpose=transpose)
    np.testing.assert_allclose(found, x, atol=1e-14 * n, rtol=0)
    many = bind(ops.sparse_solve)(matrix.ravel(), rows, cols, np.stack([b, 1j * b]))
    if not transpose:
        np.testing.assert_allclose(many, [x, 1j * x], atol=1e-14 * n, rtol=0)


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("b_unit", [5e-324, 1e-310, 1e-200, 1.0, 1e200, 1e300])
@pytest.mark.parametrize("unit", [1e-310, 1e-200, 1.0, 1e200, 1e300])
def test_numbers_of_any_size(unit, b_unit, complex_):
    """In any units of the matrix and of the right side, subnormal ones too."""
    rng = np.random.default_rng(0)
    rows, cols = np.indices((4, 4)).reshape(2, -1)
    matrix, b = 4 * np.eye(4) + rng.uniform(-1, 1, (4, 4)), rng.uniform(1, 2, 4)
    matrix, b = (matrix * (1 + 1j), b * (1 - 2j)) if complex_ else (matrix, b)
    matrix, b = matrix * unit, b * b_unit
    exact = np.linalg.solve(matrix / unit, b / b_unit)
    with np.errstate(all="ignore"):
        want = exact * 2.0 ** np.log2(b_unit / unit)
        found = bind(ops.sparse_solve)(matrix.ravel(), rows, cols, b)
    sure = np.isfinite(want) & (np.abs(want) > 1e-300)
    np.testing.assert_allclose(found[sure], want[sure], rtol=1e-11)
