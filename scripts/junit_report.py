"""Read the report that pytest writes with `--junitxml`.

Owns: each test, its outcome, and the reason for a skip or failure. Refuses: running tests, and printing.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OUTCOMES: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One test: its name, outcome, duration in seconds, and pytest's message unless it passed."""

    name: str
    outcome: str
    seconds: float
    why: str = ""


def read(report: Path) -> list[CaseResult]:
    """Return all tests of a report. A file that could not be collected, or was skipped whole, is one test."""
    return [_read_case(case) for case in ET.parse(report).iter("testcase")]


def _read_case(case: ET.Element) -> CaseResult:
    name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
    end = next((child for child in case if child.tag in _OUTCOMES), None)
    seconds = float(case.get("time", 0))
    if end is None:
        return CaseResult(name, "passed", seconds)
    return CaseResult(name, _OUTCOMES[end.tag], seconds, f"{end.get('message', '')} {end.text or ''}".strip())
