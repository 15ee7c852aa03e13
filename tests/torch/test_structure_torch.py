"""Structured arguments under torch.compile, from the first call on, and in exported programs."""

import gc
import itertools
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from tests.structured_ops import CASES, PARAMS, Plain
from tests.structured_ops import _simulator as simulator
from twingrad.interop import define
from twingrad.interop.torch import bind

pytestmark = pytest.mark.compile


def tensors(case, batch=(2,)):
    return [torch.from_numpy(v) for v in case.inputs(batch)]


def compiled(f, backend="aot_eager", **options):
    torch._dynamo.reset()
    return torch.compile(f, fullgraph=True, backend=backend, **options)


def loss(f):
    return lambda *x: (f(*x) ** 2).sum()


def _backward(f):
    def run(*x):
        leaves = [v.detach().requires_grad_() for v in x]
        return torch.autograd.grad(loss(f)(*leaves), leaves)

    return run


MODES = {
    "call": lambda f: f,
    "grad": lambda f: torch.func.grad(loss(f)),
    "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(loss(f))),
    "jacfwd": lambda f: torch.func.vmap(torch.func.jacfwd(f)),
}


QUICK = ("simulator of a dataclass", "network", "body on the host", "product")
EVERY = [
    pytest.param(*each, id="-".join(each), marks=[pytest.mark.slow] * (each[0] not in QUICK))
    for each in itertools.product(CASES, [*MODES, "backward"])
]


@pytest.mark.parametrize(("name", "mode"), EVERY)
def test_the_first_call_may_be_a_compiled_one(name, mode):
    case = CASES[name]
    x, f = tensors(case), case.of_arrays(bind(case.structured()))
    if mode == "backward":
        g = compiled(f)
        found, expected = _backward(g)(*x), _backward(f)(*x)
    else:
        run = MODES[mode](f)
        found, expected = compiled(run)(*x), run(*x)
    for y, e in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, expected)), strict=True):
        torch.testing.assert_close(y, e, rtol=1e-14, atol=1e-14)


many_graphs = torch._dynamo.config.patch(recompile_limit=64)


@many_graphs
@pytest.mark.parametrize(
    "host", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["array", "host"]
)
def test_one_compiled_function_takes_one_structure_after_the_other(host):
    case = replace(CASES["simulator of a dict"], way="host" if host else "array")
    rate, shift, t, offset = tensors(case)
    f = bind(case.structured())
    g = compiled(f)
    for _ in range(2):
        for make in PARAMS.values():
            for power in (2, 3):
                params = make(rate, shift, power)
                assert torch.equal(g(params, t), f(params, t)), (make, power)
                assert torch.equal(g(params, t, offset), f(params, t, offset))
        assert torch.equal(g(t=t, params=Plain(2.0, shift)), f(Plain(2.0, shift), t))


@dataclass
class Named:
    rate: Any
    shift: Any
    power: int = 2
    kind: Any = "a"


SCALES = {"a": 1.0, ("b", 2): 3.0, None: 5.0, 0.5: 7.0, 0.25: 8.0, 0.125: 9.0, 1: 11.0}


@define("{rate: (), shift: (n)}, (t) -> (t)")
def by_kind(xp, params, t, *, sign=1):
    scale = SCALES[params.kind] + 20 * (type(params.kind) is bool)
    return sign * scale * params.rate[..., None] * t


by_kind.def_vjp(lambda xp, ct, out, params, t, *, sign: None)


@many_graphs
def test_fields_that_are_no_arguments_are_constants_of_the_graph():
    rate, shift, t, _ = tensors(CASES["simulator of a dict"])
    f = bind(by_kind)
    g = compiled(f)
    for kind in ("a", ("b", 2), None, 0.5, 0.25, 0.125, True, 1, "a"):
        params = Named(rate, shift, 2, kind)
        assert torch.equal(g(params, t), f(params, t)), kind
        assert torch.equal(g(params, t, sign=-1), -f(params, t)), kind


