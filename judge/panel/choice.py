"""What people chose in a group: where judges disagree, that is its score.

Owns: which feedback is a choice, and the values that choices make. Pure. Refuses: storing feedback
(`recorder.work.feedback`), and when people are asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from recorder.reading.views import FeedbackView
from recorder.work.feedback import PREFERENCE, SCORE

Feedback = Mapping[str, Sequence[FeedbackView]]  # by trajectory id


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a person's choice says of one run: a value in 0..1, and how."""

    value: float
    why: str


def chosen(group_id: str, feedback: Feedback) -> dict[str, Chosen]:
    """What people say of the runs of a group; empty: they say nothing by which two of them could be compared.

    Scores (feedback `score`, 0 to 1) go before preferences. Runs that nobody chose or scored have no value.
    """
    scored = {run: one for run, said in feedback.items() if (one := _score(said)) is not None}
    if len(scored) > 1:
        return scored
    return _by_pairs(_pairs(group_id, feedback))


def _score(said: Sequence[FeedbackView]) -> Chosen | None:
    named = [one for one in said if one.name == SCORE and isinstance(one.value, bool | int | float)]
    if not named:
        return None
    newest = max(named, key=lambda one: one.created_at)
    return Chosen(float(newest.value), newest.comment or "a person scored it") if 0 <= newest.value <= 1 else None


def _pairs(group_id: str, feedback: Feedback) -> list[tuple[str, str]]:
    """Who is better than whom; of two that were held against each other more than once, by what was said last."""
    said = sorted(_preferences(group_id, feedback), key=lambda one: one[0])
    return list({frozenset(pair): pair for _, pair in said}.values())


def _preferences(group_id: str, feedback: Feedback) -> Iterator[tuple[float, tuple[str, str]]]:
    for better, said in feedback.items():
        for one in said:
            worse = one.tags.get("loser")
            if one.name == PREFERENCE and one.value and one.tags.get("group") == group_id and worse in feedback:
                yield one.created_at, (better, str(worse))


def _by_pairs(pairs: Sequence[tuple[str, str]]) -> dict[str, Chosen]:
    """Of the runs that a run compares with, by pairs and what follows from pairs, the share that it is better than."""
    better_than: dict[str, set[str]] = {run: set() for pair in pairs for run in pair}
    for better, worse in pairs:
        better_than[better].add(worse)
    beaten = {run: _reached(run, better_than) for run in better_than}
    found: dict[str, Chosen] = {}
    for run in better_than:
        wins, losses = len(beaten[run]), sum(run in others for others in beaten.values())
        why = f"people chose: better than {wins} of the others, worse than {losses}"
        found[run] = Chosen(wins / (wins + losses), why)
    return found


def _reached(run: str, better_than: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    todo = [run]
    while todo:
        new = better_than[todo.pop()] - reached
        reached |= new
        todo += new
    return reached - {run}
