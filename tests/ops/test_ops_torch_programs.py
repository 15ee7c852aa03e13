"""Every op inside torch programs: checkpoints, exports, other processes; and memory."""

import gc
import io
import multiprocessing
import weakref
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch
import torch.utils.checkpoint

from tests import side_torch
from tests.closeness import assert_close
from tests.copies import scaled
from tests.properties import Setting
from tests.suite import each_row, line

FACTOR = 100.0


class Layer(torch.nn.Module):
    """An op with a weight in front of its first argument, as in a model."""

    def __init__(self, op):
        super().__init__()
        self.f, self.weight = side_torch.function(op), torch.nn.Parameter(torch.ones(()).double())

    def forward(self, *x):
        return self.f(self.weight * x[0], *x[1:])


def gradients(f, setting):
    leaves = [x.detach().clone().requires_grad_() for x in setting.x]
    out = f(*leaves)
    out.backward(setting.ct)
    return out, [x.grad for x in leaves]


def check(f, setting, scale=1.0):
    out, found = gradients(f, setting)
    assert_close(out, setting.expected.value(), "value")
    for g, want in zip(found, setting.expected.pull(setting.raw_ct), strict=True):
        assert_close(g, scale * want, "gradient")


@pytest.mark.parametrize("reentrant", [True, False])
@line("checkpointing and loops")
@each_row
def test_checkpointing_gives_the_same_gradient(row, reentrant):
    f = side_torch.function(row.op)

    def checkpointed(*x):
        return torch.utils.checkpoint.checkpoint(f, *x, use_reentrant=reentrant)

    check(checkpointed, Setting(side_torch, row, (2,)))


def exported(op, x):
    """The program for any batch size."""
    size = torch.export.Dim("batch", min=2)
    dynamic = (tuple({0: size} for _ in x),)
    return torch.export.export(Layer(op), x, dynamic_shapes=dynamic, strict=False)


@pytest.mark.compile
@line("exported")
@each_row
def test_an_exported_program_takes_any_batch(row):
    program = exported(row.op, Setting(side_torch, row, (3,)).x)
    for size in (3, 5):
        setting = Setting(side_torch, row, (size,))
        assert_close(program.module()(*setting.x), setting.expected.value(), f"batch {size}")
    flat = program.run_decompositions()
    assert not any("twingrad.op" in str(node.target) for node in flat.graph.nodes)
    assert_close(flat.module()(*setting.x), setting.expected.value(), "run_decompositions")


@pytest.mark.compile
@line("exported gradient")
@each_row
def test_the_gradient_of_an_exported_program_is_that_of_the_rule(row):
    setting, file = Setting(side_torch, row, (2,)), io.BytesIO()
    op = scaled(row.op, FACTOR)  # in a variable, as a program does not keep its op
    program = exported(op, setting.x)
    check(program.module(), setting, FACTOR)
    torch.export.save(program, file)
    file.seek(0)
    check(torch.export.load(file).module(), setting, FACTOR)


def elsewhere(op, raw, raw_ct):
    """Runs in another process, which got the op pickled."""
    leaves = [torch.from_numpy(x).requires_grad_() for x in raw]
    out = side_torch.function(op)(*leaves)
    out.backward(torch.from_numpy(raw_ct))
    return [x.grad.numpy() for x in leaves]


@pytest.fixture(scope="session")
def other_process():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@line("other processes")
@each_row
def test_a_pickled_op_works_in_another_process(row, other_process):
    setting = Setting(side_torch, row, (2,))
    found = other_process.submit(elsewhere, row.op, setting.raw, setting.raw_ct).result(120)
    for g, want in zip(found, setting.expected.pull(setting.raw_ct), strict=True):
        assert_close(g, want, "gradient")


@pytest.mark.parametrize("order", [1, 2])
@line("memory")
@each_row
def test_memory_is_freed_when_the_graph_is_dropped(row, order):
    """No cycle keeps it: the garbage collector is off."""
    f = side_torch.function(row.op)
    gc.disable()
    try:
        leaves = [x.requires_grad_() for x in Setting(side_torch, row, (2,)).x]
        inner = [x * 1 for x in leaves]
        out = f(*inner)
        ct = torch.ones_like(out)
        found = torch.autograd.grad(out, inner, ct, create_graph=order == 2)
        kept = [weakref.ref(x) for x in (*inner, out, *found)]
        del inner, out, found
        assert [x for x in kept if x() is not None] == []
    finally:
        gc.enable()


@line("memory")
@each_row
def test_double_backward_can_be_repeated(row):
    setting = Setting(side_torch, row, (2,))
    leaves = [x.requires_grad_() for x in setting.x]
    found = []
    for _ in range(2):
        out = side_torch.function(row.op)(*leaves)
        first = torch.autograd.grad(out, leaves, setting.ct, create_graph=True)
        total = sum(side_torch.inner(t, g) for t, g in zip(setting.t, first, strict=True))
        for _ in range(2 if total.requires_grad else 0):  # not the gradient of a linear function
            found.append(torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True))
    want = setting.expected.pull_second(setting.raw_ct, setting.raw_t)
    for second in found:
        for g, w in zip(second, want, strict=True):
            assert_close(np.zeros_like(w) if g is None else g, w, "second derivative")
