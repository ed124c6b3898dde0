"""One trajectory in detail: all that its page, `hone show` and `/hone/v1` present.

Owns: loading its parts together. Refuses: the parts (`recorder.views.trajectory_detail.conversation`, `outcome` and
`timeline`), and presentation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from recorder.states import StepState
from recorder.store.database import Store
from recorder.views.follow_ups.events import FollowUp
from recorder.views.follow_ups.loader import load_follow_ups
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
    """A trajectory as recorded, its outcome, its conversation and timeline built from the record, and what came next.

    `follow_ups`: to any of its answers, whichever trajectory recorded them.
    """

    view: TrajectoryView
    outcome: TrajectoryOutcome
    conversation: Conversation
    timeline: Timeline
    follow_ups: tuple[FollowUp, ...]


async def load_detail(store: Store, trajectory_id: str) -> TrajectoryDetail:
    """Load one trajectory by its internal id. Raises NotFound."""
    return await build_detail(store, await load_trajectory(store, trajectory_id))


async def build_detail(store: Store, view: TrajectoryView) -> TrajectoryDetail:
    """Build the detail of a trajectory that the caller has loaded."""
    used = {id_ for id_ in (view.version_id, *(call.version_id for call in view.calls)) if id_ is not None}
    names = await version_names(store, used)
    outcome = await load_outcome(store, view, names)
    facts = AnswerFacts(
        versions=names,
        tokens=await token_counts(store, [call.id for call in view.calls]),
        skipped=_skipped(outcome.ledger),
        trained=any(use.state is StepState.DONE for use in outcome.training_uses),
    )
    follow_ups = tuple(await load_follow_ups(store, view))
    return TrajectoryDetail(view, outcome, build_conversation(view, facts), build_timeline(view), follow_ups)


def detail_json(loaded: TrajectoryDetail) -> dict[str, Any]:
    """Return the detail for JSON: the recorded fields, `outcome`, `conversation`, `timeline` and `follow_ups`."""
    recorded = {field.name: getattr(loaded.view, field.name) for field in fields(loaded.view)}
    built = {field.name: getattr(loaded, field.name) for field in fields(loaded) if field.name != "view"}
    return recorded | built


def _skipped(lines: Iterable[LedgerLine]) -> dict[tuple[str, int], str]:
    """Return the choices that the trainer skipped, from the ledger: (call id, choice) → code."""
    return {
        (line.object_id, choice): line.code
        for line in lines
        if line.kind == "call" and line.detail is not None and isinstance(choice := line.detail.get("choice"), int)
    }
