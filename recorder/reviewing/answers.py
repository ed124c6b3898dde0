"""What a person answered about two runs: written down, and counted where one version is held against another.

Owns: what an answer is, that it is of a pair as this person was shown it, and the count. Refuses: the rows
(`recorder.work.feedback`), and what becomes of a group's score (`judge.panel.choice`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from recorder.errors import Conflict
from recorder.judged.choices import Choice
from recorder.learned.intervals import of_share
from recorder.reviewing.drawing import draw_of
from recorder.reviewing.runs import Chosen
from recorder.reviewing.shapes import Candidate, Tally
from recorder.store.project import Project
from recorder.work import feedback

_FIRST, _SECOND = "first", "second"


class Answer(StrEnum):
    """Which of the two runs is better: the first (`a`), the second (`b`), or neither."""

    A = "a"
    B = "b"
    SAME = "same"


async def answer(
    project: Project,
    first: str,
    second: str,
    said: Answer,
    *,
    by: str,
    comment: str | None = None,
) -> str:
    """Write what a person found of two runs (internal ids), as they were shown; the feedback's id.

    It is feedback `preference` on the better one, or `tie` on the first; its tags say where that stood. Raises
    Conflict where this person is shown the two the other way round, NotFound, ValueError.
    """
    if (await draw_of(project)).sides(by, first, second) != (first, second):
        raise Conflict("the two runs are not in the order in which you are shown them: open the pair again")
    better, worse = (second, first) if said is Answer.B else (first, second)
    choice = Choice(better, worse, tie=said is Answer.SAME)
    shown = _SECOND if said is Answer.B else _FIRST
    return await feedback.choose(project, choice, by=by, shown=shown, comment=comment)


def tally(live: str, other: str, pairs: Sequence[Candidate], said: Mapping[frozenset[str], Chosen]) -> Tally:
    """The count of what one person said of pairs, each with the live version's run in front."""
    told = [(one.pair[0], said[pair]) for one in pairs if (pair := frozenset(one.pair)) in said]
    ties = sum(chosen.choice.tie for _, chosen in told)
    wins = sum(chosen.choice.better == ours and not chosen.choice.tie for ours, chosen in told)
    first = sum(chosen.shown == _FIRST and not chosen.choice.tie for _, chosen in told)
    rate = (wins + ties / 2) / len(told) if told else None
    interval = of_share(rate, len(told)) if rate is not None else None
    return Tally(live, other, wins, ties, len(told) - wins - ties, first, rate, interval)
