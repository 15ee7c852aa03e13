"""The doctor looks at rules that ask for `needs`: each gradient alone is what it is with others."""

import pytest

from tests.op.test_needs import HOSTS, S, X, energy, every_host
from tests.op.test_result_dtypes import each_side
from twingrad.interop.check import check


@every_host
def test_the_doctor_passes_a_rule_that_asks(host):
    assert check(energy(HOSTS[host], []), X, S).passed


@each_side
def test_the_doctor_finds_a_gradient_that_is_wrong_alone(framework):
    pytest.importorskip(framework)
    op = energy(False, [])

    @op.def_vjp
    def _(xp, ct, out, x, s, *, needs):
        return 2 * x * (ct * s * s)[..., None], 2 * ct * s * (x * x).sum(-1) if all(needs) else None

    (found,) = check(op, X, S, framework=framework).failures
    assert (found.pattern, found.argument) == ("not what is wanted", "s")
