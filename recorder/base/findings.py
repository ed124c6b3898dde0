"""What a check found: one thing that was looked at, how it is, and what to do about it.

Owns: the form in which every stage tells it, and that form as JSON (the judge's comes from a process of its own).
Refuses: looking (`proxy.doctor`, `judge.scoring.checks`) and printing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    """How a thing that was checked is."""

    FINE = "fine"
    NOTE = "note"  # works, and somebody should know how
    WRONG = "wrong"
    SKIPPED = "skipped"  # it cannot be looked at yet, or is not used


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked. `stops`: nothing can run until it is mended."""

    check: str
    verdict: FindingLevel
    found: str
    todo: str = ""
    stops: bool = False

    def as_json(self) -> dict[str, object]:
        """The finding for a program."""
        return asdict(self)

    def line(self) -> str:
        """The finding in one line."""
        return f"{self.check}: {self.found}" + (f" {self.todo}" if self.todo else "")


def parse_finding(found: Mapping[str, object]) -> Finding:
    """A finding as `as_json` gave it. Raises KeyError, ValueError."""
    return Finding(
        check=str(found["check"]),
        verdict=FindingLevel(str(found["verdict"])),
        found=str(found["found"]),
        todo=str(found["todo"]),
        stops=bool(found["stops"]),
    )


def has_errors(findings: Iterable[Finding]) -> bool:
    """Whether something must be mended."""
    return any(one.verdict is FindingLevel.WRONG for one in findings)
