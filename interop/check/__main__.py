"""The check from the shell: ``python -m twingrad.interop.check package.module:name``.

Exit status 0 where everything passed, 1 where something failed, 2 for a wrong command.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from twingrad.interop.check.doctor import check
from twingrad.interop.errors import TwingradError


def _load(path: str) -> Any:
    """The object at ``package.module:name``, also in the current folder."""
    module, _, name = path.partition(":")
    if not name:
        raise SystemExit(f"check: {path!r} is not of the form package.module:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SystemExit(f"check: cannot load {path!r}: {error}") from error
    return found


def _shapes(text: str) -> dict[str, int]:
    """``n=5,k=3``"""
    try:
        pairs = [part.split("=") for part in text.split(",") if part]
        return {name.strip(): int(size) for name, size in pairs}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form n=5,k=3") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m twingrad.interop.check",
        description="Check a hand-written gradient, and say what is wrong with it.",
    )
    parser.add_argument("target", help="package.module:name of an op or function")
    parser.add_argument("--shapes", type=_shapes, default={}, help="sizes to draw: n=5,k=3")
    parser.add_argument("--inputs", help="package.module:name of a function of a NumPy Generator")
    parser.add_argument("--framework", choices=["torch", "jax", "both"])
    parser.add_argument("--seed", type=int, default=0, help="repeats the random draws")
    parser.add_argument("--compiled", action="store_true", help="also compile (slow in torch)")
    parser.add_argument("--first-order", action="store_true", help="no second derivatives")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the check, print the report, and return the exit status."""
    given = _parser().parse_args(arguments)
    try:
        report = check(
            _load(given.target),
            draw=_load(given.inputs) if given.inputs else None,
            shapes=given.shapes,
            framework=given.framework,
            seed=given.seed,
            compiled=given.compiled,
            second_order=not given.first_order,
        )
    except TwingradError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.to_json() if given.json else report)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
