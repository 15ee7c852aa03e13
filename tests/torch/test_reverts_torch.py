"""With the fix for any one trap taken out of the torch binder, a test of the suite fails.

Each entry takes out one fix, as a naive binder would be written, and names the test that must
then fail.  That the same tests pass with the fix is shown where they stand.
"""

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed, TorchRuntimeError, Unsupported
from torch.autograd.gradcheck import GradcheckError
from torch.func import jacfwd, vjp

from tests import side_torch
from tests.op_table import ROWS
from tests.ops import test_ops_torch_programs as programs
from tests.suite import PROPERTIES
from tests.torch import test_cases_torch_host as host_cases
from tests.torch import test_contract_torch as contract
from tests.torch import test_contract_torch_life as life
from tests.torch import test_traps_torch as traps
from tests.torch import test_traps_torch_compile as two_ops
from twingrad.interop import define
from twingrad.interop.numpy import binder as ours_numpy
from twingrad.interop.op import kernel as kernels
from twingrad.interop.op.promises import promised
from twingrad.interop.op.statics import static
from twingrad.interop.torch import binder as ours
from twingrad.interop.torch import build as torch_build
from twingrad.interop.torch import function as functions
from twingrad.interop.torch.graphs import traced

second_derivative = traps.test_second_derivatives_differentiate_the_rule_in_every_nesting
host_second_derivative = host_cases.test_second_derivatives_of_a_host_op_compile
linearized = traps.test_linearize_of_a_host_op_is_right_along_other_tangents
returns_its_input = life.test_a_rule_may_read_the_input_that_its_op_returns
exported_gradient = programs.test_the_gradient_of_an_exported_program_is_that_of_the_rule
dtype_of_gradients = contract.test_gradients_have_the_dtype_of_the_input_whatever_the_rule_returns
complex_rule = contract.test_a_complex_rule_is_right_in_torch_which_conjugates
forward_mode_left_clean = traps.forward_mode_left_clean
LOG1MEXP = next(row for row in ROWS if row.name == "log1mexp")


class NoFunction:
    """In place of a Function: apply runs the code as it stands."""

    def __init__(self, function):
        self.apply = function


def traced_by_dynamo(patch):
    """T1, T4: no allow_in_graph."""
    patch.setattr(torch.compiler, "allow_in_graph", lambda f: f)


def jvp_written_out(patch):
    """T2: the jvp is computed in the Function's own jvp."""

    def tangent(kernel, fw, live, moves, fuse):
        n = len(live) + len(kernel.op.signature.outputs)

        def push(*args):
            dots = iter(args[n:])
            given = tuple(next(dots) if alive else None for alive in live)
            found = kernel.push(fw, given, args[len(live) : n], args[: len(live)])
            return found[0] if len(found) == 1 else found

        return NoFunction(push)

    patch.setattr(functions, "_tangent_function", tangent)


def intermediates_fixed(patch):
    """T3: what a rule wants again is saved as a constant."""
    pull = kernels.Kernel.pull

    def fixed(kernel, fw, cts, outs, inputs, targets):
        visible = kernel.op.visible
        kept = (*outs[:visible], *[y.detach() for y in outs[visible:]])
        return pull(kernel, fw, cts, kept, inputs, targets)

    patch.setattr(kernels.Kernel, "pull", fixed)


def numpy_in_the_function(patch):
    """T5, T6: host code is called right in the Function."""

    def call(kernel, inputs):
        arrays = tuple(x.detach().numpy() for x in inputs)
        dtypes = promised(kernel.op.dtypes, arrays)
        found = ours_numpy.call_host(kernel, arrays, kernel.plan(arrays), dtypes)
        return tuple(map(torch.from_numpy, found))

    patch.setattr(ours, "call_host", call)


def anything_goes(patch):
    """T7: no check of what the arguments are."""
    patch.setattr(ours, "_prepare", lambda op, args: (args, None, None))


def one_code_object(patch):
    """Bound functions share the code object that Dynamo keeps its results by."""
    patch.setattr(ours, "own_code", lambda function, name: None)


