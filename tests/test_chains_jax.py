"""Random chains of JAX transforms give what they give for an autodiff reference."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings

from tests import chains, chains_draw, sample_ops
from tests.chains_draw import EXAMPLES, cases

pytest.importorskip("jax")
from tests import chains_jax, side_jax  # noqa: E402

EAGER = SimpleNamespace(**{**vars(side_jax), "once": lambda f: f})


@settings(EXAMPLES, max_examples=150)
@given(cases(chains_jax.GRAMMAR))
def test_chains(case):
    chains.check(side_jax, case)


@settings(EXAMPLES, max_examples=10)
@given(cases(chains_jax.EAGER))
def test_eager_chains(case):
    chains.check(EAGER, case)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_chains(part):
    chains_draw.many(side_jax, chains_jax.GRAMMAR, 1250)


@pytest.mark.slow
def test_many_eager_chains():
    chains_draw.many(EAGER, chains_jax.EAGER, 150)


def test_chains_find_a_rule_that_is_one_per_cent_wrong():
    op = sample_ops.cube(1.01, "vjp")
    with pytest.raises(AssertionError, match="cube with a vjp"):
        chains_draw.hunt(side_jax, chains_jax.GRAMMAR, op, 150)
