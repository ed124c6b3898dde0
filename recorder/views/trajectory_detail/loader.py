"""One run, all that a page shows of it.

Owns: putting it together. Refuses: its pieces (`turns`, `load_outcome`, `build_timeline`), pages and printing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from recorder.states import StepState
from recorder.store.database import Store
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectory
from recorder.views.trajectory_detail.conversation import AnswerFacts, Conversation, build_conversation
from recorder.views.trajectory_detail.outcome import (
    LedgerLine,
    TrajectoryOutcome,
    load_outcome,
    token_counts,
    version_names,
)
from recorder.views.trajectory_detail.timeline import Timeline, build_timeline


@dataclass(frozen=True, slots=True)
class TrajectoryDetail:
    """A run as it was recorded, as it is told, and what became of it."""

    view: TrajectoryView
    outcome: TrajectoryOutcome
    conversation: Conversation
    timeline: Timeline


async def load_detail(store: Store, trajectory_id: str) -> TrajectoryDetail:
    """One run by its internal id. Raises NotFound."""
    return await build_detail(store, await load_trajectory(store, trajectory_id))


async def build_detail(store: Store, view: TrajectoryView) -> TrajectoryDetail:
    """A run that was read."""
    used = {id_ for id_ in (view.version_id, *(call.version_id for call in view.calls)) if id_ is not None}
    names = await version_names(store, used)
    stands = await load_outcome(store, view, names)
    facts = AnswerFacts(
        versions=names,
        tokens=await token_counts(store, [call.id for call in view.calls]),
        skipped=_skipped(stands.ledger),
        trained=any(lesson.state is StepState.DONE for lesson in stands.training_uses),
    )
    return TrajectoryDetail(view, stands, build_conversation(view, facts), build_timeline(view))


def detail_json(run: TrajectoryDetail) -> dict[str, Any]:
    """The run for JSON: what was recorded, and beside it what it was retold as."""
    recorded = {field.name: getattr(run.view, field.name) for field in fields(run.view)}
    return recorded | {"outcome": run.outcome, "conversation": run.conversation, "timeline": run.timeline}


def _skipped(lines: Iterable[LedgerLine]) -> dict[tuple[str, int], str]:
    """What the trainer passed over in the run: it writes which choice of which call."""
    return {
        (line.object_id, choice): line.code
        for line in lines
        if line.kind == "call" and line.detail is not None and isinstance(choice := line.detail.get("choice"), int)
    }
