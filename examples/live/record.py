"""What Hone recorded of live traffic: decisions about versions, trained and excluded trajectories, steps.

Owns: reading them from the store at the end. Refuses: minutes and figures (`examples.live.summary`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import select

from examples.live.users import ALIAS
from recorder.queue.training.steps import StepView, list_steps
from recorder.registry.aliases import get_alias
from recorder.registry.moves import list_moves
from recorder.settings import RecorderSettings
from recorder.states import StepState
from recorder.store import ledger
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.schema import groups, step_groups, steps

PROJECT: Final = "default"
EVERYTHING: Final = 1_000_000  # rows
LIVE: Final = "gate"  # the move of a version that came into service
DECIDED: Final = (LIVE, "rejected", "abandoned", "rollback")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a version. `at`: unix seconds; `move`: `gate` for a version that went live."""

    at: float
    version: str
    version_id: str
    move: str
    why: str | None
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One trajectory: trained on, or excluded, with the reason in `code`."""

    at: float
    code: str


@dataclass(frozen=True, slots=True)
class LearningRecord:
    """All decisions, ledger entries and steps, oldest first.

    `last_calls`: by version id, the time (unix seconds) of the last call of each group that it was trained on.
    """

    decisions: list[Decision]
    told: list[LedgerEntry]
    steps: list[StepView]
    last_calls: Mapping[str, list[float]]


async def read_written(data: Path, recording: RecorderSettings) -> LearningRecord:
    """Read the record from the data folder's store."""
    store = await open_store(data, recording, migrate=False)
    try:
        alias = await get_alias(Project(store, PROJECT), ALIAS)
        moves = await list_moves(Project(store, PROJECT), alias=ALIAS, limit=EVERYTHING)
        entries = await ledger.latest_entries(Project(store, PROJECT), object_kind="trajectory", limit=EVERYTHING)
        taken = await list_steps(store, alias.id, limit=EVERYTHING)
        return LearningRecord(
            [
                Decision(m.at, m.version, m.version_id, m.move, m.why, m.figures)
                for m in reversed(moves)
                if m.move in DECIDED
            ],
            [LedgerEntry(entry.at, entry.code) for entry in reversed(entries)],
            [step for step in reversed(taken) if step.state == StepState.DONE],
            await _last_calls(store),
        )
    finally:
        await store.close()


async def _last_calls(store: Store) -> dict[str, list[float]]:
    query = (
        select(steps.c.version_id, groups.c.last_call_at)
        .join(step_groups, step_groups.c.step_id == steps.c.id)
        .join(groups, groups.c.id == step_groups.c.group_id)
        .where(steps.c.version_id.is_not(None))
    )
    found: dict[str, list[float]] = {}
    async with store.read() as conn:
        for version_id, at in await conn.execute(query):
            found.setdefault(version_id, []).append(at)
    return found
