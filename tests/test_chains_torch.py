"""Random chains of torch transforms give what they give for an autodiff reference."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests import chains

pytest.importorskip("torch")
from tests import side_torch  # noqa: E402

EXAMPLES = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@EXAMPLES
@given(chains.cases())
def test_chains(case):
    chains.check_or_explain(side_torch, case)


@pytest.mark.slow
@settings(EXAMPLES, max_examples=2_000, derandomize=False)
@given(chains.cases())
def test_many_chains(case):
    chains.check_or_explain(side_torch, case)
