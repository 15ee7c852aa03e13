"""Random chains of JAX transforms give what they give for an autodiff reference."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests import sample_ops
from tests.chains_draw import each, find_fault, many
from tests.chains_ops import SMALL

pytest.importorskip("jax")
from tests import side_jax  # noqa: E402
from tests.chains_jax import EAGER, GRAMMAR  # noqa: E402

one_by_one = SimpleNamespace(**{**vars(side_jax), "once": lambda f: f})


@pytest.mark.parametrize("row, count", each(light=6, heavy=2))
def test_chains(row, count):
    many(side_jax, GRAMMAR, count, row)


def test_eager_chains():
    many(one_by_one, EAGER, 5)


@pytest.mark.slow
@pytest.mark.parametrize("row, count", each(light=640, heavy=120))
def test_many_chains(row, count):
    many(side_jax, GRAMMAR, count, row, fixed=False)


@pytest.mark.slow
def test_many_eager_chains():
    many(one_by_one, EAGER, 150, fixed=False)


@pytest.mark.parametrize("rules", ["vjp", "jvp"])
def test_chains_find_a_rule_that_is_one_per_cent_wrong(rules):
    row = replace(SMALL[0], op=sample_ops.cube(1.01, rules))
    with pytest.raises(AssertionError, match=f"cube with a {rules}"):
        find_fault(side_jax, GRAMMAR, 9, row)
