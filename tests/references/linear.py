"""Linear equations K x = c as references: where in K each parameter stands.

K is the sum of p_k E_k, where E_k is 1 at the positions of the parameter p_k and 0 elsewhere.
`truth` solves them in mpmath, `textbook` by a framework's own dense solver.
"""

# Unsymmetric also in where the entries are: (0, 2) and (2, 3) are there, (2, 0) and (3, 2) not.
# (1, 0) is there twice.
ROWS = (0, 1, 2, 3, 0, 1, 1, 2)
COLS = (0, 1, 2, 3, 2, 0, 0, 3)
# the diagonal outweighs the rest of its row
SPARSE_BOX = ((3.0,) * 4 + (-1.0,) * 4, (4.0,) * 4 + (1.0,) * 4)

SPARSE = [[(i, j)] for i, j in zip(ROWS, COLS, strict=True)]


def sylvester(m, n):
    """Of A X + X B = C, for the entries of A and then of B, with X and C read row by row."""
    of_a = [[(n * i + j, n * k + j) for j in range(n)] for i in range(m) for k in range(m)]
    of_b = [[(n * i + j, n * i + k) for i in range(m)] for k in range(n) for j in range(n)]
    return of_a + of_b
