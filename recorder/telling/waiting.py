"""What is waited for: how many groups stand in each state, and when time will move the next of them.

Owns: the question, and its sentence. Refuses: when an open group closes (`recorder.upkeep.outlook`), moving
anything, and what each stage waits for (`recorder.telling.stages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from recorder.base.terminal import duration
from recorder.settings import RecorderSettings
from recorder.states import GroupState, TrajectoryState
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import groups, trajectories
from recorder.upkeep.outlook import next_close_at

_AFTER: Final = {GroupState.TRAINED, GroupState.LEFT_OUT}  # nothing is waited for
_WORDS: Final = (
    (GroupState.OPEN, "open", "closes"),
    (GroupState.READY, "ready for the judge", ""),
    (GroupState.JUDGING, "being judged", ""),
    (GroupState.UNSCORED, "could not be judged", "is tried again"),
    (GroupState.SCORED, "scored", ""),
    (GroupState.TRAINING, "being trained on", ""),
    (GroupState.TRIED, "in a version that is not decided", ""),
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Groups on their way. `due`: state → when the next group of it is moved by time alone (unix seconds)."""

    at: float
    groups: Mapping[str, int]
    due: Mapping[str, float]
    runs_open: int

    def in_s(self, state: str, at: float | None = None) -> float | None:
        """In how many seconds that is, at a time (default: when it was asked)."""
        return max(0.0, self.due[state] - (self.at if at is None else at)) if state in self.due else None

    def sentence(self, at: float | None = None, *, times: bool = True) -> str:
        """`5 groups open, the next closes in 07:38; 2 scored`. Without `times` it changes only when the numbers do."""
        return "; ".join(self._parts(at, times)) or "no group yet"

    def _parts(self, at: float | None, times: bool) -> Iterable[str]:
        for state, words, verb in _WORDS:
            count = self.groups.get(state, 0)
            if not count:
                continue
            what = f"{count} group{'' if count == 1 else 's'} {words}"
            in_s = self.in_s(state, at)
            yield what + (f", the next {verb} in {duration(in_s)}" if times and verb and in_s is not None else "")


async def waiting(project: Project, settings: RecorderSettings) -> Waiting:
    """Groups by state and their next times. A few short queries; fit for every change."""
    running = (trajectories.c.project_id == project.id, trajectories.c.state == TrajectoryState.OPEN)
    async with project.store.read() as conn:
        at = await sql.clock(conn)
        counted = select(groups.c.state, func.count(), func.min(groups.c.try_after))
        rows = list(await conn.execute(counted.where(groups.c.project_id == project.id).group_by(groups.c.state)))
        runs_open = int((await conn.execute(select(func.count()).where(*running))).scalar_one())
    counts = {str(state): int(number) for state, number, _ in rows}
    due = {str(state): float(again) for state, _, again in rows if state == GroupState.UNSCORED and again is not None}
    if counts.get(GroupState.OPEN) and (closes := await next_close_at(project, settings)) is not None:
        due[GroupState.OPEN] = closes
    return Waiting(at, counts, due, runs_open)


def on_the_way(counts: Mapping[str, int]) -> dict[str, int]:
    """Only the groups that somebody still works on or waits for."""
    return {state: count for state, count in counts.items() if state not in _AFTER}
