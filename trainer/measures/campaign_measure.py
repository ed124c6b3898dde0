"""The measure by which a campaign's versions are compared: success, wins against version 0, mean reward, or none. Pure.

Owns: the choice, what cannot be requested without a measure, whether goals are met, and wins: a version's attempts at a
scenario against version 0's one attempt, in one blind group. Refuses: measuring (`trainer.campaign.measurement`),
scoring, and stopping (`trainer.campaign.stop_rules`).

RULER's scores compare the trajectories of one group. Their mean over groups says nothing about a version, so it is
never a measure: if RULER is the only reward, a version attempts each scenario in one blind group with version 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from judge.settings import RewardSettings
from recorder.views.campaigns.events import CampaignMeasure, Validation
from trainer.campaign_settings import CampaignSettings, GoalSettings
from trainer.errors import CampaignError
from trainer.measures.arms import baseline_arms


def choose_measure(
    settings: CampaignSettings, rewards: Sequence[RewardSettings], *, validated: bool
) -> CampaignMeasure:
    """The measure of a campaign. `validated`: there are validation scenarios."""
    if settings.success is not None:
        return CampaignMeasure.SUCCESS
    if is_averaged(rewards):
        return CampaignMeasure.REWARD
    return CampaignMeasure.WINS if validated and _scores(rewards) == {"ruler"} else CampaignMeasure.NOTHING


def is_averaged(rewards: Sequence[RewardSettings]) -> bool:
    """Whether a mean of rewards over groups is a measure."""
    return "ruler" not in _scores(rewards)


def _scores(rewards: Sequence[RewardSettings]) -> set[str]:
    return {reward.kind for reward in rewards if reward.weight > 0 and reward.effect == "score"}


def require_measurable(settings: CampaignSettings, measure: CampaignMeasure, *, validated: bool) -> None:
    """Raise `CampaignError` for settings that this campaign can never measure."""
    if measure is CampaignMeasure.NOTHING and settings.target is not None:
        raise CampaignError(
            "campaign.target cannot be reached: RULER is part of the reward, and its scores compare trajectories of "
            "one group; their mean over groups is no measure. Set campaign.success (a function, or another part's "
            "name), or give validation scenarios where RULER is the only reward: the win rate is then measured."
        )
    if validated:
        _refuse_unseen(settings, measure)
        return
    wanted = {"campaign.baselines": baseline_arms(settings), "campaign.goals": settings.goals}
    if without := [key for key, value in wanted.items() if value]:
        raise CampaignError(
            f"{' and '.join(without)}: there is nothing to measure them with. Give scenarios that are never trained "
            "on, with --val-scenarios or campaign.val_scenarios."
        )


def _refuse_unseen(settings: CampaignSettings, measure: CampaignMeasure) -> None:
    """Between the first and the last validation a target is checked on the steps' own attempts, which have no wins and
    are not comparable with a baseline.
    """
    held_to = settings.beat is not None or settings.goals or measure is CampaignMeasure.WINS
    if settings.target is not None and held_to and settings.val_every is None:
        raise CampaignError(
            "campaign.target is compared with validations here, and there are only two: before the first step and "
            "after the last. Set the steps between two validations with --val-every or campaign.val_every."
        )


def unmet_goals(goals: Sequence[GoalSettings], newest: Validation | None) -> list[str]:
    """The goals that the newest validation does not meet, as text."""
    found = [_goal_unmet(goal, newest) for goal in goals]
    return [text for text in found if text is not None]


def _goal_unmet(goal: GoalSettings, newest: Validation | None) -> str | None:
    value = newest.figures.get(goal.metric) if newest is not None else None
    if value is None:
        return f"{goal.metric} was not measured"
    if goal.at_most is not None and value > goal.at_most:
        return f"{goal.metric} {value:.3g} is above {goal.at_most:g}"
    if goal.at_least is not None and value < goal.at_least:
        return f"{goal.metric} {value:.3g} is below {goal.at_least:g}"
    return None


TIE: Final = 0.5


@dataclass(frozen=True, slots=True)
class AttemptValue:
    """The value of an attempt in its group. `spoilt`: its agent failed, so it ranks below all others."""

    reward: float | None
    spoilt: bool = False

    @property
    def value(self) -> float | None:
        """The value to compare; None: unknown."""
        return -math.inf if self.spoilt else self.reward


@dataclass(frozen=True, slots=True)
class WinRate:
    """The share (0..1) of comparisons that were won; a tie counts one half."""

    share: float | None
    compared: int


def compare_values(ours: AttemptValue, theirs: AttemptValue) -> float | None:
    """1 for a win, 0 for a loss, `TIE`; None if either is unknown."""
    one, other = ours.value, theirs.value
    if one is None or other is None:
        return None
    return TIE if one == other else float(one > other)


def count_wins(groups: Iterable[tuple[Sequence[AttemptValue], AttemptValue]]) -> WinRate:
    """All comparisons of all groups: each of ours with the one of theirs."""
    found = [won for ours, theirs in groups for one in ours if (won := compare_values(one, theirs)) is not None]
    return WinRate(sum(found) / len(found) if found else None, len(found))
