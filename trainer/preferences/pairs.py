"""Which two sides are a pair: people's choices, and the rewards of a group. Pure.

Owns: the choice of pairs, and why a pair is not trained on. Refuses: reading the store
(`trainer.preferences.candidates`), which answers may be trained on (`trainer.objectives.imitate_rows`), weights.

Of the rewards of a group one pair is taken: its best trajectory against its worst, if their rewards differ enough. More
pairs of one group would repeat the same comparison. A person's choice between two trajectories counts before their
rewards, and the newest choice between the same two is the one that counts; a tie gives no pair.

A pair is used whole or not at all: it compares all answers of two trajectories, so one that may not be trained on
excludes the pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from recorder.messages.trainability import Exclusion
from recorder.queue.groups.disputes import PairChoice, newest_choices
from recorder.stats.advantages import ZERO_VARIANCE
from trainer.demonstrations.chat_template import ChatTemplate
from trainer.demonstrations.rows import demonstrate_conversation
from trainer.objectives.imitate_rows import Demonstration, ImitateBasis
from trainer.objectives.prefer import PairSource, PreferencePair
from trainer.preferences.pair_files import PairRow

# Answers beside a trajectory's own: that they are not trained on changes nothing about the pair.
_NOT_COMPARED: Final = frozenset(
    {Exclusion.SUPERSEDED, Exclusion.AUXILIARY, Exclusion.NOT_SELECTED, Exclusion.NOT_COMPLETE}
)


class PairExclusion(StrEnum):
    """Why a pair is not trained on, beside `ImitationExclusion` and the recorder's `Exclusion`."""

    OTHER_MODEL = "other_model"  # the rejected side is of another model or alias
    DIFFERENT_TASKS = "different_tasks"  # the sides are not answers to the same task
    SAME_ANSWER = "same_answer"  # the sides have equal tokens


@dataclass(frozen=True, slots=True)
class PairCandidate:
    """Two trajectories, by their ids, of which the first is preferred."""

    chosen: str
    rejected: str
    source: PairSource

    @property
    def source_id(self) -> str:
        """The pair's id, in its order."""
        return f"{self.chosen}>{self.rejected}"


def choose_pairs(
    choices: Sequence[PairChoice], rewards: Sequence[Mapping[str, float]], margin: float
) -> list[PairCandidate]:
    """Return people's pairs, the newest first, and then those of groups.

    `choices`: the oldest first. `rewards`: trajectory id → reward, for each group.
    """
    stated = newest_choices(choices)
    said = {one.pair for one in stated}
    people = [PairCandidate(one.better, one.worse, "preference") for one in stated if not one.tie]
    ranked = [pair for group in rewards if (pair := rank_pair(group, margin)) is not None]
    return [*reversed(people), *(one for one in ranked if frozenset((one.chosen, one.rejected)) not in said)]


def rank_pair(rewards: Mapping[str, float], margin: float) -> PairCandidate | None:
    """Return the best and the worst of a group, the first by id of equal ones; None if they differ by less than
    `margin`, or not at all.
    """
    if len(rewards) < 2:
        return None
    ordered = sorted(rewards)
    best, worst = max(ordered, key=rewards.__getitem__), min(ordered, key=rewards.__getitem__)
    difference = rewards[best] - rewards[worst]
    smallest = max(ZERO_VARIANCE, margin - ZERO_VARIANCE)  # 0.7 − 0.2 is a little less than 0.5
    return PairCandidate(best, worst, "ranking") if difference > smallest else None


def pair_trajectories(
    candidate: PairCandidate, chosen: Demonstration, rejected: Demonstration, *, same_group: bool
) -> PreferencePair:
    """Return the pair of two trajectories, with the reason if it is not trained on. In a group the task is the same."""
    name = f"{candidate.chosen} over {candidate.rejected}"
    code = why_no_pair(chosen, rejected)
    if code is None and not same_group and chosen.task != rejected.task:
        code = PairExclusion.DIFFERENT_TASKS
    return PreferencePair(candidate.source_id, candidate.source, name, chosen, rejected, code)


def pair_row(row: PairRow, basis: ImitateBasis, template: ChatTemplate) -> PreferencePair:
    """Return the pair of a file's row, with the reason if it is not trained on."""
    chosen, rejected = (demonstrate_conversation(side, basis, template) for side in (row.chosen, row.rejected))
    return PreferencePair(row.source_id, "file", row.name, chosen, rejected, why_no_pair(chosen, rejected))


def why_no_pair(chosen: Demonstration, rejected: Demonstration) -> str | None:
    """Return why two sides cannot be compared by their tokens."""
    for side in (chosen, rejected):
        if side.code is not None:
            return side.code
        if (spoilt := next((one.code for one in side.skipped if one.code not in _NOT_COMPARED), None)) is not None:
            return spoilt
    if _tokens(chosen) == _tokens(rejected):
        return PairExclusion.SAME_ANSWER
    return None


def _tokens(side: Demonstration) -> list[tuple[bytes, bytes]]:
    return sorted((row.token_ids.tobytes(), row.trained.tobytes()) for row in side.rows)
