"""Sizes of results in programs: exported, compiled for every size, on two devices; and `check`."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.sized_ops import OPS, convolve, nufft, rfft
from twingrad.interop import define
from twingrad.interop.check import assert_gradients

each_host = pytest.mark.parametrize("host", [False, True])


@each_host
@pytest.mark.parametrize("n_modes", [6, 3])
def test_an_exported_program_of_torch_keeps_the_size_and_the_rules(host, n_modes):
    torch = pytest.importorskip("torch")
    from twingrad.interop.torch import bind

    op = bind(nufft(host))

    class Layer(torch.nn.Module):
        def forward(self, c, x):
            return op(c, x, n_modes=n_modes).abs().square().sum()

    given = [torch.from_numpy(v) for v in OPS["nufft"].inputs()]
    program = torch.export.export(Layer(), tuple(given), strict=False).module()
    leaves = [v.clone().requires_grad_() for v in given]
    torch.testing.assert_close(program(*given), Layer()(*given))
    found = torch.autograd.grad(program(*leaves), leaves)
    torch.testing.assert_close(found, torch.autograd.grad(Layer()(*leaves), leaves))


@each_host
def test_one_graph_of_torch_serves_every_size(host):
    torch = pytest.importorskip("torch")
    from twingrad.interop.torch import bind

    graphs = []

    def count(graph, _):
        graphs.append(graph)
        return graph.forward

    conv, spectrum = bind(convolve(host)), bind(rfft(host))
    torch._dynamo.reset()
    f = torch.compile(
        lambda x, y: conv(x, y).sum() + spectrum(x).abs().sum(),
        backend=count,
        fullgraph=True,
        dynamic=True,
    )
    y = torch.arange(3.0, dtype=torch.float64)
    for n in (6, 7, 9, 6):
        x = torch.linspace(0, 2, n, dtype=torch.float64)
        expected = x.sum() * y.sum() + torch.fft.rfft(x).abs().sum()
        torch.testing.assert_close(f(x, y), expected)
    assert len(graphs) == 1


def test_a_program_of_jax_has_sizes_that_follow_from_symbols():
    jax = pytest.importorskip("jax")
    export, jnp = pytest.importorskip("jax.export"), jax.numpy
    from twingrad.interop.jax import bind

    conv, spectrum = bind(convolve()), bind(rfft())
    n, m = export.symbolic_shape("n, m")
    types = [jax.ShapeDtypeStruct((size,), jnp.float64) for size in (n, m)]

    def f(x, y):
        return conv(x, y), jnp.abs(spectrum(x))

    program = export.export(jax.jit(f))(*types)
    assert [str(aval.shape[0]) for aval in program.out_avals] == [
        "n + m - 1",
        "floordiv(n, 2) + 1",
    ]
    x, y = jnp.arange(5.0), jnp.arange(3.0)
    for found, expected in zip(program.call(x, y), f(x, y), strict=True):
        np.testing.assert_allclose(found, expected)


TWO_DEVICES = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from jax.sharding import PartitionSpec as P
from tests.sized_ops import OPS
from twingrad.interop.jax import bind
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
for name in ("nufft", "nufft on the host", "rfft on the host", "convolve"):
    op, static = bind(OPS[name].make()), OPS[name].static[-1]
    x = OPS[name].inputs((4,))
    def loss(*x):
        return jax.numpy.sum(jax.numpy.abs(op(*x, **static)) ** 2)
    def total(*x):
        return jax.lax.psum(loss(*x), "d")
    every = tuple(range(len(x)))
    mapped = jax.shard_map(total, mesh=mesh, in_specs=(P("d"),) * len(x), out_specs=P())
    found, expected = (jax.grad(f, every)(*x) for f in (mapped, loss))
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
print("right")
"""


@pytest.mark.slow
def test_on_two_devices_gradients_are_the_same():
    pytest.importorskip("jax")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        env={**os.environ, **flags},
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "right", done.stderr


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in ("nufft on the host", "rfft")))
        for name in OPS
        if name != "differences"  # which are not exact
    ],
)
def test_the_check_draws_inputs_of_such_ops_and_passes(name):
    pytest.importorskip("torch")
    case = OPS[name]
    assert_gradients(case.make(), framework="torch", static=case.static[-1], progress=False)


def test_the_check_draws_arguments_of_sizes_that_are_given():
    pytest.importorskip("torch")

    @define("(k),(n),(n+k)->(n)")
    def shifted(xp, c, x, y, *, k=2):
        return x + xp.sum(c, axis=-1, keepdims=True) + xp.sum(y, axis=-1, keepdims=True)

    @shifted.def_vjp
    def _(xp, ct, out, c, x, y, *, k):
        total = xp.sum(ct, axis=-1, keepdims=True)
        return total + 0 * c, ct, total + 0 * y

    for static in ({}, {"k": 4}):
        assert_gradients(shifted, framework="torch", static=static, progress=False)
