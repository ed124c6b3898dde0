"""Shapes of a report, which are also its JSON.

Refuses: loading them (`recorder.report.contents`), and presentation (`terminal`, `page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recorder.queue.training.budgets import CampaignJudgingCost
from recorder.states import CampaignState
from recorder.views.campaigns.events import Alarm, CampaignMeasure, SettingChanged, StepDone
from recorder.views.campaigns.lengths import AttemptLengths
from recorder.views.campaigns.tokens import CampaignTokens
from recorder.views.lists.titles import title_of


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """The measure of a model after a number of steps, with a 95 % interval if there is one."""

    step: int
    version: str  # a version's name, or a baseline's
    value: float | None
    attempts: int  # that could be measured
    errored: int
    low: float | None = None
    high: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)  # means of an attempt
    adversarial: float | None = None  # the measure at adversarial scenarios
    adversarial_attempts: int = 0


@dataclass(frozen=True, slots=True)
class CampaignStatus:
    """The status of a campaign: a code and a sentence.

    `goes_on`: how to continue it, with commands between backticks; empty: nothing needs to be done.
    """

    code: str  # running, left, finished, paused, interrupted, failed
    text: str
    goes_on: str = ""


@dataclass(frozen=True, slots=True)
class GoalResult:
    """A goal beside the target, and whether the best version meets it; None: not measured."""

    text: str  # turns at most 4
    value: float | None
    holds: bool | None


@dataclass(frozen=True, slots=True)
class ReportMessage:
    """One message of a conversation. `cut`: how many characters are missing at its end."""

    role: str
    text: str
    cut: int = 0


@dataclass(frozen=True, slots=True)
class ReportConversation:
    """One trajectory. `skipped`: how many messages are omitted, after the first `head`."""

    trajectory: str
    version: str
    reward: float | None
    messages: Sequence[ReportMessage]
    skipped: int = 0
    head: int = 0


@dataclass(frozen=True, slots=True)
class ScenarioPair:
    """One scenario, attempted by the first version and by the best: of each the trajectory nearest to its mean reward.

    `rise`: by how much the mean reward rose; None where rewards of different groups cannot be compared. `task`: the
    beginning of its first user message.
    """

    scenario: str
    split: str
    before: ReportConversation
    after: ReportConversation
    rise: float | None
    task: str | None = None

    @property
    def title(self) -> str:
        """Its title, as pages and commands show it."""
        return title_of(self.task, self.scenario, self.scenario)


@dataclass(frozen=True, slots=True)
class AlarmEvidence:
    """An alarm, and the conversations of its evidence."""

    alarm: Alarm
    conversations: Sequence[ReportConversation] = ()


@dataclass(frozen=True, slots=True)
class ExcludedTrajectories:
    """Trajectories that were excluded for one reason, with its meaning."""

    code: str
    trajectories: int
    meaning: str


@dataclass(frozen=True, slots=True)
class WithheldTools:
    """Tools that may write and were not offered to attempts, and how many calls of such tools were refused."""

    tools: Sequence[str]
    refused_calls: int


@dataclass(frozen=True, slots=True)
class DrawnGroups:
    """Scored groups that were drawn for one reason (or, with an empty one, all that began steps, or all).

    `equal` of them had equal rewards, and their `wasted` of `attempts` taught nothing. `expected`: the mean estimated
    chance that a group's rewards differ.
    """

    reason: str
    groups: int
    equal: int
    attempts: int
    wasted: int
    expected: float | None


@dataclass(frozen=True, slots=True)
class DrawnScenario:
    """How often a scenario was drawn, also as a refill, and how often its rewards were equal.

    `reward` and `differ`: its estimated mean reward, and the estimated chance that its attempts differ, when it was
    drawn last.
    """

    scenario: str
    reward: float
    differ: float
    drawn: int
    equal: int
    refills: int


@dataclass(frozen=True, slots=True)
class CampaignDraws:
    """What a campaign drew, and why: by reason, and by scenario, the most often drawn first.

    `begun`: the groups that began steps. `all`: these and their refills.
    """

    choose: str
    explore_share: float
    refill: float
    begun: DrawnGroups
    all: DrawnGroups
    by_reason: Sequence[DrawnGroups]
    scenarios: Sequence[DrawnScenario]


@dataclass(frozen=True, slots=True)
class CampaignReport:
    """One campaign. Times are unix seconds.

    `first` is the version that it began with; `best` the newest validation of the best version; `served` the version in
    service when it ended, and `live` the one that serves now.
    """

    id: str
    name: str
    alias: str
    state: CampaignState
    made_at: float
    began_at: float
    ended_at: float | None
    status: CampaignStatus
    steps_done: int
    most_steps: int | None
    failed_steps: int
    kind: CampaignMeasure
    target: float | None
    beat: str | None  # the baseline to beat, as text
    own: Sequence[MeasuredPoint]  # of each step's own attempts
    validations: Sequence[MeasuredPoint]
    baselines: Sequence[MeasuredPoint]
    tests: Sequence[MeasuredPoint]
    first: str | None
    before: MeasuredPoint | None
    best: MeasuredPoint | None
    served: str | None
    live: str | None
    goals: Sequence[GoalResult]
    alarms: Sequence[AlarmEvidence]
    changes: Sequence[SettingChanged]
    judged: CampaignJudgingCost
    attempts: int
    errored: int
    trained: int
    excluded: Sequence[ExcludedTrajectories]
    withheld: WithheldTools
    seconds: Mapping[str, float]  # by phase
    health: Mapping[str, Sequence[float | None]]  # figure → its value at each step
    steps: Sequence[StepDone]
    pairs: Sequence[ScenarioPair]
    notes: Sequence[str]  # what is not in the report, and why
    computed_on: str | None = None  # what the newest step computed on instead of the base
    lengths: AttemptLengths | None = None  # of the training attempts
    draws: CampaignDraws | None = None  # None: all scenarios in turn, and no refill
    sampled: CampaignTokens = field(default_factory=lambda: CampaignTokens(0))  # by attempts and gates
