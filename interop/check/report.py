"""What a check found: a `Report` that prints as a table, and goes to JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from twingrad.interop.errors import GradientError

PASSED, FAILED, UNSUPPORTED = "passed", "failed", "not there"
_MARKS = {PASSED: "ok", FAILED: "FAILED", UNSUPPORTED: "-"}


@dataclass(frozen=True)
class Example:
    """The smallest example that was found: one entry of one Jacobian.

    Attributes:
        inputs: name -> values.
        entry: which derivative, as ``d out[1] / d s[0]``.
        found: what the rule gives.
        expected: what differences give.
        error: how far `expected` may be off.
    """

    inputs: dict[str, Any]
    entry: str
    found: float
    expected: float
    error: float

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {_short(value)}" for name, value in self.inputs.items())
        return (
            f"{self.entry} is {self.found:.10g}, should be {self.expected:.10g} "
            f"(differences are good to {self.error:.0e}), at {given}"
        )


@dataclass(frozen=True)
class Finding:
    """The result of one test in one framework.

    Attributes:
        test: its name.
        framework: torch, JAX, or both.
        status: passed, failed, or not there (the function has no such derivative).
        message: what was seen.
        pattern: for a failure one of `patterns.PATTERNS`, or "unknown".
        argument: the input whose gradient is wrong, if one is.
        example: the smallest example.
    """

    test: str
    framework: str
    status: str
    message: str = ""
    pattern: str | None = None
    argument: str | None = None
    example: Example | None = None


@dataclass
class Report:
    """The findings of a check.

    Attributes:
        label: what was checked.
        seed: repeats the random draws.
        findings: one for each test and framework.
    """

    label: str
    seed: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def failures(self) -> list[Finding]:
        """The findings of tests that failed."""
        return [f for f in self.findings if f.status == FAILED]

    @property
    def passed(self) -> bool:
        """Whether something was tested and nothing failed."""
        return not self.failures and any(f.status == PASSED for f in self.findings)

    @property
    def patterns(self) -> list[str]:
        """The diagnoses, the first failure's first."""
        return list(dict.fromkeys(f.pattern for f in self.failures if f.pattern))

    def raise_if_failed(self) -> None:
        """Raise `GradientError` with the whole report, if a test failed or none ran."""
        if not self.passed:
            raise GradientError(str(self))

    def to_json(self) -> str:
        """The report as JSON: label, seed, passed, and the findings."""
        found = [asdict(f) for f in self.findings]
        whole = {"label": self.label, "seed": self.seed, "passed": self.passed}
        return json.dumps({**whole, "findings": found}, indent=1)

    def __str__(self) -> str:
        sides = list(dict.fromkeys(f.framework for f in self.findings))
        tests = list(dict.fromkeys(f.test for f in self.findings))
        cells = {(f.test, f.framework): _MARKS[f.status] for f in self.findings}
        width = max([len(t) for t in tests], default=0)
        head = f"{'':{width}}  " + "  ".join(f"{side:>7}" for side in sides)
        rows = [
            f"{test:{width}}  " + "  ".join(f"{cells.get((test, side), ''):>7}" for side in sides)
            for test in tests
        ]
        verdict = "passed" if self.passed else "FAILED" if self.failures else "nothing was tested"
        lines = [f"{self.label}: {verdict} (seed {self.seed})", head, *rows]
        return "\n".join([*lines, *self._explained(), *self._notes()])

    def _explained(self) -> list[str]:
        """The failures, those that say the same together."""
        groups: dict[Any, list[Finding]] = {}
        for f in self.failures:
            groups.setdefault((f.argument, f.message), []).append(f)
        return [_explain(group) for group in groups.values()]

    def _notes(self) -> list[str]:
        """What the function does not have, those with the same reason together."""
        reasons: dict[str, list[str]] = {}
        for f in self.findings:
            if f.status == UNSUPPORTED and f.message:
                reasons.setdefault(f.message, []).append(f"{f.test} ({f.framework})")
        seen = [f"- {', '.join(tests)}: {reason}" for reason, tests in reasons.items()]
        return ["", "not there:", *seen] if seen else []


def _explain(group: list[Finding]) -> str:
    tests = ", ".join(dict.fromkeys(f.test for f in group))
    sides = " and ".join(dict.fromkeys(f.framework for f in group))
    first = group[0]
    lines = [f"\n{tests} ({sides}):", f"  {first.message}"]
    if first.example:
        lines.append(f"  {first.example}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = json.dumps(json.loads(json.dumps(value), parse_float=lambda x: float(f"{float(x):.6g}")))
    return text if len(text) < 120 else text[:117] + "..."
