"""The Rosenbrock function as a host op: external NumPy code with an external adjoint.

It stands for any function that autodiff cannot see.  Three host ops: the value, its
gradient, and the product of its Hessian with a vector.  The derivative of each is the
next, so first and second derivatives are known and a third one raises.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twingrad.interop import define


@define("(n)->()", host=True)
def rosenbrock(xp: Any, x: np.ndarray, *, a: float = 1.0, b: float = 5.0) -> Any:
    """sum_i (a - x_i)^2 + b (x_{i+1} - x_i^2)^2, for i = 1 .. n-1.

    Computed by NumPy on the host, once for a whole batch; differentiable twice.

    Args:
        x: point, shape (n), n >= 2 (0 for n = 1: the sum is empty).
        a: static; for n = 2 the minimum is 0, at (a, a^2).
        b: static; the steepness of the valley.

    Returns:
        The value, shape ().

    Reference: H. H. Rosenbrock (1960), "An automatic method for finding the greatest or
    least value of a function", Computer Journal 3, 175-184, where a = 1 and b = 100.
    """
    left, right = x[..., :-1], x[..., 1:]
    return ((a - left) ** 2 + b * (right - left**2) ** 2).sum(-1)


# With d_i = x_{i+1} - x_i^2:
#   df/dx_i     = -2 (a - x_i) - 4 b x_i d_i     from the term i
#   df/dx_{i+1} = 2 b d_i
@define("(n)->(n)", host=True)
def rosenbrock_gradient(xp: Any, x: np.ndarray, *, a: float, b: float) -> Any:
    """The gradient of `rosenbrock`, shape (n)."""
    left, right = x[..., :-1], x[..., 1:]
    step = right - left**2
    gradient = np.zeros_like(x)
    gradient[..., :-1] = -2 * (a - left) - 4 * b * left * step
    gradient[..., 1:] += 2 * b * step
    return gradient


# The Hessian of the term i in (x_i, x_{i+1}):
#   [2 - 4 b (x_{i+1} - 3 x_i^2),  -4 b x_i;  -4 b x_i,  2 b]
@define("(n),(n)->(n)", host=True)
def rosenbrock_hvp(xp: Any, x: np.ndarray, v: np.ndarray, *, a: float, b: float) -> Any:
    """The Hessian of `rosenbrock` at x times the vector v, shape (n)."""
    left, right = x[..., :-1], x[..., 1:]
    v_left, v_right = v[..., :-1], v[..., 1:]
    product = np.zeros_like(x + v)
    product[..., :-1] = (2 - 4 * b * (right - 3 * left**2)) * v_left - 4 * b * left * v_right
    product[..., 1:] += -4 * b * left * v_left + 2 * b * v_right
    return product


@rosenbrock.def_vjp(host=False)
def _(xp: Any, ct: Any, out: Any, x: Any, *, a: float, b: float) -> Any:
    return ct[..., None] * rosenbrock_gradient(xp, x, a=a, b=b)


@rosenbrock.def_jvp(host=False)
def _(xp: Any, tangents: Any, out: Any, x: Any, *, a: float, b: float) -> Any:
    (x_dot,) = tangents
    return xp.sum(rosenbrock_gradient(xp, x, a=a, b=b) * x_dot, axis=-1)


# The Hessian is symmetric: its product with a cotangent is its product with a tangent.
@rosenbrock_gradient.def_vjp(host=False)
def _(xp: Any, ct: Any, out: Any, x: Any, *, a: float, b: float) -> Any:
    return rosenbrock_hvp(xp, x, ct, a=a, b=b)


@rosenbrock_gradient.def_jvp(host=False)
def _(xp: Any, tangents: Any, out: Any, x: Any, *, a: float, b: float) -> Any:
    (x_dot,) = tangents
    return rosenbrock_hvp(xp, x, x_dot, a=a, b=b)
