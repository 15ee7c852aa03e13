"""What the report says of the gradient check: other checkers, and the posted gradients."""

from __future__ import annotations

from experiments.measure.records import Record, read
from experiments.report.wording import short, table


def _first_missed(record: Record) -> str:
    missed = record["missed"]
    return "; ".join(missed[:4]) + (f"; and {len(missed) - 4} more" if len(missed) > 4 else "")


def gradient_check() -> str:
    data = read("gradient_check")
    rows = [
        [
            r["checker"],
            f"{r['found']} of {r['faults']}",
            f"{r['named']} of {r['faults']}" if r["named"] is not None else "-",
            f"{len(r['failed'])} of {r['right']}",
            short(r["seconds_each"]),
            _first_missed(r) or "none",
        ]
        for r in data["checker"]
    ]
    posted = [
        [r["title"], "; ".join(f"{where}: {pattern}" for where, pattern in r["patterns"])]
        for r in data["posted"]
    ]
    head = ["checker", "faults found", "named", "right ones failed", "s each", "missed"]
    return (
        "## Checkers of gradients side by side\n\n"
        "The suite's seeded faults and its right gradients that are rough, steep, large, small, "
        "coarse or complex, at the same inputs, each checker as it comes. In JAX, where each "
        "check compiles, one of four. *Named*: the diagnosis is the fault that was seeded; the "
        "patterns were written with these faults in view. `gradcheck` looks at the vjp only "
        "unless told otherwise.\n\n"
        + table(head, rows)
        + "\nWhat the check says of the two gradients that this project started from, as they "
        "are posted; the whole reports are in [posted_gradients.txt](posted_gradients.txt):\n\n"
        + table(["posted", "input or test: pattern"], posted)
    )


def gradient_check_finding() -> str:
    found = {r["checker"]: r for r in read("gradient_check")["checker"]}
    listed = "; ".join(
        f"{name} {r['found']} of {r['faults']}, with {len(r['failed'])} of {r['right']} right ones "
        "failed"
        for name, r in found.items()
    )
    return f"**Of seeded faults** the checkers find: {listed}."
