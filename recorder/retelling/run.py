"""One run, all that a page shows of it.

Owns: putting it together. Refuses: its pieces (`turns`, `standing`, `timeline`), pages and printing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from recorder.reading.transcripts import load_trajectory
from recorder.reading.views import TrajectoryView
from recorder.retelling.standing import Line, Standing, standing, token_counts, version_names
from recorder.retelling.timeline import Timeline, timeline
from recorder.retelling.turns import Facts, Told, tell
from recorder.states import StepState
from recorder.store.database import Store


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it was recorded, as it is told, and what became of it."""

    view: TrajectoryView
    standing: Standing
    told: Told
    timeline: Timeline


async def load_run(store: Store, trajectory_id: str) -> Run:
    """One run by its internal id. Raises NotFound."""
    return await retell(store, await load_trajectory(store, trajectory_id))


async def retell(store: Store, view: TrajectoryView) -> Run:
    """A run that was read."""
    used = {id_ for id_ in (view.version_id, *(call.version_id for call in view.calls)) if id_ is not None}
    names = await version_names(store, used)
    stands = await standing(store, view, names)
    facts = Facts(
        versions=names,
        tokens=await token_counts(store, [call.id for call in view.calls]),
        skipped=_skipped(stands.ledger),
        trained=any(lesson.state is StepState.DONE for lesson in stands.lessons),
    )
    return Run(view, stands, tell(view, facts), timeline(view))


def as_one(run: Run) -> dict[str, Any]:
    """The run for JSON: what was recorded, and beside it what it was retold as."""
    recorded = {field.name: getattr(run.view, field.name) for field in fields(run.view)}
    return recorded | {"standing": run.standing, "told": run.told, "timeline": run.timeline}


def _skipped(lines: Iterable[Line]) -> dict[tuple[str, int], str]:
    """What the trainer passed over in the run: it writes which choice of which call."""
    return {
        (line.object_id, choice): line.code
        for line in lines
        if line.kind == "call" and line.detail is not None and isinstance(choice := line.detail.get("choice"), int)
    }
