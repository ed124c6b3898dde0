"""When a step of live learning is due, and how what is missing is told: from counts and times alone.

Owns: the rule of `trainer.min_groups` and `max_wait_s`, and its words. Refuses: the store (`trainer.programs.waiting`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recorder.base.terminal import duration
from recorder.states import GroupState
from recorder.work import baselines
from recorder.work.claims import Waiting
from trainer.settings import TrainerSettings

FEWEST: Final = 2  # a step of one group follows one task alone

_ON_THE_WAY: Final = (
    (GroupState.TRIED, "tried in a version that is not decided"),
    (GroupState.SCORED, "scored"),
    (GroupState.UNSCORED, "could not be scored yet"),
    (GroupState.JUDGING, "being judged"),
    (GroupState.READY, "ready for the judge"),
    (GroupState.OPEN, "still open"),
)


def due_in_s(waiting: Waiting, settings: TrainerSettings) -> float | None:
    """In how many seconds a step is due with what waits now; 0: it is. None: not before more groups are scored."""
    if waiting.groups >= settings.min_groups:
        return 0.0
    if waiting.groups < FEWEST:
        return None
    return max(0.0, settings.max_wait_s - waiting.first_s)


def waits_for(counts: Mapping[GroupState, int], settings: TrainerSettings) -> str:
    """What a learner waits for, in words without times, from the number of groups in each state."""
    there = [f"{counts[state]} {words}" for state, words in _ON_THE_WAY if counts.get(state)]
    needed = f"{settings.min_groups} scored group" + ("s" if settings.min_groups > 1 else "")
    return f"for {needed}; there is: {', '.join(there) or 'no group yet'}"


def without_baseline(lacking: Mapping[str, int]) -> str:
    """What is said of runs that wait for a running baseline, from how many rewards their recipes have each."""
    if not lacking:
        return ""
    most = max(lacking.values())
    return f"; a running baseline needs more than {baselines.FEWEST} rewards by one recipe: {most} are there"


def with_times(text: str, due_s: float | None, closes_s: float | None) -> str:
    """What is waited for, with the times that are known: of the next group that closes, of a step on what is there."""
    if closes_s is not None:
        text += f"; the next group closes in {duration(closes_s)}" if closes_s > 0 else "; a group closes now"
    if due_s is not None and due_s > 0:
        text += f"; a step on those that are scored in {duration(due_s)}"
    return text
