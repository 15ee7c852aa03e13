"""Constants in programs: compiled, exported, sharded, on other devices; compiled once."""

import gc
import importlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests import constant_ops
from tests.constant_ops import GRID, OTHER, formula
from tests.op.test_result_dtypes import as_numpy, bound, each_side, side_of

X = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]])
BY_X = 2 * OTHER * X
each_host = pytest.mark.parametrize("host", [False, True])


def agree(got, want, rtol=1e-12):
    np.testing.assert_allclose(as_numpy(got), want, rtol=rtol)


def exchanged(host=False):
    return formula(host).with_constants(grid=OTHER)


def compiles(backend):
    """A compiler of torch that counts, and the count."""
    torch = pytest.importorskip("torch")
    torch.compiler.reset()
    count = importlib.import_module("torch._dynamo.testing").CompileCounterWithBackend(backend)
    return count, lambda f: torch.compile(f, fullgraph=True, backend=count)


@pytest.mark.slow
@pytest.mark.compile
@each_host
def test_inductor(host):
    torch = pytest.importorskip("torch")
    f = bound("torch", exchanged(host))
    run = torch.compile(f, fullgraph=True)
    x = torch.tensor(X, requires_grad=True)
    y = run(x)
    agree(y.detach(), (OTHER * X * X).sum(-1))
    agree(torch.autograd.grad(y.sum(), x)[0], BY_X)


@each_host
def test_torch_compiles_an_equal_grid_once(host):
    torch, op = pytest.importorskip("torch"), formula(host)
    count, compiled = compiles("aot_eager")
    runs = {}
    for _ in range(3):
        f = bound("torch", op.with_constants(grid=OTHER.copy()))
        run = runs.setdefault(f, compiled(f))
        agree(run(torch.tensor(X)), (OTHER * X * X).sum(-1))
    assert len(runs) == 1 and count.frame_count == 1
    other = compiled(bound("torch", op))  # and another content is another function
    agree(other(torch.tensor(X)), (GRID * X * X).sum(-1))


@each_host
def test_jax_compiles_an_equal_grid_once(host):
    jax = pytest.importorskip("jax")
    op, traced = formula(host), []

    @jax.jit
    def run(x):
        traced.append(x)
        return bound("jax", op.with_constants(grid=OTHER.copy()))(x)

    for _ in range(3):
        agree(run(X), (OTHER * X * X).sum(-1))
        agree(jax.jit(bound("jax", op.with_constants(grid=OTHER.copy())))(X), run(X))
    assert len(traced) == 1
    f = jax.grad(lambda x: bound("jax", op.with_constants(grid=OTHER.copy()))(x))
    f(X[0])
    with importlib.import_module("jax._src.test_util").count_jit_and_pmap_lowerings() as count:
        agree(f(X[0]), BY_X[0])
    assert count() == 0


@each_host
def test_exported_by_torch(host):
    torch = pytest.importorskip("torch")
    op = exchanged(host)
    f = bound("torch", op)

    class Program(torch.nn.Module):
        def forward(self, x):
            return f(x)

    program = torch.export.export(Program(), (torch.tensor(X),)).module()
    x = torch.tensor(X, requires_grad=True)
    y = program(x)
    agree(y.detach(), (OTHER * X * X).sum(-1))
    agree(torch.autograd.grad(y.sum(), x)[0], BY_X)


