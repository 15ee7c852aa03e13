"""Chains of transforms, drawn at random: the op's result against an autodiff reference.

A chain is a list of links, from the inside out.  A link turns a function of one array into
another one: a batch, a gradient, a Jacobian, a directional derivative, a compilation.  The
same chain is applied to the op and to its textbook formula; failures shrink to short chains.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from tests.closeness import as_numpy, assert_close
from tests.op_table import ROWS, Row
from twingrad.interop import MissingRuleError

# links that differentiate once
ORDER = ("grad", "jacrev", "jacfwd", "jvp", "vjp", "linearize")
TOLERANCE = {"float64": 1e-9, "float32": 2e-3}
# What a framework's own operations refuse is no case: torch's vmap over a size of 0 with a
# Python scalar or an arange inside, JAX's vmap over a size of 0, jacrev of a size of 0.
MOST_ENTRIES = 4000  # of a result: Jacobians of Jacobians grow fast


@dataclass(frozen=True)
class Case:
    """One example: an op, the argument that moves, where it lies in memory, and the chain."""

    row: Row
    argument: int
    ranks: tuple[tuple[int, ...], ...]
    dtype: str
    layout: str
    links: tuple[Any, ...]


def cases(links=(), depth=4, rows=None):
    """Hypothesis strategy; `links` are the further ones of a framework, such as checkpoint."""
    sizes = st.sampled_from((0, 1, 2, 5))
    batches = st.lists(sizes, max_size=3).map(tuple)
    vmaps = st.tuples(st.just("vmap"), sizes, st.integers(-3, 3), st.integers(-3, 3))
    link = st.one_of(vmaps, st.sampled_from((*ORDER, *links)))

    @st.composite
    def draw(draw):
        row = draw(st.sampled_from(ROWS if rows is None else rows))
        batch = draw(batches)
        argument = draw(st.integers(0, len(row.boxes) - 1))
        kept = [draw(st.integers(0, len(batch))) for _ in row.boxes]
        ones = [draw(st.booleans()) for _ in row.boxes]
        ranks = tuple(
            tuple(1 if one else n for n in batch[k:]) for k, one in zip(kept, ones, strict=True)
        )
        dtype = draw(st.sampled_from(("float64", "float32")))
        layout = draw(st.sampled_from(("contiguous", "transposed", "expanded", "sliced")))
        chain = tuple(draw(st.lists(link, min_size=1, max_size=depth)))
        return Case(row, argument, ranks, dtype, layout, chain)

    return draw()


def order(case):
    """How often the chain differentiates."""
    return sum(link in ORDER for link in case.links)


def check_or_explain(side, case):
    """The chain is right; or it differentiates a host op too often, and that raises."""
    if max(map(math.prod, _result_sizes(case))) > MOST_ENTRIES or order(case) > 3:
        reject()
    if side.NAME == "torch" and "linearize" in case.links[:-1]:
        reject()  # inside another transform torch's linearize gives garbage, for its own ops too
    if order(case) <= case.row.order:
        check(side, case)
        return
    try:
        check(side, case)
    except MissingRuleError:
        pass


def _result_sizes(case):
    """The shapes of argument and result after each link, roughly: Jacobians multiply them."""
    inputs = case.row.inputs(list(case.ranks))
    shape, entries = inputs[case.argument].shape, math.prod(_result_shape(case, inputs))
    for link in case.links:
        if isinstance(link, tuple):
            shape, entries = (*shape, link[1]), entries * link[1]
        elif link in ("jacrev", "jacfwd"):
            entries *= math.prod(shape)
        elif link in ("grad", "vjp"):
            entries = math.prod(shape)
        yield (entries,)


def _result_shape(case, inputs):
    return case.row.op.signature.plan(tuple(x.shape for x in inputs)).outputs[0]


def check(side, case):
    """Apply the chain to the op and to the reference, in float64, and compare."""
    inputs = case.row.inputs(list(case.ranks), seed=1, dtype=case.dtype)
    shape, links = _outer_shape(case, inputs[case.argument].shape)
    rng = np.random.default_rng(2)
    moving = np.asarray(rng.uniform(*case.row.boxes[case.argument], shape), case.dtype)
    try:
        want = _result(side, side.reference(case.row), case, links, inputs, moving, "float64")
    except (IndexError, RuntimeError, ValueError, TypeError):
        reject()  # the framework cannot do this with its own operations
    got = _result(side, side.function(case.row.op), case, links, inputs, moving, case.dtype)
    assert side.dtype_of(got) == case.dtype
    assert_close(got, as_numpy(want), str(case), rtol=TOLERANCE[case.dtype], floor=1.0)


def _outer_shape(case, shape):
    """The shape of the outermost argument, and the links with their axes made valid."""
    links = []
    for link in case.links:
        if isinstance(link, tuple):
            _, size, into, out = link
            axis = into % (len(shape) + 1)
            shape = (*shape[:axis], size, *shape[axis:])
            link = ("vmap", size, axis if into >= 0 else axis - len(shape), out)
        links.append(link)
    return shape, links


def _result(side, function, case, links, inputs, moving, dtype):
    fixed = [side.array(x.astype(dtype)) for x in inputs]

    def chain(x):
        args = list(fixed)
        args[case.argument] = x
        return function(*args)

    for number, link in enumerate(links):
        chain = _apply(side, link, chain, number)
    return chain(side.lay_out(side.array(moving.astype(dtype)), case.layout))


def _apply(side, link, f, number):
    """One link.  Directions and cotangents are fixed waves, so that nothing cancels."""
    if isinstance(link, tuple):
        _, _, into, out = link
        return lambda x: side.vmap_like(f, into, out, x)
    if link == "grad":
        return side.grad(lambda x: side.total(f(x), number))
    if link == "jvp":
        return lambda x: side.jvp(f, (x,), (side.wave(x, number),))[1]
    if link == "linearize":
        return lambda x: side.linearize(f, x)[1](side.wave(x, number))
    if link == "vjp":
        return lambda x: _pull(side, f, x, number)
    return getattr(side, link)(f)


def _pull(side, f, x, number):
    out, pull = side.vjp(f, x)
    return pull(side.wave(out, number))[0]
