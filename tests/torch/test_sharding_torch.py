"""torch ops in two processes: DistributedDataParallel, and DTensors sharded over the batch.

Two gloo processes run every row once and write what they found; the tests compare it with
the derivatives of the whole batch.  An op has no code of its own for this.
"""

import contextlib
import pickle
import socket

import numpy as np
import pytest
import torch
import torch.distributed
import torch.multiprocessing

from tests import side_torch
from tests.closeness import assert_close
from tests.op_table import ROWS
from tests.properties import Setting
from tests.suite import each_row, line

PROCESSES, BATCH = 2, 5  # 5 samples: the parts are unequal


class Shifted(torch.nn.Module):
    """An op of data plus a replicated parameter for each argument, 0 at first."""

    def __init__(self, row):
        super().__init__()
        self.f = side_torch.function(row.op)
        zeros = (side_torch.array(np.zeros_like(x)) for x in row.inputs())
        self.shifts = torch.nn.ParameterList(map(torch.nn.Parameter, zeros))

    def forward(self, *x):
        return self.f(*[v + shift for v, shift in zip(x, self.shifts, strict=True)])


def data_parallel(row, rank):
    """The gradients of the parameters: DDP's mean over processes, times their number."""
    setting, model = Setting(side_torch, row, (BATCH,)), Shifted(row)
    mine = [x.chunk(PROCESSES)[rank] for x in (setting.ct, *setting.x)]
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    side_torch.inner(mine[0], parallel(*mine[1:])).backward()
    return [PROCESSES * shift.grad.numpy() for shift in model.shifts]


def sharded(row, mesh):
    """Value and gradients for DTensors; every other argument is replicated."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import implicit_replication

    batches = [(BATCH,) if i % 2 == 0 else () for i in range(len(row.boxes))]
    setting, f = Setting(side_torch, row, batches), side_torch.function(row.op)

    def spread(x, batch=(BATCH,)):
        return distribute_tensor(x, mesh, [Shard(0) if batch else Replicate()])

    leaves = [spread(x, b).requires_grad_() for x, b in zip(setting.x, batches, strict=True)]
    with implicit_replication():  # of what a row holds fixed
        out = f(*leaves)
        assert out.placements == (Shard(0),)
        out.backward(spread(setting.ct))
    found = [x.grad.full_tensor().numpy() for x in leaves]
    return out.full_tensor().detach().numpy(), found


def second_order(row, place, held):
    """The derivative of sum(gradient * tangent), for the arguments that `place` makes."""
    batches = [(BATCH,) if i % 2 == 0 else () for i in range(len(row.boxes))]
    setting, f = Setting(side_torch, row, batches), side_torch.function(row.op)
    leaves = [place(x, b).requires_grad_() for x, b in zip(setting.x, batches, strict=True)]
    with held:
        first = torch.autograd.grad(
            f(*leaves), leaves, place(setting.ct, (BATCH,)), create_graph=True
        )
        tangents = (place(t, b) for t, b in zip(setting.t, batches, strict=True))
        # of a complex number its real part, which torch cannot take of a DTensor without axes
        terms = [(t.conj() * g).sum() for t, g in zip(tangents, first, strict=True)]
        terms = [term for term in terms if term.requires_grad]
        if not terms:  # the gradient of a linear function
            return [torch.zeros_like(x) for x in leaves]
        seeds = list(map(torch.ones_like, terms))
        return torch.autograd.grad(terms, leaves, seeds, materialize_grads=True)


def sharded_again(row, mesh):
    """The second derivative for DTensors."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import implicit_replication

    def place(x, batch):
        return distribute_tensor(x, mesh, [Shard(0) if batch else Replicate()])

    found = second_order(row, place, implicit_replication())
    return [g.full_tensor().detach().numpy() for g in found]


def work(rank, port, path):
    torch.set_num_threads(1)
    address = f"tcp://localhost:{port}"
    torch.distributed.init_process_group("gloo", address, rank=rank, world_size=PROCESSES)
    from torch.distributed.tensor import DeviceMesh

    mesh = DeviceMesh("cpu", range(PROCESSES))
    found = {
        row.name: (data_parallel(row, rank), sharded(row, mesh), sharded_again(row, mesh))
        for row in ROWS
    }
    if rank == 0:
        with open(path, "wb") as file:
            pickle.dump(found, file)
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("sharding") / "found"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(work, (port, str(path)), PROCESSES)
    with open(path, "rb") as file:
        return pickle.load(file)


@line("data parallel")
@each_row
def test_ddp_gives_the_gradient_of_the_whole_batch(row, results):
    setting = Setting(side_torch, row, (BATCH,))
    want = [g.sum(0) for g in setting.expected.pull(setting.raw_ct)]
    for g, w in zip(results[row.name][0], want, strict=True):
        assert_close(g, w, "gradient")


@line("sharded batch")
@each_row
def test_dtensors_give_what_whole_tensors_give(row, results):
    batches = [(BATCH,) if i % 2 == 0 else () for i in range(len(row.boxes))]
    setting = Setting(side_torch, row, batches)
    value, found = results[row.name][1]
    assert_close(value, setting.expected.value(), "value")
    for g, w in zip(found, setting.expected.pull(setting.raw_ct), strict=True):
        assert_close(np.asarray(g), w, "gradient")


@line("modes inside shard_map")
@each_row
def test_second_derivatives_of_dtensors_are_those_of_whole_tensors(row, results):
    want = second_order(row, lambda x, batch: x, contextlib.nullcontext())
    for g, w in zip(results[row.name][2], want, strict=True):
        assert_close(np.asarray(g), w, "second derivative", rtol=1e-9)
