"""Every property of every op in JAX; what the properties say is in `properties`."""

import pytest

pytest.importorskip("jax")

from tests import properties_batch, side_jax  # noqa: E402
from tests.suite import PROPERTIES, cells  # noqa: E402


@pytest.mark.parametrize(("row", "name"), cells("jax", PROPERTIES))
def test_property(row, name):
    PROPERTIES[name](side_jax, row)


@pytest.mark.parametrize(("row", "name"), cells("jax", properties_batch.COMPILED, "compiled"))
def test_jitted(row, name):
    properties_batch.check_compiled(side_jax, row, name, side_jax.compiler())
