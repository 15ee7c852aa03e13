"""Exported programs of torch and the transforms of torch.func: inside of one, and around one."""

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from tests import sample_ops
from tests.torch.test_names_torch import Layer, X, export, python
from twingrad.interop.torch import bind

MAKERS = [lambda: sample_ops.cube(100.0), sample_ops.host_sin]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "mapped",
    [
        lambda f: vmap(f),
        lambda f: lambda x: vmap(vmap(f))(x[:, None] * x),
        lambda f: lambda x: vmap(f, 1)(x[:, None] * x),
        lambda f: lambda x: jvp(f, (x,), (x,))[1],
    ],
)
def test_a_program_may_have_a_vmap_or_jvp_in_it(make, mapped, strict):
    """The rule holds in the gradient of the program."""
    f = bind(make())
    program = torch.export.export(Layer(mapped(f)), (X,), strict=strict).module()
    torch.testing.assert_close(program(X), mapped(f)(X))
    (x,) = leaves = [X.clone().requires_grad_()]
    found = torch.autograd.grad(program(x).sum(), leaves)
    torch.testing.assert_close(found, torch.autograd.grad(mapped(f)(x).sum(), leaves))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "derived",
    [
        lambda f: grad(lambda x: f(x).sum()),
        lambda f: lambda x: jvp(f, (x,), (x,))[1],
        lambda f: jacfwd(f),
        lambda f: jacrev(f),
        lambda f: hessian(lambda x: f(x).sum()),
        lambda f: lambda x: vmap(f)(torch.stack([x, 2 * x])),
    ],
)
def test_a_program_can_be_transformed(make, derived):
    f = bind(make())
    torch.testing.assert_close(derived(export(f).module())(X), derived(f)(X))


REFUSED = """
from tests.torch.test_export_torch import MAKERS, bind, export, grad, jacfwd, jvp, vmap
from twingrad.interop import ExportError
def pushed(f):
    return lambda x: jvp(grad(lambda x: f(x).sum()), (x,), (x,))[1]
for derived in (lambda f: vmap(grad(f)), lambda f: jacfwd(f), pushed):
    for make in MAKERS:
        try:
            export(derived(bind(make())))
        except ExportError as error:
            assert "apply these to program.module()" in str(error)
        else:
            raise AssertionError
"""


@pytest.mark.slow
def test_a_derivative_in_a_program_says_how_to_take_it():
    """In a process of its own, as torch leaves its levels open where an export raises."""
    python(REFUSED)
