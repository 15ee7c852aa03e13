"""The JAX `Subject`: a bound op, or any function of arrays, such as a custom_vjp."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twingrad.interop.check.arrays import moves
from twingrad.interop.check.subjects.subject import Arrays, Unsupported, as_tuple, scaled
from twingrad.interop.errors import MissingRuleError
from twingrad.interop.jax.binder import bind
from twingrad.interop.op.definition import Op

# What JAX says where a function has no rule for what was asked.
_NO = (
    "forward-mode autodiff (jvp) to a custom_vjp",
    "Batching rule",
    "batching rule",
    "not implemented",
    "Differentiation rule",
    "does not support",
    "do not support",
    "Transpose rule",
    "transpose rule",
)


def make(target: Any, static: dict[str, Any]) -> JaxSubject:
    return JaxSubject(target, static)


class JaxSubject:
    name = "JAX"

    def __init__(self, target: Any, static: dict[str, Any], jit: bool = True) -> None:
        self.target, self.static = target, static
        function = bind(target) if isinstance(target, Op) else target
        self.call: Callable[..., Arrays] = lambda *x: as_tuple(function(*x, **static))
        self._jit: Any = jax.jit if jit else None
        self._made: dict[Any, Any] = {}

    def eager(self) -> JaxSubject:
        """The same without jit: every call runs the function's own Python code."""
        return JaxSubject(self.target, self.static, jit=False)

    def _run(self, key: Any, f: Callable[..., Any], *args: Any) -> Any:
        """f in float64, compiled once for each key and set of shapes."""

        def run() -> Any:
            if key not in self._made:
                self._made[key] = self._jit(f, compiler_options=_quick()) if self._jit else f
            found = self._made[key](*jax.tree.map(jnp.asarray, args))
            return jax.tree.map(np.asarray, found)

        with jax.enable_x64(True):
            return _explained(run)

    def value(self, *inputs: Any) -> Arrays:
        return tuple(self._run("value", lambda *x: self.call(*x), *inputs))

    def vjp(self, ct: Arrays, *inputs: Any) -> Arrays:
        which = _moving(inputs)
        key = "vjp", tuple(which)
        found = iter(self._run(key, functools.partial(self._pull, which), ct, *inputs))
        return tuple(next(found) if i in which else None for i in range(len(inputs)))

    def _pull(self, which: list[int], ct: Any, *x: Any) -> Any:
        outs, pull = jax.vjp(_of(self.call, x, which), *[x[i] for i in which])
        return pull(tuple(_cotangent(c, y) for c, y in zip(ct, outs, strict=True)))

    def jvp(self, tangents: Arrays, *inputs: Any) -> Arrays:
        which = _moving(inputs)

        def push(t: Any, *x: Any) -> Any:
            f = _of(self.call, x, which)
            return jax.jvp(f, tuple(x[i] for i in which), tuple(t[i] for i in which))[1]

        found = self._run(("jvp", tuple(which)), push, tangents, *inputs)
        return tuple(_plain(y) for y in found)

    def second(self, nesting: str, ct: Arrays, v: Arrays, w: Arrays, *inputs: Any) -> Arrays:
        which = _moving(inputs)

        def run(c: Any, along: Any, other: Any, *x: Any) -> Any:
            f, at = _of(self.call, x, which), tuple(x[i] for i in which)
            v, w = (tuple(d[i] for i in which) for d in (along, other))

            def pull(*a: Any) -> Any:
                return jax.vjp(f, *a)[1](c)

            def push(*a: Any) -> Any:
                return jax.jvp(f, a, w if nesting == "fwd over fwd" else v)[1]

            if nesting == "fwd over rev":
                return jax.jvp(pull, at, v)[1]
            if nesting == "fwd over fwd":
                return jax.jvp(push, at, v)[1]
            if nesting == "rev over fwd":
                return jax.vjp(push, *at)[1](c)
            return jax.vjp(pull, *at)[1](v)

        return tuple(self._run((nesting, tuple(which)), run, ct, v, w, *inputs))

    def mapped(self, ct: Arrays, *inputs: Any) -> tuple[Arrays, Arrays]:
        which = _moving(inputs)

        def run(ct: Any, *x: Any) -> Any:
            pull = functools.partial(self._pull, which)
            return jax.vmap(self.call)(*x), jax.vmap(pull)(ct, *x)

        values, found = self._run(("mapped", tuple(which)), run, ct, *inputs)
        gradients = iter(found)
        return tuple(values), tuple(
            next(gradients) if i in which else None for i in range(len(inputs))
        )

    def compiled(self, ct: Arrays, *inputs: Any) -> Arrays:
        return JaxSubject(self.target, self.static, jit=True).vjp(ct, *inputs)

    def marked(self, factor: float) -> JaxSubject | None:
        target = self.target
        if isinstance(target, Op):
            return JaxSubject(scaled(target, factor), self.static)
        if isinstance(target, jax.custom_vjp) and target.bwd is not None:
            bwd = target.bwd
            copy: Any = jax.custom_vjp(target.fun, nondiff_argnums=target.nondiff_argnums)
            copy.defvjp(target.fwd, lambda *a: jax.tree.map(lambda g: factor * g, bwd(*a)))
            return JaxSubject(copy, self.static)
        return None

    def raw(self, ct: Arrays, *inputs: Any) -> list[tuple[tuple[int, ...], str] | None]:
        found = self.vjp(ct, *inputs)
        return [None if g is None else (g.shape, g.dtype.name) for g in found]


@functools.cache
def _quick() -> dict[str, Any] | None:
    """Compiling takes a quarter of the time without optimisation."""
    quick = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=quick)(0.0)
    except Exception:  # another version of XLA may not know these names
        return None
    return quick


def _moving(inputs: Arrays) -> list[int]:
    return [i for i, x in enumerate(inputs) if moves(x)]


def _cotangent(c: Any, y: Any) -> Any:
    if jnp.issubdtype(y.dtype, jnp.inexact):
        return c.astype(y.dtype)
    return np.zeros(y.shape, jax.dtypes.float0)


def _plain(y: Any) -> Any:
    y = np.asarray(y)
    return np.zeros(y.shape) if y.dtype == jax.dtypes.float0 else y


def _of(call: Any, x: Any, which: list[int]) -> Any:
    def f(*moving: Any) -> Any:
        given = list(x)
        for i, a in zip(which, moving, strict=True):
            given[i] = a
        return call(*given)

    return f


def _explained(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except (MissingRuleError, NotImplementedError) as error:
        raise Unsupported(str(error)) from error
    except (TypeError, ValueError) as error:
        if any(text in str(error) for text in _NO):
            raise Unsupported(str(error)) from error
        raise
