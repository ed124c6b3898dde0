"""One part of a trajectory's reward, as every kind returns it, and the parts that a judge model gave one by one.

Refuses: where parts come from (`judge.rewards.kinds`) and how they are combined (`judge.scoring.reward_parts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from judge.errors import JudgeUsage
from recorder.queue.judging.records import Messages


@dataclass(frozen=True, slots=True)
class RewardPart:
    """One part of a trajectory's reward; `value` None: there is none, and `explanation` says why.

    `extra`: named numbers beside the value, which are stored and change no reward. `reasons`: their explanations, by
    the same names. `of_run`: the missing value is the trajectory's own fault (a check failed on it), not the judge's or
    the users'. `unasked`: the value was assigned without asking a judge; it ties its group, and means nothing outside
    it. `undecided`: code that should have given the value could not (a rule, a criterion's check, a function), and will
    most likely not at the next try. `absent`: users gave none, and nobody waits for it any longer.
    """

    value: float | None
    explanation: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    of_run: bool = True
    unasked: bool = False
    undecided: bool = False
    absent: bool = False


@dataclass(slots=True)
class ModelParts:
    """What a judge model that reads trajectories one by one gave for a group. `judged`: whether any needed the model.

    `prompts`: the prompt about each; for a reused verdict, an equal one except for nonce, order and ids.
    """

    parts: dict[str, RewardPart] = field(default_factory=dict)
    prompts: dict[str, Messages] = field(default_factory=dict)
    judged: bool = False
    asked: int = 0  # requests to the judge, without repairs
    version: str | None = None
    spent: JudgeUsage = field(default_factory=JudgeUsage)