@pytest.mark.slow
def test_exported_for_another_process(tmp_path):
    torch = pytest.importorskip("torch")
    named = constant_ops.energy_of_module
    for op, fails in ((named, ""), (named.with_constants(grid=OTHER), "made in another process")):

        class Program(torch.nn.Module):
            f = staticmethod(bound("torch", op))

            def forward(self, x):
                return self.f(x)

        torch.export.save(torch.export.export(Program(), (torch.tensor(X),)), tmp_path / "p.pt2")
        code = (
            "import torch, twingrad.interop.torch\n"
            f"p = torch.export.load({str(tmp_path / 'p.pt2')!r}).module()\n"
            f"print(p(torch.tensor({X.tolist()}, dtype=torch.float64)).tolist())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        if fails:
            assert "ArgumentError" in done.stderr and fails in done.stderr, done.stderr
        else:
            assert eval(done.stdout) == (GRID * X * X).sum(-1).tolist(), done.stderr


def test_exported_by_jax():
    jax = pytest.importorskip("jax")
    f = bound("jax", exchanged())
    sent = jax.export.export(jax.jit(jax.grad(lambda x: f(x).sum())))(X).serialize()
    agree(jax.export.deserialize(sent).call(X), BY_X)
    for_gpu = jax.export.export(jax.jit(f), platforms=["cuda"])(X)
    assert for_gpu.platforms == ("cuda",)


@each_host
def test_on_the_meta_device(host):
    torch = pytest.importorskip("torch")
    x = torch.zeros((2, 3), device="meta", requires_grad=True)
    y = bound("torch", exchanged(host))(x)
    (g,) = torch.autograd.grad(y.sum(), x)
    assert y.device.type == g.device.type == "meta" and g.shape == (2, 3)


def test_fake_tensors_of_a_device_that_is_not_here():
    torch = pytest.importorskip("torch")
    from torch._subclasses import FakeTensorMode

    if torch.cuda.is_available():
        pytest.skip("it is here")
    with FakeTensorMode():
        x = torch.empty((2, 3), device="cuda")
        y = bound("torch", exchanged())(x)
    assert y.device.type == "cuda" and y.shape == (2,)
    agree(bound("torch", exchanged())(torch.tensor(X)), (OTHER * X * X).sum(-1))


@each_host
def test_sharded_in_jax(host):
    jax = pytest.importorskip("jax")
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    f = bound("jax", exchanged(host))
    mesh, rows = Mesh(np.array(jax.devices()[:2]), "d"), PartitionSpec("d")
    total = jax.grad(lambda x: f(x).sum())
    agree(jax.jit(jax.shard_map(total, mesh=mesh, in_specs=rows, out_specs=rows))(X), BY_X)
    agree(jax.jit(total)(jax.device_put(X, NamedSharding(mesh, rows))), BY_X)


@each_host
def test_dtensors(host):
    torch = pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("fake", rank=0, world_size=1, store=dist.HashStore())
    try:
        mesh = init_device_mesh("cpu", (1,))
        x = distribute_tensor(torch.tensor(X), mesh, [Shard(0)]).requires_grad_()
        y = bound("torch", exchanged(host))(x)
        agree(y.full_tensor().detach(), (OTHER * X * X).sum(-1))
        (g,) = torch.autograd.grad(y.sum(), x)
        agree(g.full_tensor(), BY_X)
    finally:
        dist.destroy_process_group()


@each_side
def test_scan_and_checkpoint(framework):
    side, f = side_of(framework), bound(framework, exchanged())
    if framework == "torch":
        from torch.utils.checkpoint import checkpoint

        x = side.array(X).requires_grad_()
        checkpoint(f, x, use_reentrant=False).sum().backward()
        agree(x.grad, BY_X)
        return
    import jax

    def total(x):
        return jax.lax.scan(lambda c, row: (c + jax.checkpoint(f)(row), None), 0.0, x)[0]

    agree(jax.jit(jax.grad(total))(X), BY_X)


@each_side
def test_threads_get_one_op(framework):
    op, found, side = formula(), [], side_of(framework)

    def use():
        made = op.with_constants(grid=OTHER.copy())
        found.append(made)
        agree(bound(framework, made)(side.array(X)), (OTHER * X * X).sum(-1))

    threads = [threading.Thread(target=use) for _ in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert len(found) == 8 and len(set(map(id, found))) == 1


@each_side
def test_grids_that_are_new_in_each_call_are_let_go(framework):
    """Nothing is compiled for them in eager code, and nothing stays."""
    op, side = formula(), side_of(framework)
    grad, alive = side.grad(lambda x, f: f(x)) if framework == "torch" else None, []
    for i in range(60):
        f = bound(framework, op.with_constants(grid=GRID + i + 0.25))
        x = side.array(X[0])
        side.grad(f)(x) if grad is None else grad(x, f)
        alive.append(f.op.constants["grid"].key)
    del f
    gc.collect()
    from twingrad.interop.op.statics.constants import _KNOWN

    assert sum(key in _KNOWN for key in alive) <= 12