def outputs_as_they_come(patch):
    """Outputs may be views of inputs."""
    patch.setattr(functions, "fresh", lambda outs, _: outs[0] if len(outs) == 1 else outs)


def pull_back_of_vjp(patch):
    """A rule is transposed by torch.func.vjp, which fails inside vmap for unused inputs."""

    def pull_back(function, inputs, cts):
        outs, pull = vjp(function, *inputs)
        pairs = zip(cts, outs, strict=True)
        return pull(tuple(torch.zeros_like(y) if ct is None else ct for ct, y in pairs))

    patch.setattr(functions, "pull_back", pull_back)


def levels_as_counted(patch):
    """A dual level that Dynamo opened is not seen."""
    patch.setattr(functions, "_dual_level_is_open", lambda: False)


def exported_as_forward_code(patch):
    """An exported program holds the forward code of the op."""
    patch.setattr(traced, "is_exporting", lambda: False)


def mapped_dimension_left(patch):
    """The vmap rule takes the mapped dimension to be in front."""
    patch.setattr(torch_build, "_lift", lambda signature, in_dims, inputs, shaped: inputs)


def equal_is_the_same(patch):
    """1 and True as static parameters are one key."""
    patch.setattr(static, "typed", lambda value: value)


def gradients_as_returned(patch):
    """Gradients keep the dtype that the rule gave them."""
    patch.setattr(kernels, "cast_like", lambda fw, g, x: g)


def conjugates_forgotten(patch):
    """Cotangents and gradients go through as torch has them."""
    patch.setattr(ours._Torch, "from_framework", lambda self, ct: ct)
    patch.setattr(ours._Torch, "to_framework", lambda self, g: g)


def check_static():
    @define("()->()")
    def told(xp, x, *, p):
        return x + isinstance(p, bool)

    assert [float(ours.bind(told)(torch.ones(()), p=p)) for p in (1, True)] == [1, 2]


def vmapped(name):
    row = next(row for row in ROWS if row.name == name)
    PROPERTIES["vmap"](side_torch, row)


REVERTS = [
    (traced_by_dynamo, Unsupported, lambda: traps.check_compiled("grad", "both", "eager")),
    (traced_by_dynamo, Unsupported, lambda: traps.check_compiled("call", "both", "eager")),
    (jvp_written_out, AssertionError, lambda: second_derivative(jacfwd, jacfwd, "both")),
    (intermediates_fixed, GradcheckError, traps.test_saved_values_keep_their_second_derivative),
    (numpy_in_the_function, TorchRuntimeError, lambda: host_second_derivative("eager")),
    (numpy_in_the_function, AssertionError, lambda: linearized(False)),
    (
        anything_goes,
        AttributeError,
        traps.test_tensors_in_a_container_are_differentiated_after_unpacking,
    ),
    (
        one_code_object,
        AssertionError,
        lambda: two_ops.test_each_compiled_op_is_itself("closure", False),
    ),
    (outputs_as_they_come, RuntimeError, returns_its_input),
    (
        pull_back_of_vjp,
        RuntimeError,
        lambda: traps.test_the_pull_back_of_a_tangent_inside_vmap("both"),
    ),
    (
        levels_as_counted,
        BackendCompilerFailed,
        lambda: traps.check_compiled("fwd(fwd)", "both", "aot_eager"),
    ),
    (exported_as_forward_code, AssertionError, lambda: exported_gradient(LOG1MEXP)),
    (mapped_dimension_left, AssertionError, lambda: vmapped("truncated_mixture_weights")),
    (equal_is_the_same, AssertionError, check_static),
    (gradients_as_returned, AssertionError, lambda: dtype_of_gradients(torch.float32)),
    (conjugates_forgotten, AssertionError, lambda: complex_rule("both")),
]


@pytest.mark.compile
@pytest.mark.parametrize(("revert", "error", "check"), REVERTS)
def test_without_the_fix_a_test_fails(revert, error, check, monkeypatch):
    revert(monkeypatch)
    with pytest.raises(error):
        check()
