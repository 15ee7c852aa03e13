"""Tables, pictures and numbers as the report writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.measure.records import Record


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def picture(text: str, name: str) -> str:
    return f"\n![{text}]({name}.png)\n\n"


def quartiles(ratio: Record) -> str:
    low, middle, high = (short(ratio[key], 3) for key in ("q1", "median", "q3"))
    return f"{middle} ({low} to {high})"


def spread(values: Any, digits: int = 2) -> str:
    """The range of some ratios in words."""
    low, high = (short(v, digits) for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def short(value: float, digits: int = 2) -> str:
    """A number with few digits: 0.84, 7.5, 310, 12,000."""
    if value == 0 or not np.isfinite(value):
        return str(value)
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"


def microseconds(timing: Record) -> str:
    return short(1e6 * timing["median_s"], 3)
