"""Linear ops from a function and its adjoint, such as a radon transform and a back projection."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from twingrad.interop.host.external import check_count, make_op
from twingrad.interop.op.definition import Op
from twingrad.interop.op.missing import unknown
from twingrad.interop.op.pickling import remembered
from twingrad.interop.op.samples.host import Host, PlainFunction
from twingrad.interop.op.signature import Signature
from twingrad.interop.op.structure.functions import Function as Flat
from twingrad.interop.op.structure.making import structured, wrapped

Function = Callable[..., Any]


class Adjoint(Flat):
    """An adjoint of structured arguments, ``adjoint(y, *parameters)``, for the arrays in them.

    The first argument, in all of whose arrays the function is linear, is what it returns.
    """

    @property
    def count(self) -> int:
        """The arrays that the function is linear in."""
        return len(self.frame[:1].leaves)

    def __call__(self, y: Any, *parameters: Any, **static: Any) -> Any:
        """The adjoint for each array."""
        found = self.function(y, *self.frame[1:].build(parameters), **static)
        return self.frame[:1].collect(found)

    @property
    def __signature__(self) -> inspect.Signature:
        return Flat(self.function, self.frame[1:], 1).__signature__


@remembered
@structured(adjoint=wrapped(Adjoint, "its adjoint", 1, 1))
def from_linear(
    A: Function,
    adjoint: Function,
    *,
    signature: str,
    dtypes: Any = None,
    constants: Any = (),
    host: Host | bool = True,
    name: str | None = None,
) -> Op:
    """An op from a linear function and its adjoint, NumPy code both.

    ``A(x, *parameters)`` is linear in x.  Both modes and every order of differentiation in x
    follow from the two functions, and JAX can transpose the op.  Parameters have no formula:
    their gradients raise.

    Args:
        A: ``A(x, *parameters)``, called as `from_numpy` calls its function.
        adjoint: ``adjoint(y, *parameters)`` = A^H y, the conjugate transpose, as SciPy's
            ``LinearOperator.rmatvec`` is; for real numbers the transpose.  The vjp rule of
            `define` and `from_numpy` is the plain transpose: A^T ct = conj(A^H conj(ct)).
        signature: gufunc notation of A, with one output, such as ``"(n,n)->(m,n)"``.
        dtypes: of the output, see `define`.
        constants: as for `from_numpy`; the adjoint may ask for them, too.
        host: see `Host`.
        name: the op's name in error messages; that of A if None.

    Raises:
        SignatureError: the notation is wrong, or a function does not take what it promises.
        ArgumentError: something that is called is no function.
    """
    op = make_op(A, Signature.parse(signature), host, name, dtypes, constants)
    count = adjoint.count if isinstance(adjoint, Adjoint) else 1
    op.declare_linear(op.names[:count])
    check_count(op, "adjoint", adjoint, 1 + len(op.names) - count)
    op.def_vjp(PlainFunction(_Plain(adjoint, count), rule=True))
    return op


@dataclass(frozen=True)
class _Plain:
    """The vjp rule of a linear function, from its adjoint."""

    adjoint: Function
    count: int

    @property
    def __wrapped__(self) -> Function:
        """What says which constants it asks for."""
        return self.adjoint

    def __call__(self, ct: Any, *inputs: Any, **static: Any) -> Any:
        """The plain transpose; there is no formula for the parameters."""
        parameters = inputs[self.count :]
        found = self.adjoint(np.conj(ct), *parameters, **static)
        several = found if isinstance(self.adjoint, Adjoint) else (found,)
        plain = (None if x is None else np.conj(x) for x in several)
        return (*plain, *(unknown,) * len(parameters))
