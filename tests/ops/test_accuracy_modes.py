"""Accuracy at the hard inputs in every mode: eager, fused, compiled, jitted; in any length.

`test_accuracy` has vmap.  Here native batches of 1, 3, 8 and 1000 entries go through the
value with its gradient, and through forward mode with second derivatives, each in one graph;
lengths above 1 share a graph of dynamic shape in torch.  The quick cells run in `make test`.
"""

import functools
import importlib
import itertools

import pytest

from tests import accuracy_modes
from tests.accuracy import check
from tests.op_table import SHIPPED

LENGTHS = (1, 3, 8, 1000)
HARD = {row.name: row for row in SHIPPED if row.hard}
SMALL = ("log1mexp", "log_ndtr_diff")

MODES = {
    ("torch", "eager"): lambda side: side.once,
    ("torch", "aot_eager"): lambda side: _dynamic(side, "aot_eager"),
    ("torch", "inductor"): lambda side: _dynamic(side, "inductor"),
    ("torch", "fused"): lambda side: side.once,
    ("jax", "eager"): lambda side: lambda f: f,
    ("jax", "jit"): lambda side: side.compiler(),
}
_FUNCTIONS = ("first", "second", "backward")
# the quick cells; a shipped op that is not here has slow ones only
QUICK = {
    ("torch", "eager", "first"): HARD,
    ("torch", "eager", "second"): SMALL,
    ("torch", "inductor", "first"): SMALL,
    ("torch", "inductor", "backward"): ("log1mexp",),
    ("torch", "fused", "first"): ("log1mexp",),
    ("torch", "fused", "second"): ("log1mexp",),
    ("torch", "fused", "backward"): ("log1mexp",),
    ("jax", "jit", "first"): SMALL,
    ("jax", "jit", "second"): ("log1mexp",),
}


def _dynamic(side, backend):
    return functools.partial(side.compiler(backend), dynamic=True)


def _takes_too_long(side, mode, what, name):
    """Many minutes each: second derivatives of mixtures in Inductor's C++, and in eager JAX."""
    heavy = (side, mode) == ("jax", "eager") or mode == "inductor"
    return name.startswith("truncated_mixture") and what == "second" and heavy


def _cells():
    """One quick cell with some of the lengths, and a slow one with the others."""
    for (side, mode), what, name in itertools.product(MODES, _FUNCTIONS, HARD):
        if (side, what) == ("jax", "backward") or _takes_too_long(side, mode, what, name):
            continue
        lengths = (1000,) if mode == "eager" else LENGTHS
        quick = name in QUICK.get((side, mode, what), ())
        soon = tuple(n for n in lengths if quick and n > 1 and (side == "torch" or n == 1000))
        later = tuple(n for n in lengths if n not in soon)
        marks = [pytest.mark.compile] if mode in ("inductor", "aot_eager", "fused") else []
        for sizes, extra in ((soon, []), (later, [pytest.mark.slow])):
            label = "-".join([side, mode, what, name, "+".join(map(str, sizes))])
            if sizes:
                cell = side, mode, what, name, sizes
                yield pytest.param(*cell, marks=[*marks, *extra], id=label)


def run_everything(side_name, mode, what, name, dtype, lengths, note=lambda *_: None):
    """Check one function of one op, compiled once, at all the lengths."""
    fused = mode == "fused"  # every call then goes through a kernel of any length
    side = importlib.import_module("tests.side_fused" if fused else f"tests.side_{side_name}")
    row = HARD[name]
    f, compiler = side.function(row.op), MODES[side_name, mode](side)
    if what == "backward":
        run = accuracy_modes.backward(side, compiler(lambda *x: f(*x)))
    else:
        run = compiler(getattr(accuracy_modes, what)(side, f))
    measure = accuracy_modes.hessian if what == "second" else accuracy_modes.jacobian
    for length in lengths:
        for found in measure(side, row, run, dtype, length):
            check(row, dtype, found, note)
    if what != "second":
        accuracy_modes.check_nan(side, row, run, dtype)


@pytest.mark.filterwarnings("error:.*without a fused kernel")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("side", "mode", "what", "name", "lengths"), [*_cells()])
def test_hard_inputs_in_every_mode(side, mode, what, name, lengths, dtype, record_property):
    pytest.importorskip(side)
    run_everything(side, mode, what, name, dtype, lengths, record_property)


@pytest.mark.compile
@pytest.mark.parametrize("what", ["first", "backward"])
def test_with_expm1_of_the_library_compiled_ops_fail(what, monkeypatch):
    """As the ops were: Inductor's expm1 of a vector is exp(x) - 1 (pytorch/pytorch#189803)."""
    pytest.importorskip("torch")
    module = importlib.import_module("twingrad.ops.log1mexp")
    monkeypatch.setattr(module, "expm1", lambda xp, x: xp.expm1(x))
    with pytest.raises(AssertionError, match="x = -1e-30"):
        run_everything("torch", "inductor", what, "log1mexp", "float64", (8,))
