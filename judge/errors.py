"""Everything that can go wrong while judging, as one tree.

JudgeError
├── JudgeMisconfigured    the settings cannot work: no judge is set, or a part of a recipe has none
├── TasksInvalid          a file of tasks for `hone judge check` is invalid; the message names the line
├── LabelsInvalid         a file of human labels is invalid; the message names the line
├── ReplyRefused          the judge's reply is not one score for each id; the judge is shown the message
├── RequestNotSent        the request was counted and not sent (`hone score --dry-run`)
├── JudgeUnavailable      this group can never be scored: it is excluded, with the reason `code`
└── JudgeFailed           this group cannot be scored now: it is unscored, with the reason `code`, and tried again
    ├── JudgeDown         the judge is unreachable, overloaded, too slow or broken, or refuses the request
    ├── JudgeUnanswered   neither of two replies could be read, or the judge declined or was cut off
    ├── QuorumMissed      too few of a panel's replies could be read (`judge.quorum`)
    ├── PromptTooLong     the prompt has no room for two trajectories of any length
    ├── FunctionsDown     the process of the reward functions does not start or cannot import them
    ├── RecipeUnknown     the group asks for a judge recipe that these settings do not have
    └── PartsMissing      too few trajectories have a reward, because parts of it are missing
        ├── CheckUndecided  code cannot decide these parts: after a few tries the group is excluded
        └── NoFollowUp    nothing that users wrote gives these parts: the group is excluded
"""

from __future__ import annotations

from dataclasses import dataclass

from recorder.base.errors import MISCONFIGURED, HoneError


@dataclass(slots=True)
class JudgeUsage:
    """The usage of judge requests, whether or not they led to a score."""

    tokens_in: int = 0
    tokens_cached: int = 0  # of `tokens_in`: read from the provider's prompt cache, at a lower price
    tokens_out: int = 0
    cost_usd: float | None = None  # None: the price is not known
    latency_s: float = 0.0

    def __add__(self, other: JudgeUsage) -> JudgeUsage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return JudgeUsage(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_cached=self.tokens_cached + other.tokens_cached,
            tokens_out=self.tokens_out + other.tokens_out,
            cost_usd=sum(costs) if costs else None,
            latency_s=self.latency_s + other.latency_s,
        )


class JudgeError(HoneError):
    """Base of all errors of this package. The message says what, where and what to do."""


class JudgeMisconfigured(JudgeError):
    """The settings cannot work: no judge is set, or a part of a recipe has none."""

    exit_code = MISCONFIGURED


class TasksInvalid(JudgeError):
    """A file of tasks is invalid."""


class LabelsInvalid(JudgeError):
    """A file of human labels is invalid."""


class ReplyRefused(JudgeError):
    """A reply is not one clear score for each id."""


class RequestNotSent(JudgeError):
    """A request to the judge was counted instead of sent."""


class JudgeUnavailable(JudgeError):
    """The group can never be scored."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class JudgeFailed(JudgeError):
    """The group cannot be scored now. `wait_s`: when to try again, if known."""

    def __init__(
        self, code: str, message: str, *, spent: JudgeUsage | None = None, wait_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.spent = spent or JudgeUsage()
        self.wait_s = wait_s


class JudgeDown(JudgeFailed):
    """The judge did not answer."""


class JudgeUnanswered(JudgeFailed):
    """The judge's answers contain no verdict. `exchange`: all messages, prompt and replies, in order."""

    def __init__(self, code: str, message: str, *, spent: JudgeUsage, exchange: list[dict[str, str]]) -> None:
        super().__init__(code, message, spent=spent)
        self.exchange = exchange


class QuorumMissed(JudgeFailed):
    """Too few of the requested replies could be read."""


class PromptTooLong(JudgeFailed):
    """The prompt has no room for a group even after truncation: its limit or the rubric must change."""


class FunctionsDown(JudgeFailed):
    """The reward functions cannot be run at all."""


class RecipeUnknown(JudgeFailed):
    """The group's campaign or alias names a recipe that this judge does not have, or that is empty."""


class PartsMissing(JudgeFailed):
    """Too few trajectories have every required part of the reward."""


class CheckUndecided(PartsMissing):
    """So many trajectories have a check that code could not decide that too few can get a reward."""


class NoFollowUp(PartsMissing):
    """So few trajectories have a follow-up that says something about them that too few can get a reward."""
