"""Random chains of torch transforms give what they give for an autodiff reference."""

import pytest
from hypothesis import given, settings

from tests import chains, chains_draw, sample_ops
from tests.chains_draw import EXAMPLES, cases

pytest.importorskip("torch")
from tests import chains_torch, side_torch  # noqa: E402
from twingrad.interop import torch_function  # noqa: E402


@settings(EXAMPLES, max_examples=600)
@given(cases(chains_torch.GRAMMAR))
def test_chains(case):
    chains.check(side_torch, case)


@pytest.mark.compile
@settings(EXAMPLES, max_examples=15)
@given(cases(chains_torch.COMPILED))
def test_compiled_chains(case):
    chains.check(side_torch, case)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_chains(part):
    chains_draw.many(side_torch, chains_torch.GRAMMAR, 1500)


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.parametrize("part", range(4))
def test_many_compiled_chains(part):
    chains_draw.many(side_torch, chains_torch.COMPILED, 50)


@pytest.mark.parametrize("rules", ["vjp", "jvp"])
def test_chains_find_a_rule_that_is_one_per_cent_wrong(rules):
    op = sample_ops.cube(1.01, rules)
    with pytest.raises(AssertionError, match=f"cube with a {rules}"):
        chains_draw.hunt(side_torch, chains_torch.GRAMMAR, op, 600)


def test_chains_find_a_batching_rule_that_ignores_in_dims(monkeypatch):
    lift = torch_function._lift

    def careless(signature, in_dims, inputs):
        return lift(signature, [None if d is None else 0 for d in in_dims], inputs)

    monkeypatch.setattr(torch_function, "_lift", careless)
    with pytest.raises((AssertionError, RuntimeError, ValueError, IndexError)):
        chains_draw.hunt(side_torch, chains_torch.GRAMMAR, None, 600)
