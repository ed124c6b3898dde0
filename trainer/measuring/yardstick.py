"""By what a campaign's versions are compared: success, wins against version 0, the mean reward, or nothing.

Owns: which of them it is, what cannot be asked for without one, and whether goals are met. Pure. Refuses: measuring
(`trainer.campaign.measure`, `trainer.measuring.wins`), stopping (`trainer.campaign.stop`).

RULER's scores compare the runs of one group. Their mean over groups says nothing of a version, so it is never one's
measure: where RULER alone is the reward, a version attempts each scenario in one blind group with version 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from judge.settings import RewardSettings
from trainer.campaign_settings import CampaignSettings, GoalSettings
from trainer.errors import CampaignError
from trainer.measuring.sides import named
from trainer.progress import StepDone, Validated

SPREAD: Final = "reward_std"  # of a validation's figures, and of the trainer's metrics


class Yardstick(StrEnum):
    """What is compared."""

    SUCCESS = "success"
    WINS = "wins"  # the share of comparisons with version 0 that are won
    REWARD = "reward"
    NOTHING = "nothing"


def chosen(settings: CampaignSettings, rewards: Sequence[RewardSettings], *, validated: bool) -> Yardstick:
    """What a campaign is measured by. `validated`: there are scenarios to validate with."""
    if settings.success is not None:
        return Yardstick.SUCCESS
    if averaged(rewards):
        return Yardstick.REWARD
    return Yardstick.WINS if validated and _scores(rewards) == {"ruler"} else Yardstick.NOTHING


def averaged(rewards: Sequence[RewardSettings]) -> bool:
    """Whether a mean of rewards over groups says anything."""
    return "ruler" not in _scores(rewards)


def _scores(rewards: Sequence[RewardSettings]) -> set[str]:
    return {reward.kind for reward in rewards if reward.weight > 0 and reward.effect == "score"}


def refuse_unmeasured(settings: CampaignSettings, yardstick: Yardstick, *, validated: bool) -> None:
    """Raise `CampaignError` for what could never be said of this campaign."""
    if yardstick is Yardstick.NOTHING and settings.target is not None:
        raise CampaignError(
            "campaign.target cannot be reached: RULER is part of the reward, and its scores compare the runs of one "
            "group; their mean over groups measures nothing. Set campaign.success (a function, or another part's "
            "name), or give validation scenarios where RULER is the only reward: the win rate is then measured."
        )
    if validated:
        _refuse_unseen(settings, yardstick)
        return
    wanted = {"campaign.baselines": named(settings), "campaign.goals": settings.goals}
    if without := [key for key, value in wanted.items() if value]:
        raise CampaignError(
            f"{' and '.join(without)}: there is nothing to measure them with. Give scenarios that are never trained "
            "on, with --val-scenarios or campaign.val_scenarios."
        )


def _refuse_unseen(settings: CampaignSettings, yardstick: Yardstick) -> None:
    """Between the first validation and the last a target is looked for in the steps' own attempts, and they are no wins
    and not comparable with a baseline's.
    """
    held_to = settings.beat is not None or settings.goals or yardstick is Yardstick.WINS
    if settings.target is not None and held_to and settings.val_every is None:
        raise CampaignError(
            "campaign.target is held to validations here, and there is one before the first step and one after the "
            "last only: say with --val-every or campaign.val_every after how many steps there is another."
        )


def value_of(event: StepDone | Validated, yardstick: Yardstick) -> float | None:
    """What an event says by the yardstick; None: nothing."""
    if yardstick is Yardstick.SUCCESS:
        return event.success
    if yardstick is Yardstick.REWARD:
        return event.reward
    return event.win_rate if yardstick is Yardstick.WINS and isinstance(event, Validated) else None


def spread_of(event: StepDone | Validated, yardstick: Yardstick) -> float | None:
    """The standard deviation of one attempt's value; None: it is a share, or nobody wrote it down."""
    known = event.figures if isinstance(event, Validated) else event.metrics
    return known.get(SPREAD) if yardstick is Yardstick.REWARD else None


def unmet(goals: Sequence[GoalSettings], newest: Validated | None) -> list[str]:
    """Which goals do not hold in the newest validation, in words."""
    found = [_goal_unmet(goal, newest) for goal in goals]
    return [text for text in found if text is not None]


def _goal_unmet(goal: GoalSettings, newest: Validated | None) -> str | None:
    value = newest.figures.get(goal.metric) if newest is not None else None
    if value is None:
        return f"{goal.metric} was not measured"
    if goal.at_most is not None and value > goal.at_most:
        return f"{goal.metric} {value:.3g} is above {goal.at_most:g}"
    if goal.at_least is not None and value < goal.at_least:
        return f"{goal.metric} {value:.3g} is below {goal.at_least:g}"
    return None
