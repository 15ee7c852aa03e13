"""The gradient check: it finds and names seeded faults, and passes right gradients."""

import importlib
import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from tests import kinds, right_ops, wrong_gradients_code, wrong_gradients_more  # noqa: F401
from tests.faults import edit_vjp, times
from tests.op_table import ROWS
from tests.right_gradients import RIGHT, target_and_draw
from tests.wrong_gradients import WRONG_OPS
from twingrad import ops
from twingrad.interop import ArgumentError, GradientError
from twingrad.interop.check import assert_gradients, check
from twingrad.interop.check.__main__ import main

# Faults that are found, but whose pattern the check does not know: it says "unknown".
UNKNOWN = {
    "rmsnorm: weight's gradient not divided",
    "quadratic: 2 A x for a matrix that is not symmetric",
    "bilinear: b's gradient M a",
    "gaussian: without the logarithm's term",
}
# XLA simplifies the addition away, so that the gradient is right there.
RIGHT_IN_JAX = {"lossy: digits lost by adding a large number"}
FUNCTIONS = {"torch": "wrong_functions_torch", "jax": "wrong_functions_jax"}


def _functions(framework):
    pytest.importorskip(framework)
    module = importlib.import_module(f"tests.{FUNCTIONS[framework]}")
    return getattr(module, f"WRONG_{framework.upper()}")


def diagnose(case, framework, seed=0):
    """Assert that the fault is found, in the right input, and named as it should be."""
    pytest.importorskip(framework)
    report = check(case.make(), draw=case.draw, framework=framework, seed=seed)
    assert not report.passed
    found = {f.pattern for f in report.failures}
    blamed = {f.argument for f in report.failures if f.argument}
    assert blamed <= {*case.wrong}, str(report)
    if case.name in UNKNOWN:
        assert "unknown" in found
    else:
        assert found & {*case.patterns}, str(report)


def _ids(case):
    return case.name


def _in_turn(cases):
    """Every second one is left to `make test-all`."""
    return [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if i % 2 else [])
        for i, case in enumerate(cases)
    ]


@pytest.mark.parametrize("case", _in_turn(WRONG_OPS))
def test_a_fault_is_found_and_named(case):
    diagnose(case, "torch")


@pytest.mark.parametrize("case", WRONG_OPS[::18], ids=_ids)
def test_a_fault_is_found_and_named_in_jax(case):
    diagnose(case, "jax")


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in WRONG_OPS if c.name not in RIGHT_IN_JAX], ids=_ids)
def test_every_fault_is_found_and_named_in_jax(case):
    diagnose(case, "jax")


@pytest.mark.parametrize("framework", FUNCTIONS)
def test_faults_of_functions_are_found_and_named(framework):
    for case in _functions(framework):
        diagnose(case, framework)


def test_most_faults_are_named_over_a_dozen_ops():
    assert len(WRONG_OPS) >= 60
    assert len({case.name.partition(":")[0] for case in WRONG_OPS}) >= 12
    assert {*UNKNOWN} <= {case.name for case in WRONG_OPS}
    assert len(UNKNOWN) <= 0.1 * len(WRONG_OPS)


@pytest.mark.parametrize("case", RIGHT, ids=_ids)
def test_a_right_gradient_passes(case):
    pytest.importorskip("torch")
    op, draw = target_and_draw(case)
    report = check(op, draw=draw, framework="torch")
    assert report.passed, str(report)


def _row_check(row, seed, **options):
    def draw(rng):
        moving = iter(row.inputs((), seed=int(rng.integers(1 << 30))))
        names = row.op.names
        found = tuple(row.fixed[n] if n in row.fixed else next(moving) for n in names)
        return tuple(row.op.frame.build(found)) if row.op.origin else found

    pytest.importorskip("torch")
    op = row.op.origin[0] if row.op.origin else row.op
    return check(op, draw=draw, seed=seed, **options)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_ops_pass(row):
    report = _row_check(row, 0, framework="torch")
    assert report.passed, str(report)


