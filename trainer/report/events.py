"""What a campaign wrote down, read back from the ledger.

Owns: which of the ledger's codes is which event. Refuses: writing them (`trainer.campaign`), and what they come to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from recorder.registry.retention import VALIDATION
from recorder.store import ledger
from recorder.store.database import Store
from trainer.progress import Alarm, Changed, Ended, StepDone, Validated

STEP: Final = "step"
BASELINE: Final = "baseline"
TEST: Final = "test"
ALARM: Final = "alarm"
CHANGE: Final = "change"
ENDED: Final = "ended"


@dataclass(slots=True)
class Events:
    """All of them, each kind in order. `ended`: the newest end; one that was gone on with has earlier ones."""

    steps: list[StepDone] = field(default_factory=list)
    validations: list[Validated] = field(default_factory=list)
    baselines: list[Validated] = field(default_factory=list)
    tests: list[Validated] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    changes: list[Changed] = field(default_factory=list)
    ended: Ended | None = None


async def read(store: Store, campaign_id: str) -> Events:
    """What a campaign wrote down until now."""
    events = Events()
    for entry in await ledger.of(store, "campaign", campaign_id):
        if entry.detail is not None:
            _add(events, entry.code, entry.detail)
    return events


def _add(events: Events, code: str, said: dict[str, Any]) -> None:
    if code == STEP:
        events.steps.append(StepDone(**said))
    elif code in (VALIDATION, BASELINE, TEST):
        kept = {VALIDATION: events.validations, BASELINE: events.baselines, TEST: events.tests}
        kept[code].append(Validated(**said))
    elif code == ALARM:
        events.alarms.append(Alarm(**said))
    elif code == CHANGE:
        events.changes.append(Changed(**said))
    elif code == ENDED:
        events.ended = Ended(**said)
