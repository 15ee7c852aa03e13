"""Checkers of gradients side by side, on the suite's seeded faults and right gradients.

`twingrad.interop.check`, `torch.autograd.gradcheck` and `jax.test_util.check_grads`, each as
it comes, on the same ops at the same inputs.  Then the check of the two gradients that this
project started from, as they were posted: its reports go to posted_gradients.txt.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax.test_util import check_grads
from tqdm import tqdm

import tests.wrong_gradients_code
import tests.wrong_gradients_more
import twingrad.interop.jax
import twingrad.interop.torch
from experiments.measure.harness import Recorder
from experiments.measure.records import RESULTS
from experiments.problems.posted_gradients import POSTED
from tests.right_gradients import RIGHT, target_and_draw
from tests.wrong_gradients import WRONG_OPS
from twingrad.interop import Op
from twingrad.interop.check import check

assert tests.wrong_gradients_more and tests.wrong_gradients_code  # they add to WRONG_OPS
JAX_EVERY = 4  # compiling takes seconds: so many of the faults are skipped but one in JAX
Inputs = tuple[Any, ...]
DIAGNOSES: list[list[str]] = []  # of the latest checker, in order


def gradcheck(op: Op, inputs: Inputs, draw: Any) -> bool:
    """Whether torch passes it."""
    given = [torch.tensor(x) for x in inputs]
    for x in given:
        x.requires_grad_(x.is_floating_point() or x.is_complex())
    return torch.autograd.gradcheck(twingrad.interop.torch.bind(op), given, raise_exception=False)


def jax_check(op: Op, inputs: Inputs, draw: Any) -> bool:
    """Whether JAX passes it, to second order as by default."""
    check_grads(twingrad.interop.jax.bind(op), tuple(map(jnp.asarray, inputs)), order=2)
    return True


def ours(framework: str) -> Callable[[Op, Inputs, Any], bool]:
    def passes(op: Op, inputs: Inputs, draw: Any) -> bool:
        report = check(op, draw=draw, framework=framework)
        DIAGNOSES.append(report.patterns)
        return report.passed

    return passes


CHECKERS: dict[str, tuple[Callable[[Op, Inputs, Any], bool], int]] = {
    "twingrad, torch": (ours("torch"), 1),
    "torch.autograd.gradcheck": (gradcheck, 1),
    "twingrad, JAX": (ours("jax"), JAX_EVERY),
    "jax.test_util.check_grads": (jax_check, JAX_EVERY),
}


def passes(checker: Callable[[Op, Inputs, Any], bool], op: Op, draw: Any) -> bool:
    """An error is a failure, too."""
    inputs = tuple(np.asarray(x) for x in draw(np.random.default_rng(0)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return checker(op, inputs, draw)
        except Exception:
            return False


def main() -> None:
    recorder = Recorder("gradient_check")
    for name, (checker, every) in tqdm(CHECKERS.items(), desc="checkers of gradients"):
        DIAGNOSES.clear()
        start = time.perf_counter()
        wrong = [c for c in WRONG_OPS[::every] if not passes(checker, c.make(), c.draw)]
        named = sum(
            bool({*found} & {*case.patterns})
            for found, case in zip(DIAGNOSES, WRONG_OPS[::every], strict=False)
        )
        right = RIGHT[::every]
        failed = [c.name for c in right if not passes(checker, *target_and_draw(c))]
        seconds = time.perf_counter() - start
        faults = [c.name for c in WRONG_OPS[::every]]
        recorder.add(
            "checker",
            checker=name,
            faults=len(faults),
            found=len(wrong),
            named=named if DIAGNOSES else None,
            missed=[n for n in faults if n not in {c.name for c in wrong}],
            right=len(right),
            failed=failed,
            seconds_each=seconds / (len(faults) + len(right)),
        )
    reports = []
    for title, (function, draw, names) in POSTED.items():
        report = check(function, draw=draw, names=names)
        reports.append(f"# {title}, as posted\n\n{report}\n")
        patterns = list(dict.fromkeys((f.argument or f.test, f.pattern) for f in report.failures))
        recorder.add("posted", title=title, patterns=patterns)
    (RESULTS / "posted_gradients.txt").write_text("\n".join(reports))


if __name__ == "__main__":
    main()
