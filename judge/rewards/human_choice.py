"""Human choices in a group: where judges disagree, the choice becomes the score. Pure.

Owns: which feedback counts as a choice, and the values of choices. Refuses: storing feedback
(`recorder.queue.feedback`), what follows from choices (`recorder.queue.groups.disputes`), and when people are asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from recorder.queue.feedback import SCORE, parse_choice
from recorder.queue.groups.disputes import PairChoice, transitive_preferences
from recorder.views.trajectories.shapes import FeedbackView

Feedback = Mapping[str, Sequence[FeedbackView]]  # by trajectory id
_NAME_CHARS, _MOST_NAMES = 60, 3


@dataclass(frozen=True, slots=True)
class HumanChoice:
    """A human choice about one trajectory: a value in 0..1, and why."""

    value: float
    why: str


def human_choices(group_id: str, feedback: Feedback) -> dict[str, HumanChoice]:
    """The human choices about a group's trajectories; empty if no two of them can be compared.

    Scores (feedback `score`, 0 to 1) take precedence over preferences. Trajectories without choice or score have no
    value.
    """
    scored = {run: one for run, entries in feedback.items() if (one := _score(entries)) is not None}
    if len(scored) > 1:
        return scored
    choices = [choice for _, choice in sorted(_choices(group_id, feedback), key=lambda one: one[0])]
    return _ordered(choices, {by for _, by in choices if by})


def _score(entries: Sequence[FeedbackView]) -> HumanChoice | None:
    named = [one for one in entries if one.name == SCORE and isinstance(one.value, bool | int | float)]
    if not named:
        return None
    newest = max(named, key=lambda one: one.created_at)
    return HumanChoice(float(newest.value), newest.comment or "a person scored it") if 0 <= newest.value <= 1 else None


def _choices(group_id: str, feedback: Feedback) -> Iterator[tuple[float, tuple[PairChoice, str | None]]]:
    """Choices between two trajectories of the group, with time and author."""
    for run, entries in feedback.items():
        for one in entries:
            choice = parse_choice(run, one.name, one.value, one.tags)
            if choice is not None and one.tags.get("group") == group_id and choice.worse in feedback:
                yield one.created_at, (choice, one.tags.get("by"))


def _ordered(choices: Sequence[tuple[PairChoice, str | None]], by: Collection[str]) -> dict[str, HumanChoice]:
    """For each trajectory, the share of comparable ones that it beats; a tie counts one half.

    Choices are transitive: A over B and B over C makes A over C.
    """
    at_least = transitive_preferences(choice for choice, _ in choices)
    who = f" ({', '.join(sorted(one[:_NAME_CHARS] for one in by)[:_MOST_NAMES])})" if by else ""
    found: dict[str, HumanChoice] = {}
    for run, below in at_least.items():
        above = {other for other, its in at_least.items() if run in its}
        better, worse, as_good = len(below - above), len(above - below), len(above & below)
        why = f"people{who} chose: better than {better} of the others, worse than {worse}"
        why += f", as good as {as_good}" if as_good else ""
        found[run] = HumanChoice((better + as_good / 2) / len(above | below), why)
    return found
