"""What pytest writes of a run (`--junitxml`), read.

Owns: each test, how it ended, and why it was left out. Refuses: running, and telling.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OUTCOMES: Final = {"failure": "failed", "error": "failed", "skipped": "skipped"}


@dataclass(frozen=True, slots=True)
class Ran:
    """One test: its name, how it ended, for how long it ran, and what pytest says of an end that is no pass."""

    name: str
    outcome: str
    seconds: float
    why: str = ""


def read(report: Path) -> list[Ran]:
    """All of them. A file that could not be collected, or was left out whole, is one with its dotted name."""
    return [_ran(case) for case in ET.parse(report).iter("testcase")]


def _ran(case: ET.Element) -> Ran:
    name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
    end = next((child for child in case if child.tag in _OUTCOMES), None)
    seconds = float(case.get("time", 0))
    if end is None:
        return Ran(name, "passed", seconds)
    return Ran(name, _OUTCOMES[end.tag], seconds, f"{end.get('message', '')} {end.text or ''}".strip())
