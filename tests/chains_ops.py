"""The ops that chains of transforms are drawn over: many small ones, a few of the real ones.

Small ops are cheap, so that many chains can be tried.  Between them they have every kind of
rule: vjp only, jvp only, both; several and hidden outputs; outputs that are views; host code
whose rules run on the host, or name other host ops.  `LIGHT` and `HEAVY` are the op table's.
"""

from dataclasses import dataclass

from tests import sample_ops
from tests.op_row import Row
from tests.op_table import ROWS
from twingrad.interop import define


@dataclass(frozen=True)
class Small(Row):
    """A row for chains alone: the textbook formula is the reference, there is no mpmath one."""

    truth: None = None
    reverse_only: bool = False  # the host op's adjoint is all there is


def _flip():
    """The matrix transpose: in torch the output is a view of the input."""

    @define("(n,k)->(k,n)")
    def flip(xp, x):
        return xp.matrix_transpose(x)

    flip.def_vjp(lambda xp, ct, out, x: xp.matrix_transpose(ct))
    return flip


def _same():
    """The forward returns its input itself, and so do both rules."""

    @define("(n)->(n)")
    def same(xp, x):
        return x

    same.def_vjp(lambda xp, ct, out, x: ct)
    same.def_jvp(lambda xp, tangents, out, x: tangents[0])
    return same


_BOX = (-1.0, 1.5)


def _softplus(lib, x):
    return lib.log(1.0 + lib.exp(x))


def _moments(lib, x):
    return lib.sum(x, -1), lib.sum(x * x, -1)


def _times(lib, a, b):
    return a * b


def _energy(lib, x, s):
    return lib.sum(x * x, -1) * s


SMALL = [
    Small(sample_ops.cube(rules="vjp"), (_BOX,), lambda lib, x: x * x * x),
    Small(sample_ops.cube(rules="jvp"), (_BOX,), lambda lib, x: x * x * x),
    Small(sample_ops.multiply("vjp"), (_BOX, _BOX), _times),
    Small(sample_ops.multiply("jvp"), (_BOX, _BOX), _times),
    Small(sample_ops.dot(), (_BOX, _BOX), lambda lib, x, y: lib.sum(x * y, -1)),
    Small(
        sample_ops.affine(),
        (_BOX, _BOX, _BOX),
        lambda lib, x, s, b: x * s[..., None] + b[..., None],
    ),
    Small(sample_ops.softplus_hidden(), (_BOX,), _softplus),
    Small(sample_ops.moments(), (_BOX,), _moments),
    Small(_flip(), (_BOX,), lambda lib, x: x.mT),
    Small(_same(), (_BOX,), lambda lib, x: 1.0 * x),
    Small(sample_ops.host_sin(), (_BOX,), lambda lib, x: lib.sin(x)),
    Small(sample_ops.host_sin(second=False), (_BOX,), lambda lib, x: lib.sin(x), order=1),
    Small(sample_ops.host_energy()[0], (_BOX, _BOX), _energy, order=1, reverse_only=True),
]
# each real one of the op table: those of few operations, and the mixtures
_REAL = [row for row in ROWS if not any((*row.complex_inputs, row.complex_result))]
LIGHT = [row for row in _REAL if len(row.boxes) <= 2]
HEAVY = [row for row in _REAL if len(row.boxes) > 2]
