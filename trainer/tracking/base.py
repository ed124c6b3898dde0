"""What a tracker is, and what it is told of the run that it keeps.

Owns: the interface that each tracker's file fulfils with a function `begin(run, settings)`. Refuses: any tracker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from trainer.track_settings import TrackSettings

ID_TAG: Final = "hone.id"

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Run:
    """A campaign, or an alias that learns: one run of every tracker, which is gone on with by its id."""

    id: str
    name: str
    folder: str  # where a tracker may keep files of its own
    settings: Mapping[str, Value]  # fit to leave this machine (`trainer.tracking.safe`)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one event comes to. `key` names the event: a tracker is sent none twice."""

    key: str
    step: int
    figures: Mapping[str, float]
    texts: Mapping[str, str]


class Tracker(Protocol):
    """One run of one tracker, open. Any of its calls may raise whatever its library raises."""

    def log(self, nth: int, entry: Entry) -> None:
        """Take an event's figures and texts; `nth`: how many events the run was sent before, over all its processes."""

    def end(self, reason: str, *, failed: bool) -> None:
        """Send what is left. The run may be gone on with later."""


class Begin(Protocol):
    """What opens a tracker's run, or goes on with it."""

    def __call__(self, run: Run, settings: TrackSettings, /) -> Tracker:
        """Raise whatever the library raises where it cannot."""
