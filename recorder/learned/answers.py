"""How two versions answered one task: the runs of a group of each, with how each ended and what it was worth.

Owns: this view, bounded. Refuses: whole conversations (a run's page), and where attempts of one group part
(`recorder.comparing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recorder.errors import NotFound
from recorder.learned.before_after import Task
from recorder.reading.transcripts import load_groups
from recorder.reading.views import GroupView, TrajectoryView
from recorder.store.database import Store
from recorder.work.scores import rewards

RUNS: Final = 8  # of each group, the best
MAX_CHARS: Final = 4000  # of an answer


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run. `answer`: the last thing that the model said, or its beginning (`cut`)."""

    id: str
    external_id: str | None
    state: str
    reward: float | None
    turns: int
    answer: str | None
    cut: bool


@dataclass(frozen=True, slots=True)
class Answers:
    """The newest group of each side on a task, its attempts in order of reward. `task`: the task's key."""

    task: str
    before: Sequence[Attempt]
    after: Sequence[Attempt]


async def answers(store: Store, tasks: Sequence[Task], key: str) -> Answers:
    """Of one of these tasks. Raises NotFound."""
    task = next((one for one in tasks if one.key == key), None)
    if task is None:
        raise NotFound(f"no task {key[:200]!r} was attempted by both versions, of the newest groups of their time")
    groups = await load_groups(store, [task.before[0].id, task.after[0].id])
    before, after = [await _attempts(store, group) for group in groups]
    return Answers(key, before, after)


async def _attempts(store: Store, group: GroupView) -> list[Attempt]:
    worth = await rewards(store, group.current_score_id) if group.current_score_id is not None else {}
    told = [_attempt(member, worth) for member in group.members]
    return sorted(told, key=lambda one: (one.reward is None, -(one.reward or 0.0)))[:RUNS]


def _attempt(run: TrajectoryView, worth: Mapping[str, float | None]) -> Attempt:
    answer = run.answer
    return Attempt(
        id=run.id,
        external_id=run.external_id,
        state=run.state,
        reward=worth.get(run.id),
        turns=sum(message.get("role") == "assistant" for message in run.messages),
        answer=answer[:MAX_CHARS] if answer is not None else None,
        cut=answer is not None and len(answer) > MAX_CHARS,
    )
