"""A graph of torch never runs another op: names, other processes, reloaded modules."""

import gc
import importlib
import io
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch.func import grad

from tests import sample_ops
from twingrad import ops
from twingrad.interop import ArgumentError
from twingrad.interop.torch import bind
from twingrad.interop.torch.graphs import names as torch_names

X = torch.tensor([1.0, 2.0], dtype=torch.float64)


class Layer(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return self.f(x)


def export(f, x=X):
    return torch.export.export(Layer(f), (x,), strict=False)


def saved(f):
    file = io.BytesIO()
    torch.export.save(export(f), file)
    file.seek(0)
    return file


def run(file, x=X):
    return torch.export.load(file).module()(x)


def python(code, *args, **environment):
    """What a process of its own prints."""
    paths = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SAVE = """
import sys
from tests import sample_ops
from tests.torch.test_names_torch import X, bind, export, ops, torch
from twingrad.interop import define

def save(f, name):
    torch.export.save(export(f), f"{sys.argv[1]}/{name}.pt2")

@define("()->()")
def own(xp, x):
    return 5 * x

save(bind(sample_ops.cube(2.0)), "factory")
save(bind(sample_ops.host_sin()), "host factory")
save(bind(own), "main")
f, g = bind(ops.rosenbrock), bind(sample_ops.module_level)
save(lambda x: f(x, a=2.0), "written")
save(lambda x: f(x, a=frozenset({2.0})), "not written")
save(g, "default")
with_rules = bind(ops.rosenbrock)
save(lambda x: with_rules(x).sum(), "host")
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Programs that another process saved."""
    folder = tmp_path_factory.mktemp("programs")
    python(SAVE, folder)
    return folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("factory", r"cube \(\)->\(\): .*another process.*Assign the op to the name cube in a mod"),
        ("host factory", r"host_sin \(\)->\(\): .*another process.*to the name host_sin in"),
        ("main", r"own \(\)->\(\): .*another process"),
        ("not written", r"rosenbrock \(n\)->\(\): .*written down and read back"),
    ],
)
def test_a_program_of_an_op_that_cannot_be_told_for_certain_raises(elsewhere, name, text):
    """Also with ops of the same name and signature at hand."""
    mine = [bind(sample_ops.cube(1.0)), bind(sample_ops.cube(2.0)), bind(sample_ops.host_sin())]
    for f in mine:
        export(f)
    with pytest.raises(ArgumentError, match=text):
        run(elsewhere / f"{name}.pt2")


def test_a_program_of_an_op_of_a_module_finds_it_by_import(elsewhere):
    a, b = 2.0, 5.0
    right = (a - 1.0) ** 2 + b * (2 - 1) ** 2
    assert run(elsewhere / "written.pt2") == right
    assert torch.equal(run(elsewhere / "default.pt2"), 2 * X)
    program = torch.export.load(elsewhere / "host.pt2").module()
    assert torch.equal(grad(lambda x: program(x))(X), grad(bind(ops.rosenbrock))(X))


def test_names_are_numbers_except_for_what_a_module_holds():
    first, second = bind(sample_ops.cube(2.0)), bind(sample_ops.cube(3.0))
    names = [torch_names.name_of(f.Function.kernel) for f in (first, second)]
    assert len(set(names)) == 2
    assert all("sample_ops.cube@" in name for name in names)
    f = bind(ops.rosenbrock).Function.kernel
    assert torch_names.name_of(f).startswith("twingrad.ops.rosenbrock:rosenbrock (n)->() {'a': 1.0")
    part = bind(sample_ops.host_power_of_module.parts["vjp"]).Function.kernel
    assert ":host_power_of_module.vjp " in torch_names.name_of(part)


@pytest.mark.parametrize("factors", [(2.0, 3.0)])
@pytest.mark.parametrize("make", [sample_ops.cube, lambda c: sample_ops.cube(c, "vjp")])
def test_saved_and_loaded_in_one_process_each_program_runs_its_op(make, factors):
    bound = [bind(make(c)) for c in factors]
    files = [saved(f) for f in bound]
    for c, file in zip(factors, files, strict=True):
        program = torch.export.load(file).module()
        assert torch.equal(grad(lambda x, p=program: p(x).sum())(X), c * 3 * X**2)
    del bound
    gc.collect()
    files[0].seek(0)
    with pytest.raises(ArgumentError, match=r"cube \(\)->\(\): .*gone; keep the op"):
        run(files[0])


