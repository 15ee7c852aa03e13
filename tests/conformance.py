"""The conformance table: what the suite found, for every property, framework and op.

A test that is marked ``conformance(line)`` and takes a `row` is a cell of that line, or a part
of one.  `Record` collects the verdicts of a run (see `conftest`); `make conformance` keeps them
in conformance.json and writes the README's table from it: ``python -m tests.conformance``.
"""

import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILE, README = HERE / "conformance.json", HERE.parent / "README.md"
BEGIN, END = "<!-- conformance table: begin -->\n", "<!-- conformance table: end -->"
# Rows with the rules of another row and one more step: `make test` runs so many of the tests
# of each of their cells (JAX compiles each of them), `make test-all` runs all.
ALIKE = (
    "truncated_mixture_log_weights",
    "truncated_mixture_weights",
    "truncated_normal_log_mass",
)

SIDES = ("torch", "JAX")

# The lines of the table, and what each means in torch and in JAX.
LINES = {
    "value": "the value",
    "first derivative": "backward, grad, vjp, jacrev",
    "forward mode": "jvp, jacfwd, linearize; torch: dual numbers",
    "second derivative": "all four nestings; torch: gradgradcheck",
    "transposition": "a tangent is linear, and transposes: linear_transpose; torch: vjp of jvp",
    "third derivative": "reverse over forward over reverse",
    "vmap": "any in_dims, None, out_dims, nested",
    "vmap and derivatives": "vmap of grad and of hessian, grad of vmap",
    "batch": "a batch gives what a loop gives",
    "native batching": "vmap calls function and rules once, on the whole batch",
    "compiled": "call, backward, grad, vmap(grad), jacfwd; compile(fullgraph=True), jit",
    "own rule": "the hand-written rule is the one that runs",
    "own rule, compiled": "the same when compiled",
    "nothing unasked": "no rule runs, and no gradient is made, for what needs none",
    "checkpointing and loops": "utils.checkpoint; jax.checkpoint, scan, while, cond",
    "exported": "torch.export; jax.export, run again",
    "exported gradient": "gradient through an exported program",
    "for cuda": "torch: meta device; JAX: lowered and exported for cuda",
    "data parallel": "two processes or devices: DistributedDataParallel; shard_map",
    "modes inside shard_map": "second order of DTensors; every mode inside and of shard_map",
    "sharded batch": "DTensor; jit with NamedSharding",
    "dtypes": "float64, float32, float16, bfloat16, mixed, numbers",
    "result dtypes": "as declared; gradients as the inputs; what does not fit is refused",
    "autocast or x64 off": "torch: CPU autocast; JAX: without x64",
    "odd inputs": "strided, stride 0, empty batch, 0-d, size 1",
    "other processes": "pickled op, in a process of its own",
    "threads": "8 threads at once",
    "memory": "freed when a graph is dropped",
    "loops without growth": "value, gradient and tangent keep nothing from call to call",
    "bad input": "an error that names op, signature and argument",
    "agreement": "the same numbers as in NumPy",
}


# the framework refuses its own operations there, as another version of it does not
NO_REFERENCE = "no reference"

# above the second table
BESIDES = "The suite runs all of it on ops of other kinds, too, which are not shipped:"


class Record:
    """Verdicts by line, side and op: yes, no (refused with an error of ours), or a fault."""

    def __init__(self, cells=None):
        self.cells = {} if cells is None else cells

    def add(self, line, side, op, verdict):
        found = self.cells.setdefault(line, {}).setdefault(side, {})
        worst = ("fails", "not run", NO_REFERENCE, "no", "yes")
        found[op] = min(found.get(op, "yes"), verdict, key=worst.index)

    @staticmethod
    def load():
        return Record(json.loads(FILE.read_text()) if FILE.exists() else None)

    def save(self):
        ordered = {line: self.cells[line] for line in LINES if line in self.cells}
        FILE.write_text(json.dumps(ordered, indent=1, sort_keys=False) + "\n")

    def differences(self, other, sides):
        """Where two records differ, one line each, on the sides that were run."""
        found = []
        for line in LINES:
            for side in sides:
                mine, theirs = (r.cells.get(line, {}).get(side, {}) for r in (self, other))
                for op in sorted({*mine, *theirs}):
                    pair = mine.get(op, "no test"), theirs.get(op, "no test")
                    if pair[0] != pair[1] and NO_REFERENCE not in pair:
                        found.append(f"{line}, {side}, {op}: {pair[0]}, but recorded {pair[1]}")
        return found


