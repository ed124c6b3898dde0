"""What a campaign writes down: one frozen class for each kind of event, and the code of its row in the ledger.

Owns: these classes, their codes, and both directions between them and the stored JSON. Pure. Refuses: the history that
events add up to (`recorder.views.campaigns.history`), and what they measure (`recorder.views.campaigns.measures`).

Stored JSON has a field for each field of a class, by the same name. Rows of older programs lack some: a validation of
before there were parts ends with `seconds`, and a run of a program of before rules were written down has no `measure`.
Such rows read as the defaults say. A field that this program does not know is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STEP: Final = "step"
VALIDATION: Final = "validation"  # what a version was measured at, by scenarios that nobody trains on
BASELINE: Final = "baseline"
TEST: Final = "test"
ALARM: Final = "alarm"
CHANGE: Final = "change"
JUDGED: Final = "judged_by"
JUDGE_CHANGED: Final = "judge_changed"
ENDED: Final = "ended"
BEGUN: Final = "begun"


class CampaignMeasure(StrEnum):
    """By what the versions of a campaign are compared."""

    SUCCESS = "success"
    WINS = "wins"  # the share of comparisons with version 0 that are won
    REWARD = "reward"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step is over. Shares are in 0..1; None: not measured, or nothing was trained.

    `errored` of the `attempts` did not end by themselves; no figure counts them, except `agent_failures` of them in
    `success`: their agents raised an exception, or took too long, which is a failure of the version.
    """

    step: int
    version: str | None  # live after the step
    sampled_by: str  # the version that attempted it
    success: float | None
    reward: float | None
    kl: float | None  # KL(engine ‖ trainer) before the update
    kl_base: float | None
    tokens_per_s: float | None  # trained
    attempts: int
    errored: int
    trained: int  # trajectories
    left_out: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    failed: bool = False  # by a fault, not because there was nothing to learn
    metrics: Mapping[str, float] = field(default_factory=dict)  # all of the trainer's
    measured_attempts: int | None = None  # behind `success`, else behind `reward`; None: older rows do not say
    agent_failures: int = 0


@dataclass(frozen=True, slots=True)
class Validation:
    """A model's measure on the scenarios of one part; `attempts` counts those that could be measured."""

    step: int  # after how many
    version: str  # a version's name, or a baseline's
    success: float | None
    reward: float | None
    attempts: int
    errored: int  # not among `attempts`, except `agent_failures` of them
    seconds: float
    part: str = "val"  # val, or test: measured once, at the end
    baseline: bool = False  # measured to be compared with, and never trained
    win_rate: float | None = None  # share of comparisons with version 0 won, a tie half; `attempts` counts them then
    figures: Mapping[str, float] = field(default_factory=dict)  # means of an attempt: turns, tokens, seconds, part.NAME
    adversarial: float | None = None  # the measure at scenarios that tempt to cheat
    adversarial_attempts: int = 0
    agent_failures: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """A health rule spoke after a step. `evidence`: the attempts that gained most, and the part that paid for them."""

    step: int
    rule: str
    then: str  # note, pause, or stop: the campaign has come to its end
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)
    evidence: Sequence[Mapping[str, Any]] = ()  # {"trajectory", "reward", "part"}


@dataclass(frozen=True, slots=True)
class SettingChanged:
    """What was changed: between a pause and going on a setting or the judge's recipe, and at any time who judges.

    `step`: after which it holds; after that of `judge_changed`, figures are the new judge's alone.
    """

    step: int
    what: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class CampaignEnded:
    """The campaign is over."""

    campaign: str
    reason: str
    detail: str
    steps: int
    version: str | None
    seconds: float
    success_before: float | None = None
    success_after: float | None = None
    attempts_before: int = 0  # over how many attempts these two were measured
    attempts_after: int = 0
    versions: Mapping[str, float | None] = field(default_factory=dict)  # success of the attempts each version sampled
    trained: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CampaignBegun:
    """A run of a campaign's program begins. `paused`: the run before it was paused.

    `recipe`: what the judge is told of the reward. `measure`, `plateau_steps` and `epoch_steps` are what rules go by
    and the settings alone do not say; `measure` None: an older program did not write it down.
    """

    step: int
    paused: bool = False
    recipe: Mapping[str, Any] = field(default_factory=dict)
    measure: CampaignMeasure | None = None
    plateau_steps: int | None = None
    epoch_steps: int | None = None


@dataclass(frozen=True, slots=True)
class StepJudges:
    """Who judged a step, where that is new: model, version and recipe of each. `turn`: of two judges' turns, which."""

    step: int
    judges: Sequence[Sequence[str]]
    turn: int = 0


CampaignEvent = StepDone | Validation | Alarm | SettingChanged | CampaignEnded | CampaignBegun | StepJudges

_CLASSES: Final[Mapping[str, type[CampaignEvent]]] = {
    STEP: StepDone, VALIDATION: Validation, BASELINE: Validation, TEST: Validation, ALARM: Alarm,
    CHANGE: SettingChanged, JUDGE_CHANGED: SettingChanged, ENDED: CampaignEnded, BEGUN: CampaignBegun,
    JUDGED: StepJudges,
}  # fmt: skip
# How a row reads that lacks a field that has no default; None for the others.
_ABSENT: Final[Mapping[str, Any]] = {
    "step": 0, "sampled_by": "", "attempts": 0, "errored": 0, "trained": 0, "seconds": 0.0,
}  # fmt: skip

D = TypeVar("D", bound="DataclassInstance")


def encode_event(event: CampaignEvent) -> dict[str, Any]:
    """The JSON that is stored of an event."""
    return asdict(event)


def decode_event(code: str, stored: Mapping[str, Any]) -> CampaignEvent | None:
    """The event of a row of the ledger, whichever program wrote it; None: the code is not of a campaign's event."""
    kind = _CLASSES.get(code)
    event = decode_fields(kind, stored) if kind is not None else None
    if isinstance(event, CampaignBegun) and event.measure is not None:
        return replace(event, measure=CampaignMeasure(event.measure))
    return event


def decode_fields(kind: type[D], stored: Mapping[str, Any]) -> D:
    """An object of a dataclass, by those stored values that it has a field for. What is null or absent is the default
    of its field, or of fields that have none as `_ABSENT` says.
    """
    given = {one.name: stored[one.name] for one in fields(kind) if stored.get(one.name) is not None}
    needed = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    return kind(**{name: _ABSENT.get(name) for name in needed} | given)