@pytest.mark.parametrize("kind", ["array", "host"])
def test_static_parameters_belong_to_the_name(kind):
    """Also those whose Functions have gone out of the cache."""
    op = sample_ops.power() if kind == "array" else sample_ops.host_power()
    f = bind(op)
    programs = {p: export(lambda x, p=p: f(x, p=p)) for p in (2.0, 3.0, 0.0, -0.0, float("nan"))}
    flat = {p: program.run_decompositions() for p, program in programs.items()}
    for p in range(100):
        f(X, p=float(p))
    for p, program in (*programs.items(), *flat.items()):
        torch.testing.assert_close(program.module()(X), X**p, equal_nan=True)


def test_a_reloaded_module_has_another_op(tmp_path, monkeypatch):
    code = """
        from twingrad.interop import define

        @define("()->()"{host})
        def scale(xp, x):
            return {factor} * x
        """
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "twingrad_reloaded.py"
    path.write_text(textwrap.dedent(code).format(factor=2, host=""))
    module = importlib.import_module("twingrad_reloaded")
    old, first = module.scale, export(bind(module.scale))
    assert "twingrad_reloaded:scale" in str(first.graph)
    path.write_text(textwrap.dedent(code).format(factor=33, host=""))
    importlib.invalidate_caches()
    module = importlib.reload(module)
    second = export(bind(module.scale))
    assert torch.equal(second.module()(X), 33 * X)
    assert torch.equal(first.module()(X), 2 * X)
    del old
    gc.collect()
    with pytest.raises(ArgumentError, match=r"scale \(\)->\(\): .*loaded anew"):
        first.module()(X)
    assert torch.equal(second.module()(X), 33 * X)


def test_a_program_for_another_signature_raises(elsewhere, monkeypatch):
    monkeypatch.setattr(sample_ops, "module_level", sample_ops.dot())
    monkeypatch.setattr(sample_ops.module_level, "name", "module_level")
    monkeypatch.setattr(torch_names, "_FUNCTIONS", {})
    with pytest.raises(ArgumentError, match=r"module_level \(\)->\(\): .*found \(n\),\(n\)->\(\)"):
        run(elsewhere / "default.pt2")
    monkeypatch.delattr(sample_ops, "module_level")
    with pytest.raises(ArgumentError, match="an op module_level that tests.sample_ops does not"):
        run(elsewhere / "default.pt2")


CACHED = """
import sys, torch
import twingrad_cached
from twingrad.interop.torch import bind
f = torch.compile(bind(twingrad_cached.scale), fullgraph=True)
print(float(f(torch.tensor(1.0))), float(f(torch.tensor(2.0))))
"""


@pytest.mark.slow
@pytest.mark.compile
def test_a_compiled_graph_on_disk_calls_the_op_of_this_process(tmp_path, monkeypatch):
    """Inductor keeps compiled graphs by their text."""
    monkeypatch.syspath_prepend(tmp_path)
    cache = str(tmp_path / "cache")
    for factor in (2.0, 3.0):
        code = f"""
            from twingrad.interop import define
            def make(factor):
                @define("()->()", host=True)
                def scale(xp, x):
                    return factor * x
                return scale
            other, scale = make(7.0), make({factor})
            """
        (tmp_path / "twingrad_cached.py").write_text(textwrap.dedent(code))
        out = python(CACHED, TORCHINDUCTOR_CACHE_DIR=cache, PYTHONDONTWRITEBYTECODE="1")
        assert out.split() == [str(factor), str(2 * factor)]


def test_binding_the_thousandth_op_of_one_name_looks_up_no_more_names(monkeypatch):
    class Counted(dict):
        lookups = 0

        def get(self, *args):
            Counted.lookups += 1
            return super().get(*args)

        def __setitem__(self, *args):
            Counted.lookups += 1
            super().__setitem__(*args)

    monkeypatch.setattr(torch_names, "_FUNCTIONS", Counted())
    counts, kept = [], []
    for _ in range(1000):
        before = Counted.lookups
        kept.append(bind(sample_ops.host_sin(second=False)))
        counts.append(Counted.lookups - before)
    assert counts[0] > 0 and set(counts) == {counts[0]}
    assert len({f.Function.kernel.name for f in kept}) == 1000
    assert np.isfinite(float(kept[-1](X).sum()))
