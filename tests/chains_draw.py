"""Drawing chains of transforms with hypothesis: every case that is drawn can be compared.

Links are drawn one after the other among those that can follow, so that nothing is rejected
afterwards.  What a framework refuses for its own operations stands in its `fits`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from zlib import crc32

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.chains import DIRECTED, LAYOUTS, ORDER, Case, Link, check, title
from tests.chains_ops import HEAVY, LIGHT, SMALL

SIZES = (2, 1, 0, 5)
MOST_ENTRIES = 2000  # of argument and result: Jacobians of Jacobians grow fast
COMMON = ("vmap", "grad", "jvp", "vjp", "jacrev", "jacfwd", "vmap")


@dataclass(frozen=True)
class Grammar:
    """What can be drawn: for the links how often, and `fits(case, link)` whether one may follow."""

    kinds: tuple[str, ...] = COMMON
    fits: Callable[[Case, Link], bool] = field(default=lambda case, link: True)
    rows: tuple = (*SMALL, *SMALL, *LIGHT)
    heavy: tuple = tuple(HEAVY)
    depth: int = 4
    order: int = 3  # at most, and 2 for the heavy ones
    last: tuple[Link, ...] = ()  # appended to every chain

    def allows(self, case, link):
        most = 2 if case.row in HEAVY else min(self.order, case.row.order + 1)
        if case.order + (link.kind in ORDER) > most or not self.fits(case, link):
            return False
        return all(math.prod(shape) <= MOST_ENTRIES for shape in case.shapes_after(link))


EXAMPLES = settings(deadline=None, suppress_health_check=list(HealthCheck))
layouts = st.sampled_from(LAYOUTS)
GENERAL = {"solve_sylvester": "expanded"}  # equal rows: a matrix without a solution


@st.composite
def cases(draw, grammar):
    """A case, by construction one that the framework can do with its own operations."""
    seldom = grammar.heavy and draw(st.integers(0, 31)) == 31
    row = draw(st.sampled_from(grammar.heavy if seldom else grammar.rows))
    inputs = range(len(row.boxes))
    own = layouts.filter(lambda layout: layout != GENERAL.get(row.name))
    ranks = [draw(st.integers(0, 3)) for _ in inputs]
    batch = [draw(st.sampled_from(SIZES)) for _ in range(max(ranks))]
    ones = [rank > 0 and draw(st.booleans()) for rank in ranks]
    case = Case(
        row,
        argument=draw(st.sampled_from(inputs)),
        output=draw(st.integers(0, row.op.visible - 1)),
        batches=tuple(
            tuple(1 if one else n for n in batch[len(batch) - rank :])
            for rank, one in zip(ranks, ones, strict=True)
        ),
        dtype=draw(st.sampled_from(("float64", "float32"))),
        layouts=(draw(own), draw(own) if len(inputs) > 1 else "contiguous"),
        together=len(inputs) > 1 and draw(st.booleans()),
    )
    lengths = [*range(1, grammar.depth + 1), *range(2, grammar.depth + 1)]
    for _ in range(draw(st.sampled_from(lengths))):
        possible = {kind for kind in {*grammar.kinds} if _links(grammar, case, kind)}
        kinds = [kind for kind in grammar.kinds if kind in possible]
        if not kinds:
            break
        link = _draw_link(draw, grammar, case, draw(st.sampled_from(kinds)))
        case = replace(case, links=(*case.links, link))
    return replace(case, links=(*case.links, *grammar.last))


def _links(grammar, case, kind):
    """The links of one kind that may follow, their axes and directions left open."""
    sizes = SIZES if kind == "vmap" else (0,)
    found = (Link(kind, size=size) for size in sizes)
    return [link for link in found if grammar.allows(case, link)]


def _draw_link(draw, grammar, case, kind):
    link = draw(st.sampled_from(_links(grammar, case, kind)))
    if kind == "vmap":
        into, out = (draw(st.integers(-len(s) - 1, len(s))) for s in case.shapes)
        return replace(link, into=into, out=out)
    if kind in DIRECTED:
        return replace(link, layout=draw(layouts), moving=draw(st.booleans()))
    return link


def each(light, heavy):
    """pytest parameters (row, count): every row, with so many chains if it is cheap or heavy."""
    rows = [(row, light) for row in (*SMALL, *LIGHT)] + [(row, heavy) for row in HEAVY]
    return [pytest.param(row, count, id=f"{title(row.op)}, {count}") for row, count in rows]


def many(side, grammar, count, row=None, fixed=True, phases=tuple(Phase)):
    """Check so many chains, of one row or of all; the same ones each time where `fixed`."""
    if row is not None:
        grammar = replace(grammar, rows=(row,), heavy=())

    @given(cases(grammar))
    def run(case):
        check(side, case)

    if fixed:  # other chains for each row
        run = seed(crc32(title(row.op).encode() if row else b""))(run)
    options = {"database": None} if fixed else {}
    settings(EXAMPLES, max_examples=count, phases=phases, **options)(run)()


def find_fault(side, grammar, count, row):
    """As `many`, for a faulty row: the first chain that shows it raises, not the shortest."""
    many(side, grammar, count, row, phases=[Phase.generate])
