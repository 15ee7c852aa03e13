"""Chains of transforms: the op's result against the same chain over an autodiff reference.

A chain is a list of links, from the inside out.  A link turns a function of one array into
another one: a batch, a gradient, a Jacobian, a directional derivative, a compilation.
`chains_draw` draws them at random; the shapes of argument and result follow from the links.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest

from tests.closeness import assert_close
from tests.op_row import Row
from twingrad.interop import MissingRuleError

FORWARD = ("jvp", "jacfwd", "linearize")
REVERSE = ("grad", "vjp", "jacrev")
ORDER = (*FORWARD, *REVERSE, "backward")  # links that differentiate once
DIRECTED = ("jvp", "linearize", "grad", "vjp", "backward")  # they take a tangent or cotangent
JACOBIAN = ("jacrev", "jacfwd")
LAYOUTS = ("contiguous", "transposed", "expanded", "sliced")
TOLERANCE = {"float64": 1e-9, "float32": 2e-3}


@dataclass(frozen=True)
class Link:
    """One transform.

    A direction (or cotangent) is a fixed wave in some layout; where it is `moving` that is
    multiplied by the argument (the result), so that it is batched and differentiated, too.
    """

    kind: str
    layout: str = "contiguous"
    moving: bool = False
    size: int = 0  # of a vmap, and its axes
    into: int = 0
    out: int = 0

    def __str__(self):
        if self.kind == "vmap":
            return f"vmap(size {self.size}, in_dims={self.into}, out_dims={self.out})"
        if self.kind in DIRECTED:
            return f"{self.kind}({self.layout}{' moving' if self.moving else ''})"
        return self.kind


@dataclass(frozen=True, repr=False)
class Case:
    """One example: an op, its inputs and where they lie in memory, and the chain.

    The chain moves the input number `argument`, whose layout is the first one; where they go
    `together`, a number that depends on it is added to every other input.
    """

    row: Row
    argument: int
    output: int
    batches: tuple[tuple[int, ...], ...]
    dtype: str
    layouts: tuple[str, str]
    together: bool
    links: tuple[Link, ...] = ()

    def __str__(self):
        op, named = self.row.op, zip(self.row.names, self.input_shapes, strict=True)
        shapes = [f"{name} {shape}" for name, shape in named]
        shapes[self.argument] += f" moves, {self.layouts[0]}"
        rest = f"others {self.layouts[1]}{' and move along' if self.together else ''}; "
        return (
            f"<{title(op)}, {self.dtype}: {', '.join(shapes)}; "
            f"{rest if len(shapes) > 1 else ''}"
            f"{f'output {self.output}; ' if op.visible > 1 else ''}"
            f"from the inside: {' | '.join(map(str, self.links)) or 'the value'}>"
        )

    __repr__ = __str__

    def _repr_pretty_(self, printer, cycle):  # what hypothesis prints
        printer.text(str(self))

    @cached_property
    def inputs(self):
        return self.row.inputs(list(self.batches), seed=1, dtype=self.dtype)

    @cached_property
    def input_shapes(self):
        return tuple((*b, *core) for b, core in zip(self.batches, self.row.cores, strict=True))

    @cached_property
    def plan(self):
        op, fixed, moving = self.row.op, self.row.fixed, iter(self.input_shapes)
        shapes = (fixed[name].shape if name in fixed else next(moving) for name in op.names)
        sizes = {name: op.statics[name] for name in op.sizes}
        return op.signature.at(sizes).plan(tuple(shapes))

    @cached_property
    def shapes(self):
        """The shapes of the argument and of the result of the whole chain."""
        if not self.links:
            return self.input_shapes[self.argument], self.plan.outputs[self.output]
        return replace(self, links=self.links[:-1]).shapes_after(self.links[-1])

    def shapes_after(self, link):
        """Those of the chain with one more link."""
        x, y = self.shapes
        if link.kind == "vmap":
            return insert(x, link.into, link.size), insert(y, link.out, link.size)
        if link.kind in JACOBIAN:
            return x, y + x
        return x, x if link.kind in ("grad", "vjp", "backward") else y

    @property
    def moving(self):
        """The argument of the whole chain, in the row's box."""
        shape = self.input_shapes[self.argument]
        box = [np.broadcast_to(edge, shape) for edge in self.row.boxes[self.argument]]
        for link in self.links:
            if link.kind == "vmap":
                box = [np.expand_dims(edge, link.into) for edge in box]
        return np.random.default_rng(2).uniform(*box, self.shapes[0])

    @property
    def kinds(self):
        return tuple(link.kind for link in self.links)

    @property
    def order(self):
        """How often the chain differentiates."""
        return sum(kind in ORDER for kind in self.kinds)

    @property
    def known(self):
        """Whether the op's rules give this derivative; if not it must raise."""
        backwards = all(kind not in FORWARD for kind in self.kinds)
        return self.order <= self.row.order and (
            backwards or not getattr(self.row, "reverse_only", False)
        )


