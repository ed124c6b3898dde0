"""What reading the data of a fit excluded, and what it warns of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

MOST_NAMED: Final = 20


@dataclass(slots=True, kw_only=True)
class ReadData:
    """The number of excluded data by reason, and the first of them by name; and the rows of a file whose task is a
    scenario that is measured.
    """

    left: Counter[str] = field(default_factory=Counter)
    named: list[str] = field(default_factory=list)
    overlap: list[str] = field(default_factory=list)

    @property
    def excluded(self) -> str:
        """The reasons as the end of a sentence; empty without any."""
        return f": {dict(self.left)}" if self.left else ""

    def leave(self, code: str, name: str, note: str | None = None) -> None:
        """Count one that is excluded."""
        self.left[str(code)] += 1
        if len(self.named) < MOST_NAMED:
            self.named.append(f"{name}: {code}" + (f" ({note})" if note else ""))
