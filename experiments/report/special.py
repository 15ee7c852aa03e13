"""What the report says of the functions that frameworks compute, mode by mode."""

from __future__ import annotations

from typing import Any

from experiments.measure.records import read
from experiments.report.wording import short, table

MODES = ("torch", "Inductor, 1", "Inductor, 8", "Inductor, 1000", "JAX", "jit, 1", "jit, 1000")
BAD = 8.0  # ulps


def _cell(ulps: Any) -> str:
    if ulps == "inf":
        return "**not finite**"
    if ulps < 0.01:
        return "0"
    text = short(ulps) if ulps < 1e4 else f"{ulps:.0e}"
    return f"**{text}**" if ulps > BAD else text


def special() -> str:
    rows = [
        [
            ("our " if r["whose"] == "twingrad" else "") + r["function"],
            r["range"],
            r["dtype"],
            *[_cell(r["ulps"][mode]) for mode in MODES],
        ]
        for r in read("special_functions")["error"]
    ]
    return (
        "## How accurate the frameworks' functions are\n\n"
        "The largest error in units in the last place, against mpmath, over 500 numbers of each "
        "range; the numbers behind Inductor and jit are the entries of a call: one is scalar "
        f"code. Bold: more than {BAD:.0f}. *power* is x^7.5, *half* is x/2. Inductor's `expm1` "
        "on vectors is exp(x) - 1 (pytorch/pytorch#189803). XLA's float64 `log1p` is off near "
        "-0.4 (jax-ml/jax#39707), its `erfc` and `erfcx` far out, its `gammaln` near 1 and 2; "
        "and it takes subnormal numbers for 0, as inputs and as results. What our ops need of "
        "these, `erfcx`, `expm1` and `log1p`, they take from `twingrad.ops._special`; our "
        "`erfcx` is for x >= 0.\n\n" + table(["function", "range", "dtype", *MODES], rows)
    )