def test_a_structured_op_is_checked_at_given_arguments_and_its_leaves_are_named():
    pytest.importorskip("torch")
    args = kinds.Decay(np.array(0.7), np.array(1.3)), np.linspace(0.1, 1, 3)
    assert check(kinds.decay, *args, framework="torch").passed
    row = next(row for row in ROWS if row.name == "decay")
    wrong = edit_vjp(times(2.0, 0))(row.op).origin[0]
    report = check(wrong, *args, framework="torch")
    assert {f.argument for f in report.failures if f.argument} == {"params.rate"}
    with pytest.raises(ArgumentError, match=r"check decay .*: give inputs, or draw="):
        check(kinds.decay, framework="torch")
    turn = itertools.cycle(
        [args, ({"rate": args[0].rate, "amplitude": args[0].amplitude}, args[1])]
    )
    with pytest.raises(ArgumentError, match="two structures"):
        check(kinds.decay, draw=lambda rng: next(turn), framework="torch")


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_ops_pass_for_200_seeds(row):
    for seed in range(200):
        report = _row_check(row, seed, framework="torch", second_order=seed % 10 == 0)
        assert report.passed, str(report)


def test_the_posted_gradients_are_named():
    pytest.importorskip("torch")
    from experiments.problems.posted_gradients import POSTED

    found = {}
    for title, (function, draw, names) in POSTED.items():
        report = check(function, draw=draw, names=names)
        found[title] = {(f.argument, f.pattern) for f in report.failures}
        if title == "truncated mixture weights":
            assert "the gradient of s is 1/s times what it should be" in str(report)
    crossed = {(name, "cross terms dropped") for name in ("m", "s", "p")}
    assert crossed <= found["truncated mixture weights"]
    assert found["external function"] == {(None, "second order only")}
    assert (None, "not pure") in found["external function with noise"]


def test_the_report_prints_and_goes_to_json():
    case = WRONG_OPS[0]
    report = check(case.make(), draw=case.draw)
    text = str(report)
    assert "FAILED" in text and "normaliser is held constant" in text and "seed 0" in text
    assert "d out[" in text and "should be" in text and "differences are good to" in text
    found = json.loads(report.to_json())
    assert found["passed"] is False and found["seed"] == 0
    example = next(f["example"] for f in found["findings"] if f["example"])
    assert set(example) == {"inputs", "entry", "found", "expected", "error"}
    with pytest.raises(GradientError, match="normaliser"):
        report.raise_if_failed()
    with pytest.raises(AssertionError):
        assert_gradients(case.make(), draw=case.draw)


def test_the_smallest_example_is_small_and_shows_the_fault():
    pytest.importorskip("torch")
    case = next(c for c in WRONG_OPS if c.name == "affine: x's gradient without s")
    [example] = {f.example.entry: f.example for f in check(
        case.make(), draw=case.draw, framework="torch").failures if f.example}.values()  # fmt: skip
    assert len(example.inputs["x"]) == 1
    assert example.found == 1.0 and abs(example.expected - example.inputs["s"]) < 1e-9


def test_the_same_seed_draws_the_same_inputs():
    pytest.importorskip("torch")
    case = WRONG_OPS[0]
    one, two, other = (
        check(case.make(), draw=case.draw, framework="torch", seed=s).to_json() for s in (3, 3, 4)
    )
    assert one == two != other


BAD = {
    "no inputs": (lambda: check(np.sin, framework="torch"), "give the inputs"),
    "no framework": (lambda: check(np.sin, np.ones(3)), "framework='torch' or"),
    "an unknown one": (lambda: check(ops.log1mexp, framework="numpy"), "framework='numpy'"),
    "both for a function": (lambda: check(np.sin, 1.0, framework="both"), "needs an Op"),
    "no such dimension": (lambda: check(ops.rosenbrock, shapes={"q": 3}), "no dimension q"),
    "names": (lambda: check(ops.rosenbrock, np.ones(3), names=("x", "y")), "1 inputs for 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_calls_are_explained(name):
    pytest.importorskip("torch")
    call, message = BAD[name]
    with pytest.raises(ArgumentError, match=message):
        call()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["twingrad.ops:rosenbrock", "--shapes", "n=3", "--framework", "torch"], 0, "passed"),
        (["tests.check.test_check:WRONG", "--framework", "torch", "--json"], 1, '"passed": false'),
        (["twingrad.ops:rosenbrock", "--shapes", "k=3"], 2, "no dimension k"),
    ],
)
def test_the_command_line_has_an_exit_status(arguments, status, said, capsys):
    pytest.importorskip("torch")
    assert main(arguments) == status
    assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize("target", ["twingrad.ops", "twingrad.ops:nothing", "nowhere:op"])
def test_a_target_that_is_not_there_is_explained(target):
    with pytest.raises(SystemExit, match="check: "):
        main([target])


def test_the_command_runs_as_a_module():
    command = [sys.executable, "-m", "twingrad.interop.check", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "package.module:name" in done.stdout


WRONG = WRONG_OPS[0].make()
