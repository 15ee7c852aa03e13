"""The README's conformance table is made from a whole run's record, and says the whole truth.

That the record is that of the suite as it stands is checked at the end of every whole run
(see `conftest`).
"""

import pytest

from tests import conformance
from tests.conformance import LINES, NO_REFERENCE, SIDES, Record
from tests.op_table import ROWS

RECORD, LIMITS = Record.load(), conformance.limits_of(ROWS)


def test_every_cell_is_there_for_every_op():
    names = {row.name for row in ROWS}
    found = {(line, side): set(RECORD.cells.get(line, {}).get(side, ())) for line, side in _grid()}
    assert found == dict.fromkeys(_grid(), names)


def _grid():
    return [(line, side) for line in LINES for side in SIDES]


def test_a_cell_is_yes_or_refused_with_an_error_of_ours_and_a_link():
    for line, side in _grid():
        for op, verdict in RECORD.cells[line][side].items():
            limit = LIMITS.get((line, side, op))
            assert verdict == ("no" if limit else "yes"), f"{line}, {side}, {op}: {verdict}"
            assert limit is None or "](https://" in limit


def test_the_readme_shows_the_table_of_the_record():
    assert conformance.BEGIN + conformance.current_table() + conformance.END in (
        conformance.README.read_text()
    ), "run `make conformance`"


def test_the_tables_say_which_lines_a_kind_of_op_does_not_have():
    """Shipped ops in one table, one op of each other kind in the next."""
    shipped, kinds = [row for row in ROWS if not row.kind], [row for row in ROWS if row.kind]
    cells = {
        line: {
            side: {row.name: "no" if (line, side) in row.limits else "yes" for row in ROWS}
            for side in SIDES
        }
        for line in LINES
    }
    table = conformance.render(Record(cells), shipped, kinds)
    assert f"| {len(shipped)} of " not in table and f" of {len(shipped)} ops (" in table
    for row in kinds:
        (text,) = [text for text in table.splitlines() if f"`{row.op.label}`" in text]
        refused = [line for line in LINES if (line, "JAX") in row.limits]
        want = f"all lines but {', '.join(refused)} (" if refused else "all lines |"
        assert row.kind in text and want in text.rpartition(" | ")[2]
    cells["vmap"]["JAX"].pop(kinds[0].name)
    with pytest.raises(AssertionError, match="not run"):
        conformance.render(Record(cells), shipped, kinds)


@pytest.mark.parametrize("verdict", ["no", "not run", "fails"])
def test_one_bad_test_of_a_cell_is_enough(verdict):
    record = Record()
    for found in ("yes", verdict, "yes"):
        record.add("vmap", "torch", "op", found)
    assert record.cells == {"vmap": {"torch": {"op": verdict}}}
    other = Record({"vmap": {"torch": {"op": "yes"}}})
    assert record.differences(other, SIDES) == [f"vmap, torch, op: {verdict}, but recorded yes"]
    assert record.differences(other, ["JAX"]) == []


def test_a_cell_without_a_reference_here_does_not_differ():
    record, other = Record(), Record({"vmap": {"torch": {"op": "yes"}}})
    record.add("vmap", "torch", "op", "yes")
    record.add("vmap", "torch", "op", NO_REFERENCE)
    assert record.cells == {"vmap": {"torch": {"op": NO_REFERENCE}}}
    assert record.differences(other, SIDES) == []