def test_a_class_of_a_function_is_let_go():
    import weakref

    @dataclass
    class Local:
        rate: Any
        shift: Any
        power: int = 2

    rate, shift, t, _ = tensors(CASES["simulator of a dict"])
    case = simulator(Local)
    op = case.structured()
    f = bind(op)
    g = compiled(f)
    assert torch.equal(g(Local(rate, shift), t), f(Local(rate, shift), t))
    found = weakref.ref(Local)
    torch._dynamo.reset()
    del op, f, g, case, Local
    gc.collect()
    assert found() is None


def test_lists_of_other_lengths_and_names_are_other_graphs():
    x = torch.arange(3.0)
    product, energy = bind(CASES["product"].structured()), bind(CASES["energy"].structured())
    g, h = compiled(product), torch.compile(energy, fullgraph=True, backend="aot_eager")
    for count in (1, 2, 3, 2):
        xs = [x + i for i in range(count)]
        assert torch.equal(g(*xs), product(*xs))
        parts = {f"part{i}": x + i for i in range(count)}
        assert torch.equal(h(parts), energy(parts))


SAVE = """
import sys, torch
from tests import structured_named
from tests.structured_ops import Plain
from twingrad.interop.torch import bind

class Program(torch.nn.Module):
    def forward(self, rate, shift, t):
        return self.f(Plain(rate, shift, 7), t)

x = torch.tensor(2.0), torch.ones(3), torch.arange(4.0)
for name in ("line", "host_line"):
    program = Program()
    program.f = bind(getattr(structured_named, name))
    exported = torch.export.export(program, x, strict=False)
    torch.export.save(exported, f"{sys.argv[1]}/{name}.pt2")
"""


def test_a_program_of_another_process_finds_the_op_of_its_structure(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", SAVE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    x = torch.tensor(2.0), torch.ones(3), torch.arange(4.0, requires_grad=True)
    for name in ("line", "host_line"):
        program = torch.export.load(tmp_path / f"{name}.pt2").module()
        y = program(*x)
        assert torch.equal(y, 2 * torch.arange(4.0) + 3)
        assert torch.equal(torch.autograd.grad(y.sum(), x[2])[0], 2 * torch.ones(4))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["simulator of a dict", "network", "product", "body on the host"])
def test_exported_programs_hold_the_op(name, strict):
    case = CASES[name]
    f, x = case.of_arrays(bind(case.structured())), tensors(case)

    class Program(torch.nn.Module):
        def forward(self, *x):
            return f(*x)

    exported = torch.export.export(Program(), tuple(x), strict=strict)
    called = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert torch.ops.twingrad.op.default in called
    assert torch.equal(exported.module()(*x), f(*x))


@pytest.mark.parametrize("where", [{}, {"compile": True}], ids=["eager", "compiled"])
def test_in_dims_and_argnums_take_the_structure(where):
    f = bind(CASES["simulator of a dict"].structured())
    rate, shift, t, _ = tensors(CASES["simulator of a dict"], ())
    rates = torch.stack([rate, rate + 1])

    def loss(params, t):
        return f({**params, "power": 2}, t).sum()

    mapped = torch.func.vmap(torch.func.grad(loss), in_dims=({"rate": 0, "shift": None}, None))
    found = (compiled(mapped) if where else mapped)({"rate": rates, "shift": shift}, t)
    torch.testing.assert_close(found["rate"], (t**2).sum().expand(2))
    torch.testing.assert_close(found["shift"], (2 * 4 * shift).expand(2, 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simulator of a dataclass", "body on the host", "network"])
def test_inductor_takes_structures(name):
    case = CASES[name]
    x, f = tensors(case), case.of_arrays(bind(case.structured()))
    g = compiled(f, "inductor")
    for found, expected in zip(_backward(g)(*x), _backward(f)(*x), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", ["array", "host"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_structure_outlives_many_others(way, backend):
    case = replace(CASES["simulator of a dict"], way=way)
    rate, shift, t, _ = tensors(case)
    op = case.structured()
    f = bind(op)
    g = compiled(lambda rate: f(Plain(rate, shift), t), backend)
    expected = g(rate)
    for power in range(3, 100):
        f(Plain(rate, shift, power), t)
    gc.collect()
    leaf = rate.clone().requires_grad_()
    found = g(rate)
    assert torch.equal(found, expected)
    assert torch.equal(torch.autograd.grad(g(leaf).sum(), leaf)[0], (t**2).sum(-1))
