"""The finding of a check: what was checked, its state, and what to do.

Owns: the type that all checks share, and its JSON form (the judge's checks run in a process of their own). Refuses:
checking (`proxy.doctor`, `judge.scoring.checks`) and printing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum


class FindingLevel(StrEnum):
    """The state of what was checked."""

    FINE = "fine"
    NOTE = "note"  # it works, with something to know
    WRONG = "wrong"
    SKIPPED = "skipped"  # it cannot be checked yet, or is not used


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked. `stops`: nothing can run until it is fixed."""

    check: str
    verdict: FindingLevel
    found: str
    todo: str = ""
    stops: bool = False

    def as_json(self) -> dict[str, object]:
        """Return the finding as JSON values."""
        return asdict(self)

    def line(self) -> str:
        """Return the finding as one line of text."""
        return f"{self.check}: {self.found}" + (f" {self.todo}" if self.todo else "")


def parse_finding(found: Mapping[str, object]) -> Finding:
    """Return the finding that `as_json` encoded. Raises KeyError, ValueError."""
    return Finding(
        check=str(found["check"]),
        verdict=FindingLevel(str(found["verdict"])),
        found=str(found["found"]),
        todo=str(found["todo"]),
        stops=bool(found["stops"]),
    )


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return whether any finding is wrong."""
    return any(one.verdict is FindingLevel.WRONG for one in findings)