def side_of(nodeid, parameters):
    """torch or JAX: by the parameter `framework` or `side`, or by the name of the file."""
    name = parameters.get("framework") or parameters.get("side") or nodeid.partition("::")[0]
    words = re.split(r"[_./]", name)
    return next((side for side in SIDES if side.lower() in words), None)


def cell_of(item):
    """(line, side, row) of a pytest item; None for one that is no cell, such as NumPy's."""
    marker = item.get_closest_marker("conformance")
    if marker is None or not hasattr(item, "callspec"):
        return None
    (line,) = marker.args
    assert line in LINES, f"{line!r} is no line of the conformance table"
    side = side_of(item.nodeid, item.callspec.params)
    return side and (line, side, item.callspec.params["row"])


def render(record, shipped, kinds):
    """The tables in Markdown: of the shipped ops, and of the kinds of op that are run besides."""
    notes, limits = {}, limits_of([*shipped, *kinds])
    names = [row.name for row in shipped]
    rows = ["| property | torch | JAX |", "|---|---|---|"]
    for line, meaning in LINES.items():
        cells = [_cell(record, line, side, names, limits, notes) for side in SIDES]
        rows.append(f"| **{line}**: {meaning} | {cells[0]} | {cells[1]} |")
    rows += ["", BESIDES, "", "| kind of op | torch | JAX |", "|---|---|---|"]
    for row in kinds:
        cells = [_lines(record, row.name, side, limits, notes) for side in SIDES]
        rows.append(f"| {row.kind}: `{row.op.label}` | {cells[0]} | {cells[1]} |")
    footnotes = [f"{number}. {text}" for text, number in notes.items()]
    return "\n".join([*rows, "", *footnotes]) + "\n"


def _verdicts(record, lines, side, names):
    """(line, name) -> yes or no."""
    keys = [(line, name) for line in lines for name in names]
    found = {(line, name): record.cells[line][side].get(name, "not run") for line, name in keys}
    wrong = {key: verdict for key, verdict in found.items() if verdict not in ("yes", "no")}
    assert not wrong, f"{side}: {wrong}"
    return found


def _marks(texts, notes):
    return ", ".join(str(notes.setdefault(text, len(notes) + 1)) for text in sorted(texts))


def _cell(record, line, side, names, limits, notes):
    """One line, for all ops."""
    found = _verdicts(record, [line], side, names)
    refused = [name for (_, name), verdict in found.items() if verdict == "no"]
    marks = _marks({limits[line, side, name] for name in refused}, notes)
    if not marks:
        return "yes"
    held = len(names) - len(refused)
    return f"{held} of {len(names)} ops ({marks})" if held else f"no ({marks})"


def _lines(record, name, side, limits, notes):
    """One op, for all lines."""
    found = _verdicts(record, LINES, side, [name])
    refused = [line for (line, _), verdict in found.items() if verdict == "no"]
    marks = _marks({limits[line, side, name] for line in refused}, notes)
    return f"all lines but {', '.join(refused)} ({marks})" if refused else "all lines"


def limits_of(rows):
    """(line, side, op) -> the footnote, from the rows of the op table."""
    return {
        (line, side, row.name): str(limit)
        for row in rows
        for (line, side), limit in row.limits.items()
    }


def current_table():
    from tests.op_table import KINDS, SHIPPED

    return render(Record.load(), SHIPPED, KINDS)


def main():
    before, rest = README.read_text().split(BEGIN)
    README.write_text(before + BEGIN + current_table() + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
