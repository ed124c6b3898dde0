"""Output while live traffic runs: a line for each event, and one for each minute.

Owns: which of Hone's lines are repeated, which are faults, and the minute's line. Refuses: figures of the whole session
(`examples.live.summary`).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.markup import escape

from examples.live.hone_up import Line
from examples.live.users import Run

REPEATED: Final = frozenset({"swap", "gate", "rollback"})
FAULTS: Final = frozenset({"fault", "failed", "wrong", "restarting"})
LAST_S: Final = 60.0


@dataclass
class EventPrinter:
    """Prints events to a console. `as_json`: one JSON object per line."""

    console: Console
    as_json: bool
    began: float | None = None  # unix seconds; None: traffic has not begun
    faults: list[str] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    _runs: list[Run] = field(default_factory=list)

    def hone(self, line: Line) -> None:
        """Keep the fault of a line of `hone up`, and print the line if it is relevant."""
        event = line["event"]
        if event in FAULTS:
            self.faults.append(f"{event}: {line['text']}")
        if event in REPEATED | FAULTS:
            self.say(event, line["text"])

    def run(self, run: Run) -> None:
        """Keep a finished trajectory, and print its fault if it has one."""
        self._runs.append(run)
        if run.fault is not None:
            self.say("fault", f"a user's trajectory: {run.fault}")

    def note(self, text: str) -> None:
        """Print a planned action, and keep it for the summary."""
        self.notes.append((time.time(), text))
        self.say("note", text)

    def last_minute(self) -> None:
        """Print how many trajectories of the last minute were right."""
        last = [run for run in self._runs if run.answered_at >= time.time() - LAST_S]
        right, versions = sum(run.right for run in last), sorted({str(run.version) for run in last})
        share = f"{right / len(last):.0%} right of {len(last)} trajectories" if last else "no trajectory ended"
        self.say("minute", f"{share}, answered by {len(versions)} versions, {versions[-1] if versions else 'none'}")

    def say(self, event: str, text: str) -> None:
        """Print one line."""
        now = time.time()
        if self.as_json:
            self.console.out(json.dumps({"at": now, "event": event, "text": text}), highlight=False)
            return
        clock = "     " if self.began is None else f"{int(now - self.began) // 60:02}:{int(now - self.began) % 60:02}"
        self.console.print(f"[dim]{clock}[/dim]  {event:<9} {escape(text)}", soft_wrap=True)
