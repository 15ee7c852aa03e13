"""Random chains of JAX transforms give what they give for an autodiff reference."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests import chains

pytest.importorskip("jax")
from tests import side_jax  # noqa: E402

EXAMPLES = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@EXAMPLES
@given(chains.cases(links=("jit", "checkpoint")))
def test_chains(case):
    chains.check_or_explain(side_jax, case)


@pytest.mark.slow
@settings(EXAMPLES, max_examples=2_000, derandomize=False)
@given(chains.cases(links=("jit", "checkpoint")))
def test_many_chains(case):
    chains.check_or_explain(side_jax, case)
