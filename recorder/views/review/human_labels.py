"""Record and read people's answers: choices between two trajectories, and numeric feedback.

Owns: recording a choice in the order in which this person saw the pair, the tally that compares two versions, and the
queries for labels that calibrate a judge. Refuses: the rows (`recorder.queue.feedback`), how choices score a group
(`judge.rewards.human_choice`), and comparing labels with a judge (`judge.calibration`).
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
    """Which of the two trajectories is better: the first (`a`), the second (`b`), or neither."""

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
    """Record a person's choice between two trajectories (internal ids) in the order shown; return the feedback's id.

    It is stored as feedback `preference` on the better one, or `tie` on the first; its tags have the position at which
    that one was shown. Raises Conflict if this person sees the two in the other order, NotFound, ValueError.
    """
    if (await project_draw(project)).sides(by, first, second) != (first, second):
        raise Conflict("the two trajectories are not in the order in which you are shown them: open the pair again")
    better, worse = (second, first) if said is ReviewAnswer.B else (first, second)
    choice = PairChoice(better, worse, tie=said is ReviewAnswer.SAME)
    shown = _SECOND if said is ReviewAnswer.B else _FIRST
    return await write_choice(project, choice, by=by, shown=shown, comment=comment)


def tally_choices(
    live: str, other: str, pairs: Sequence[Candidate], said: Mapping[frozenset[str], RecordedChoice]
) -> PreferenceTally:
    """Count one person's choices between two versions. In each pair, the live version's trajectory comes first."""
    answered = [(one.pair[0], said[pair]) for one in pairs if (pair := frozenset(one.pair)) in said]
    ties = sum(chosen.choice.tie for _, chosen in answered)
    wins = sum(chosen.choice.better == ours and not chosen.choice.tie for ours, chosen in answered)
    first = sum(chosen.shown == _FIRST and not chosen.choice.tie for _, chosen in answered)
    rate = (wins + ties / 2) / len(answered) if answered else None
    interval = share_interval(rate, len(answered)) if rate is not None else None
    return PreferenceTally(live, other, wins, ties, len(answered) - wins - ties, first, rate, interval)


@dataclass(frozen=True, slots=True)
class PreferenceLabel:
    """A person's choice between two attempts of a group, by ids: one is better, or both are equally good (`tie`)."""

    group: str
    better: str
    worse: str
    tie: bool = False


async def list_preferences(project: Project) -> list[PreferenceLabel]:
    """Return all recorded choices between two attempts of one group, oldest first."""
    query = (
        select(feedback.c.trajectory_id, feedback.c.name, feedback.c.value, feedback.c.tags)
        .where(feedback.c.project_id == project.id, feedback.c.name.in_((PREFERENCE, TIE)))
        .order_by(feedback.c.created_at, feedback.c.id)
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    answered = [(row.tags, parse_choice(row.trajectory_id, row.name, row.value, row.tags)) for row in rows]
    return [
        PreferenceLabel(str(tags["group"]), choice.better, choice.worse, choice.tie)
        for tags, choice in answered
        if choice is not None and tags.get("group") and not tags.get("other_group")
    ]


async def list_ratings(project: Project, name: str) -> dict[str, dict[str, float]]:
    """Return each trajectory's newest numeric or boolean feedback with that name: group → trajectory → value."""
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
