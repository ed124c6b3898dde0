"""What a person answered about two runs: written down, and counted where one version is held against another.

Owns: what an answer is, that it is of a pair as this person was shown it, and the count. Refuses: the rows
(`recorder.queue.feedback`), and what becomes of a group's score (`judge.rewards.human_choice`).

What people said of the runs of groups, to hold a judge against: preferences, and feedback that is a number.

Owns: the queries. Refuses: what a judge said, and what comes of the two (`judge.calibration`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import select

from recorder.errors import Conflict
from recorder.queue.feedback import PREFERENCE, TIE, parse_choice, write_choice
from recorder.queue.groups.disputes import PairChoice
from recorder.stats.means import share_interval
from recorder.store.database import Project
from recorder.store.schema import feedback, trajectories
from recorder.views.review.shapes import Candidate, PreferenceTally
from recorder.views.review.trajectories import RecordedChoice, project_draw

_FIRST, _SECOND = "first", "second"


class ReviewAnswer(StrEnum):
    """Which of the two runs is better: the first (`a`), the second (`b`), or neither."""

    A = "a"
    B = "b"
    SAME = "same"


async def record_choice(
    project: Project,
    first: str,
    second: str,
    said: ReviewAnswer,
    *,
    by: str,
    comment: str | None = None,
) -> str:
    """Write what a person found of two runs (internal ids), as they were shown; the feedback's id.

    It is feedback `preference` on the better one, or `tie` on the first; its tags say where that stood. Raises
    Conflict where this person is shown the two the other way round, NotFound, ValueError.
    """
    if (await project_draw(project)).sides(by, first, second) != (first, second):
        raise Conflict("the two runs are not in the order in which you are shown them: open the pair again")
    better, worse = (second, first) if said is ReviewAnswer.B else (first, second)
    choice = PairChoice(better, worse, tie=said is ReviewAnswer.SAME)
    shown = _SECOND if said is ReviewAnswer.B else _FIRST
    return await write_choice(project, choice, by=by, shown=shown, comment=comment)


def tally_choices(
    live: str, other: str, pairs: Sequence[Candidate], said: Mapping[frozenset[str], RecordedChoice]
) -> PreferenceTally:
    """The count of what one person said of pairs, each with the live version's run in front."""
    told = [(one.pair[0], said[pair]) for one in pairs if (pair := frozenset(one.pair)) in said]
    ties = sum(chosen.choice.tie for _, chosen in told)
    wins = sum(chosen.choice.better == ours and not chosen.choice.tie for ours, chosen in told)
    first = sum(chosen.shown == _FIRST and not chosen.choice.tie for _, chosen in told)
    rate = (wins + ties / 2) / len(told) if told else None
    interval = share_interval(rate, len(told)) if rate is not None else None
    return PreferenceTally(live, other, wins, ties, len(told) - wins - ties, first, rate, interval)


@dataclass(frozen=True, slots=True)
class PreferenceLabel:
    """One attempt of a group that somebody found better than another, or as good as it (`tie`); all by their ids."""

    group: str
    better: str
    worse: str
    tie: bool = False


async def list_preferences(project: Project) -> list[PreferenceLabel]:
    """All that were said of two attempts of one group, the oldest first."""
    query = (
        select(feedback.c.trajectory_id, feedback.c.name, feedback.c.value, feedback.c.tags)
        .where(feedback.c.project_id == project.id, feedback.c.name.in_((PREFERENCE, TIE)))
        .order_by(feedback.c.created_at, feedback.c.id)
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    told = [(row.tags, parse_choice(row.trajectory_id, row.name, row.value, row.tags)) for row in rows]
    return [
        PreferenceLabel(str(tags["group"]), choice.better, choice.worse, choice.tie)
        for tags, choice in told
        if choice is not None and tags.get("group") and not tags.get("other_group")
    ]


async def list_ratings(project: Project, name: str) -> dict[str, dict[str, float]]:
    """The newest feedback of that name on each run, where it is a number or yes or no: group → run → value."""
    query = (
        select(feedback.c.trajectory_id, feedback.c.value, trajectories.c.group_id)
        .join(trajectories, trajectories.c.id == feedback.c.trajectory_id)
        .where(feedback.c.project_id == project.id, feedback.c.name == name, trajectories.c.group_id.is_not(None))
        .order_by(feedback.c.created_at, feedback.c.id)
    )
    found: dict[str, dict[str, float]] = {}
    async with project.store.read() as conn:
        for row in (await conn.execute(query)).all():
            if isinstance(row.value, int | float):
                found.setdefault(row.group_id, {})[row.trajectory_id] = float(row.value)
    return found
