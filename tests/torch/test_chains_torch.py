"""Random chains of torch transforms give what they give for an autodiff reference."""

from dataclasses import replace

import pytest

from tests import sample_ops
from tests.chains import Case, Link, check
from tests.chains_draw import each, find_fault, many
from tests.chains_ops import SMALL

pytest.importorskip("torch")
from tests import side_torch  # noqa: E402
from tests.chains_torch import COMPILED, GRAMMAR  # noqa: E402
from twingrad.interop import ShapeError  # noqa: E402
from twingrad.interop.torch import build as torch_build  # noqa: E402


@pytest.mark.parametrize("row, count", each(light=24, heavy=8))
def test_chains(row, count):
    many(side_torch, GRAMMAR, count, row)


@pytest.mark.compile
def test_compiled_chains():
    many(side_torch, COMPILED, 12)


@pytest.mark.slow
@pytest.mark.parametrize("row, count", each(light=1250, heavy=200))
def test_many_chains(row, count):
    many(side_torch, GRAMMAR, count, row, fixed=False)


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.parametrize("part", range(4))
def test_many_compiled_chains(part):
    many(side_torch, COMPILED, 50, fixed=False)


@pytest.mark.parametrize("rules", ["vjp", "jvp"])
def test_chains_find_a_rule_that_is_one_per_cent_wrong(rules):
    row = replace(SMALL[0], op=sample_ops.cube(1.01, rules))
    with pytest.raises(AssertionError, match=f"cube with a {rules}"):
        find_fault(side_torch, GRAMMAR, 36, row)


def test_linearize_where_torch_copies_a_tangent_into_the_layout_of_its_primal():
    """That is a write, seen by the watch for writes in place; but no rule wrote."""
    row = next(row for row in SMALL if row.name == "dot")
    links = Link("vjp", layout="expanded", moving=True), Link("linearize", layout="expanded")
    shapes = (5, 2, 1), (1, 1)
    check(side_torch, Case(row, 0, 0, shapes, "float32", ("transposed", "sliced"), False, links))


def test_chains_find_a_batching_rule_that_ignores_in_dims(monkeypatch):
    lift = torch_build._lift

    def careless(signature, in_dims, *rest):
        return lift(signature, [None if d is None else 0 for d in in_dims], *rest)

    monkeypatch.setattr(torch_build, "_lift", careless)
    row = next(row for row in SMALL if row.name == "affine")
    with pytest.raises((AssertionError, ShapeError)):
        find_fault(side_torch, GRAMMAR, 36, row)
