"""What `make live` says while it runs, and what it counts as a fault."""

from __future__ import annotations

import io
import json

from rich.console import Console

from examples.live.telling import EventPrinter
from examples.live.users import Run


def telling(*, as_json: bool = False) -> tuple[EventPrinter, io.StringIO]:
    said = io.StringIO()
    return EventPrinter(Console(file=said, width=200), as_json), said


def line(event: str, text: str) -> dict[str, str]:
    return {"event": event, "text": text}


def test_versions_and_faults_are_repeated_and_what_is_routine_is_not() -> None:
    told, said = telling()
    for event in ("ready", "judged", "step", "waiting", "swap", "restarting"):
        told.hone(line(event, f"text of {event}"))
    assert "text of swap" in said.getvalue()
    assert "judged" not in said.getvalue()
    assert told.faults == ["restarting: text of restarting"]


def test_a_run_that_failed_is_said_at_once_and_a_minute_counts_every_run() -> None:
    told, said = telling()
    at = 2e9  # later than now: within the last minute, whenever this runs
    told.run(Run(at, at, "helpdesk@1", right=True))
    told.run(Run(at, at, None, right=False, fault="gone"))
    told.last_minute()
    assert "a user's trajectory: gone" in said.getvalue()
    assert "50% right of 2 trajectories" in said.getvalue()


def test_a_program_gets_an_object_a_line() -> None:
    told, said = telling(as_json=True)
    told.note("the judge is swapped")
    written = json.loads(said.getvalue())
    assert (written["event"], written["text"]) == ("note", "the judge is swapped")
    assert [text for _, text in told.notes] == ["the judge is swapped"]
