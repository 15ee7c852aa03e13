"""Where results lie, and how the plots and the report read them; no framework in here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "experiments" / "results"

Record = dict[str, Any]


def read(experiment: str, results: Path = RESULTS) -> dict[str, list[Record]]:
    """The lines of an experiment's file, by their record type."""
    found: dict[str, list[Record]] = {}
    for line in (results / f"{experiment}.jsonl").read_text().splitlines():
        record = json.loads(line)
        found.setdefault(record.pop("record"), []).append(record)
    return found