def title(op):
    """The op's name, and the rule that it has if there is but one."""
    return op.name if op.vjp and op.jvp else f"{op.name} with a {'vjp' if op.vjp else 'jvp'}"


def insert(shape, axis, size):
    """The shape with one more axis, as vmap's in_dims and out_dims count them."""
    axis %= len(shape) + 1
    return (*shape[:axis], size, *shape[axis:])


def check(side, case):
    """The chain is right; or it differentiates a host op beyond its rules, and that raises."""
    arrays = [np.asarray(x, case.dtype) for x in (case.moving, *case.inputs)]
    if not case.known:
        with pytest.raises(MissingRuleError):
            evaluate(side, [(side.function(case.row.op), case.dtype)], case, arrays)
        return
    functions = [(side.function(case.row.op), case.dtype), (side.reference(case.row), "float64")]
    got, want = evaluate(side, functions, case, arrays)
    assert str(got.dtype) == case.dtype, f"{case}: dtype {got.dtype}"
    assert got.shape == case.shapes[1], f"{case}: shape {got.shape}, expected {case.shapes[1]}"
    assert_close(got, want, str(case), rtol=TOLERANCE[case.dtype], floor=1.0)


def evaluate(side, functions, case, arrays):
    """The chain over each function, in the dtype that stands with it."""

    def run(*given):
        step, found = len(arrays), []
        for i, (function, _) in enumerate(functions):
            moving, *fixed = given[i * step : (i + 1) * step]
            fixed = [side.lay_out(x, case.layouts[1]) for x in fixed]
            chain = _base(side, case, function, fixed)
            for number, link in enumerate(case.links):
                if i == 0 or link.kind != "compiled":  # the reference is right without
                    chain = _apply(side, link, chain, number)
            found.append(chain(side.lay_out(moving, case.layouts[0])))
        return found

    given = [side.array(x.astype(dtype)) for _, dtype in functions for x in arrays]
    return [side.plain(y) for y in side.once(run)(*given)]


def _base(side, case, function, fixed):
    def base(x):
        args = [y + side.nudge(x) for y in fixed] if case.together else list(fixed)
        args[case.argument] = x
        y = function(*args)
        return y[case.output] if isinstance(y, tuple) else y

    return base


def _apply(side, link, f, number):
    def direction(x):
        wave = side.wave(x, number)
        return side.lay_out(wave * x if link.moving else wave, link.layout)

    def total(x):
        y = f(x)
        # a plain sum has a cotangent of ones, which torch expands from a single number
        return side.total(y if link.layout == "expanded" else y * direction(y))

    if link.kind == "vmap":
        return side.vmap_whole(f, link.into, link.out)
    if link.kind in ("grad", "backward"):
        return getattr(side, link.kind)(total)
    if link.kind == "jvp":
        return lambda x: side.jvp(f, (x,), (direction(x),))[1]
    if link.kind == "linearize":
        return lambda x: side.linearize(f, x)[1](direction(x))
    if link.kind == "vjp":
        return lambda x: _pull(side.vjp(f, x), direction)
    return getattr(side, link.kind)(f)


def _pull(found, direction):
    y, pull = found
    return pull(direction(y))[0]
