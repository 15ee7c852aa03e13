"""The torch `Subject`: a bound op, an autograd.Function, or any function of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from twingrad.interop.check.subjects.subject import Arrays, Unsupported, as_tuple, scaled
from twingrad.interop.errors import MissingRuleError
from twingrad.interop.op.definition import Op
from twingrad.interop.torch.binder import bind

# What torch says where a Function has no rule for what was asked.
_NO = (
    "must override the setup_context",
    "generate_vmap_rule",
    "vmap staticmethod",
    "must implement the backward",
    "jvp",
    "forward mode AD",
    "forward-mode AD",
    "once_differentiable",
    "does not require grad",
    "nested forward mode",
    "Nested forward mode",
    "no derivative",
    "not implemented for",
    "not supported",
)


def make(target: Any, static: dict[str, Any]) -> TorchSubject:
    return TorchSubject(target, static)


def tensor(x: Any) -> torch.Tensor:
    """A tensor of the array, also where it is not writable or is bfloat16."""
    x = np.asarray(x)
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def _array(x: torch.Tensor) -> np.ndarray:
    x = x.detach().resolve_conj().resolve_neg()
    return (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).numpy()


class TorchSubject:
    name = "torch"

    def __init__(self, target: Any, static: dict[str, Any]) -> None:
        self.target, self.static = target, static
        function: Callable[..., Any]
        if isinstance(target, Op):
            function = bind(target)
        elif isinstance(target, type) and issubclass(target, torch.autograd.Function):
            function = target.apply
        else:
            function = target
        self.call: Callable[..., Arrays] = lambda *x: as_tuple(function(*x, **static))

    def value(self, *inputs: Any) -> Arrays:
        return tuple(_array(y) for y in self.call(*map(tensor, inputs)))

    def vjp(self, ct: Arrays, *inputs: Any) -> Arrays:
        return self.pull([tensor(c).conj() for c in ct], [tensor(x) for x in inputs])

    def pull(self, ct: list[torch.Tensor], x: list[torch.Tensor]) -> Arrays:
        """The gradients for cotangents in torch's own convention and any layout."""
        found = self._gradients(ct, x)
        return tuple(None if g is None else _array(g.conj()) for g in found)

    def _gradients(self, ct: list[torch.Tensor], x: list[torch.Tensor]) -> list[Any]:
        def run() -> list[Any]:
            given = [a.clone().requires_grad_() if _floating(a) else a for a in x]
            outs = self.call(*given)
            pairs = [(y, c) for y, c in zip(outs, ct, strict=True) if y.requires_grad]
            leaves = [a for a in given if a.requires_grad]
            if not pairs or not leaves:
                return [torch.zeros_like(a) if _floating(a) else None for a in given]
            found = iter(
                torch.autograd.grad(
                    [y for y, _ in pairs],
                    leaves,
                    [c.to(y.dtype) for y, c in pairs],
                    allow_unused=True,
                    materialize_grads=True,
                )
            )
            return [next(found) if a.requires_grad else None for a in given]

        found: list[Any] = _explained(run)
        return found

    def jvp(self, tangents: Arrays, *inputs: Any) -> Arrays:
        x, t = [tensor(a) for a in inputs], [tensor(a) for a in tangents]
        return tuple(_array(y) for y in _explained(lambda: self._push(x, t)))

    def _push(self, x: Any, t: Any) -> Any:
        which = [i for i, a in enumerate(x) if _floating(a)]
        f = _of(self.call, x, which)
        return torch.func.jvp(f, tuple(x[i] for i in which), tuple(t[i] for i in which))[1]

    def second(self, nesting: str, ct: Arrays, v: Arrays, w: Arrays, *inputs: Any) -> Arrays:
        x = [tensor(a) for a in inputs]
        which = [i for i, a in enumerate(x) if _floating(a)]
        f, at = _of(self.call, x, which), tuple(x[i] for i in which)
        along, other = (tuple(tensor(d[i]) for i in which) for d in (v, w))
        conj = tuple(tensor(c).conj() for c in ct)

        def pull(*a: Any) -> Any:
            return torch.func.vjp(f, *a)[1](conj)

        def push(*a: Any) -> Any:
            return torch.func.jvp(f, a, other if nesting == "fwd over fwd" else along)[1]

        def run() -> Any:
            if nesting == "fwd over rev":
                return _conj(torch.func.jvp(pull, at, along)[1])
            if nesting == "fwd over fwd":
                return torch.func.jvp(push, at, along)[1]
            if nesting == "rev over fwd":
                return _conj(torch.func.vjp(push, *at)[1](conj))
            return _conj(self._twice(x, which, conj, along))

        return tuple(_array(y) for y in _explained(run))

    def _twice(self, x: Any, which: list[int], ct: Any, v: Any) -> Any:
        """Reverse over reverse by autograd.grad, which every Function can do."""
        given = [a.clone().requires_grad_() if i in which else a for i, a in enumerate(x)]
        leaves = [given[i] for i in which]
        outs = self.call(*given)
        options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        first = torch.autograd.grad(outs, leaves, ct, create_graph=True, **options)
        used = [(g, t.conj()) for g, t in zip(first, v, strict=True) if g.requires_grad]
        if not used:
            return [torch.zeros_like(a) for a in leaves]
        return torch.autograd.grad(
            [g for g, _ in used],
            leaves,
            [t for _, t in used],
            **options,
        )

    def mapped(self, ct: Arrays, *inputs: Any) -> tuple[Arrays, Arrays]:
        x, c = [tensor(a) for a in inputs], tuple(tensor(a).conj() for a in ct)

        def run() -> Any:
            values = torch.func.vmap(self.call)(*x)
            return values, torch.func.vmap(self._functional)(c, *x)

        values, found = _explained(run)
        gradients = iter(found)
        return tuple(map(_array, values)), tuple(
            _array(next(gradients).conj()) if _floating(a) else None for a in x
        )

    def pull_in_layout(self, kind: str, ct: Arrays, *inputs: Any) -> tuple[Arrays, Arrays]:
        """The gradients for cotangents of other strides, and for contiguous copies of them."""
        given, x = strided(ct, kind), [tensor(a) for a in inputs]
        return self.pull(given, x), self.pull([c.contiguous().clone() for c in given], x)

    def changed(self, ct: Arrays, *inputs: Any) -> list[int | str]:
        """Which inputs, or the cotangent, are others after a call."""
        x, c = [tensor(a) for a in inputs], [tensor(a).conj().clone() for a in ct]
        before = [a.clone() for a in (*x, *c)]
        given = [a.detach().requires_grad_() if _floating(a) else a for a in x]
        outs = [y for y in self.call(*given) if y.requires_grad]
        if outs:
            leaves = [a for a in given if a.requires_grad]
            torch.autograd.grad(outs, leaves, c[: len(outs)], allow_unused=True)
        same = [torch.equal(a, b) for a, b in zip((*x, *c), before, strict=True)]
        found: list[int | str] = [i for i in range(len(x)) if not same[i]]
        return found if all(same[len(x) :]) else [*found, "the cotangent"]

    def _functional(self, ct: Any, *x: Any) -> Any:
        which = [i for i, a in enumerate(x) if _floating(a)]
        return torch.func.vjp(_of(self.call, x, which), *[x[i] for i in which])[1](ct)

    def compiled(self, ct: Arrays, *inputs: Any) -> Arrays:
        x, c = [tensor(a) for a in inputs], tuple(tensor(a).conj() for a in ct)
        torch.compiler.reset()
        run = torch.compile(self._functional, backend="aot_eager", fullgraph=True)
        found = iter(_explained(lambda: run(c, *x)))
        return tuple(_array(next(found).conj()) if _floating(a) else None for a in x)

    def marked(self, factor: float) -> TorchSubject | None:
        target = self.target
        if isinstance(target, Op):
            return TorchSubject(scaled(target, factor), self.static)
        if not (isinstance(target, type) and issubclass(target, torch.autograd.Function)):
            return None

        def backward(ctx: Any, *ct: Any) -> Any:
            found = as_tuple(target.backward(ctx, *ct))
            return tuple(None if g is None else factor * g for g in found)

        methods: dict[str, Any] = {"backward": staticmethod(backward)}
        return TorchSubject(type("Marked", (target,), methods), self.static)

    def raw(self, ct: Arrays, *inputs: Any) -> list[tuple[tuple[int, ...], str] | None]:
        c, x = [tensor(a) for a in ct], [tensor(a) for a in inputs]
        target = self.target
        seen: list[Any] = []
        if not (isinstance(target, type) and issubclass(target, torch.autograd.Function)):
            found = self._gradients(c, x)
            return [None if g is None else (tuple(g.shape), _dtype(g)) for g in found]

        # torch sums a gradient of a wrong shape, and casts one of a wrong dtype, in silence
        def backward(ctx: Any, *given: Any) -> Any:
            seen[:] = as_tuple(target.backward(ctx, *given))
            return tuple(seen) if len(seen) > 1 else seen[0]

        watched = type("Watched", (target,), {"backward": staticmethod(backward)})
        TorchSubject(watched, self.static)._gradients(c, x)
        seen += [None] * (len(x) - len(seen))
        return [None if g is None else (tuple(g.shape), _dtype(g)) for g in seen[: len(x)]]


def _dtype(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _floating(x: Any) -> bool:
    return bool(x.is_floating_point() or x.is_complex())


def _conj(found: Any) -> Any:
    return [g.conj() for g in found]


def _of(call: Any, x: Any, which: list[int]) -> Any:
    """The function of the floating inputs, the others held fixed."""

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
    except RuntimeError as error:
        if any(text in str(error) for text in _NO):
            raise Unsupported(str(error)) from error
        raise


def strided(ct: Arrays, kind: str) -> list[torch.Tensor]:
    """The cotangents in another layout: of stride 0 (every entry the same), or sliced."""
    found = []
    for c in map(np.asarray, ct):
        if kind == "expanded":
            found.append(torch.full((), 0.7, dtype=tensor(c).dtype).expand(c.shape))
        else:
            wide = tensor(np.stack([c, np.full_like(c, 9.0)], -1))
            found.append(wide[..., 0])
    return found
