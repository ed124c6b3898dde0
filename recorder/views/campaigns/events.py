"""The events of a campaign: one frozen class for each kind, and the code of its row in the ledger.

Owns: these classes, their codes, and encoding and decoding them as stored JSON. Pure. Refuses: the history of a
campaign (`recorder.views.campaigns.history`), and what events measure (`recorder.views.campaigns.measures`).

Stored JSON has the fields of the class by the same names. Rows of older programs lack some fields: an old validation
ends with `seconds`, and an old start of a campaign has no `measure`. Missing fields get their defaults. Unknown fields
are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STEP: Final = "step"
VALIDATION: Final = "validation"  # a measure of a version at held-out scenarios
BASELINE: Final = "baseline"
TEST: Final = "test"
ALARM: Final = "alarm"
CHANGE: Final = "change"
JUDGED: Final = "judged_by"
JUDGE_CHANGED: Final = "judge_changed"
ENDED: Final = "ended"
BEGUN: Final = "begun"


class CampaignMeasure(StrEnum):
    """The measure by which the versions of a campaign are compared."""

    SUCCESS = "success"
    WINS = "wins"  # the share of comparisons with version 0 that are won
    REWARD = "reward"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step has ended. Shares are in 0..1; None: not measured, or nothing was trained.

    `errored` of the `attempts` did not complete. No figure counts them, except that `success` counts
    `agent_failures` of them: their agents raised an exception or timed out, which is a failure of the version.
    """

    step: int
    version: str | None  # the live version after the step
    sampled_by: str  # the version that made the attempts, or most of them
    success: float | None
    reward: float | None
    kl: float | None  # KL(engine ‖ trainer) before the update
    kl_base: float | None
    tokens_per_s: float | None  # trained tokens
    attempts: int
    errored: int
    trained: int  # trajectories
    left_out: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    failed: bool = False  # because of a fault, not because there was nothing to train on
    metrics: Mapping[str, float] = field(default_factory=dict)  # all of the trainer's metrics
    measured_attempts: int | None = None  # behind `success`, else behind `reward`; None in older rows
    agent_failures: int = 0
    undecided: str = ""  # why no group could be scored, if code cannot decide their checks
    # Of each scenario by its id, but adversarial ones: attempts, mean and standard deviation of `scenario_measure`.
    scenarios: Mapping[str, Sequence[float]] = field(default_factory=dict)
    scenario_measure: str = ""  # reward; success, if a judge that compares attempts has a part in the reward


@dataclass(frozen=True, slots=True)
class Validation:
    """A model's measure on the scenarios of one part; `attempts` counts those that could be measured."""

    step: int  # the number of steps before it
    version: str  # a version's name, or a baseline's
    success: float | None
    reward: float | None
    attempts: int
    errored: int  # not among `attempts`, except `agent_failures` of them
    seconds: float
    part: str = "val"  # val, or test: measured once, at the end
    baseline: bool = False  # only measured for comparison, never trained
    win_rate: float | None = None  # share of comparisons with version 0 won, a tie half; `attempts` counts them then
    figures: Mapping[str, float] = field(default_factory=dict)  # means of an attempt: turns, tokens, seconds, part.NAME
    adversarial: float | None = None  # the measure at scenarios that tempt the agent to cheat
    adversarial_attempts: int = 0
    agent_failures: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """A health rule fired after a step. `evidence`: the attempts that gained most, with the part of the reward."""

    step: int
    rule: str
    then: str  # note, pause, or stop: the campaign ended
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)
    evidence: Sequence[Mapping[str, Any]] = ()  # {"trajectory", "reward", "part"}


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """A change of a setting or of the judge recipe during a pause, or of the judge at any time.

    It applies after `step`. After a `judge_changed`, all figures are by the new judge.
    """

    step: int
    what: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class CampaignEnded:
    """The campaign has ended."""

    campaign: str
    reason: str
    detail: str
    steps: int
    version: str | None
    seconds: float
    success_before: float | None = None
    success_after: float | None = None
    attempts_before: int = 0  # the number of attempts behind these two
    attempts_after: int = 0
    versions: Mapping[str, float | None] = field(default_factory=dict)  # success of the attempts each version sampled
    trained: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CampaignBegun:
    """The program of a campaign starts or resumes. `paused`: it was paused before.

    `recipe`: the judge recipe. `measure`, `plateau_steps` and `epoch_steps` are what the rules use and the settings do
    not have; `measure` is None in rows of older programs.
    """

    step: int
    paused: bool = False
    recipe: Mapping[str, Any] = field(default_factory=dict)
    measure: CampaignMeasure | None = None
    plateau_steps: int | None = None
    epoch_steps: int | None = None


@dataclass(frozen=True, slots=True)
class StepJudges:
    """The judges of a step, if they changed: model, version and recipe of each. `turn`: which of two judges scored."""

    step: int
    judges: Sequence[Sequence[str]]
    turn: int = 0


CampaignEvent = StepDone | Validation | Alarm | SettingChanged | CampaignEnded | CampaignBegun | StepJudges

_CLASSES: Final[Mapping[str, type[CampaignEvent]]] = {
    STEP: StepDone, VALIDATION: Validation, BASELINE: Validation, TEST: Validation, ALARM: Alarm,
    CHANGE: SettingChanged, JUDGE_CHANGED: SettingChanged, ENDED: CampaignEnded, BEGUN: CampaignBegun,
    JUDGED: StepJudges,
}  # fmt: skip
# Values of missing fields that have no default; None for any other.
_ABSENT: Final[Mapping[str, Any]] = {
    "step": 0, "sampled_by": "", "attempts": 0, "errored": 0, "trained": 0, "seconds": 0.0,
}  # fmt: skip

D = TypeVar("D", bound="DataclassInstance")


def encode_event(event: CampaignEvent) -> dict[str, Any]:
    """Return an event as the JSON that is stored."""
    return asdict(event)


def decode_event(code: str, stored: Mapping[str, Any]) -> CampaignEvent | None:
    """Return the event of a ledger row by any version of the program, or None if the code is not a campaign event's."""
    kind = _CLASSES.get(code)
    event = decode_fields(kind, stored) if kind is not None else None
    if isinstance(event, CampaignBegun) and event.measure is not None:
        return replace(event, measure=CampaignMeasure(event.measure))
    return event


def decode_fields(kind: type[D], stored: Mapping[str, Any]) -> D:
    """Return an object of a dataclass from stored values; unknown values are ignored.

    A null or missing value becomes the field's default, or if it has none, the value in `_ABSENT`.
    """
    given = {one.name: stored[one.name] for one in fields(kind) if stored.get(one.name) is not None}
    needed = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    return kind(**{name: _ABSENT.get(name) for name in needed} | given)
