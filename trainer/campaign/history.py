"""What a campaign has written down: rows of the ledger about it, each the event that was told.

Owns: their codes, writing and reading them back, and what stop rules look at. Refuses: deciding anything of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from recorder.registry.retention import VALIDATION
from recorder.store import ledger
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow
from recorder.work.campaigns import CampaignView
from trainer.campaign.stop import Stop
from trainer.measuring.yardstick import Yardstick, value_of
from trainer.progress import Alarm, Changed, Ended, StepDone, Validated

STEP: Final = "step"
BASELINE: Final = "baseline"
TEST: Final = "test"
ALARM: Final = "alarm"
CHANGE: Final = "change"
JUDGED: Final = "judged_by"  # who judged a step, where that is new (`trainer.measuring.judges`)
JUDGE_CHANGED: Final = "judge_changed"
ENDED: Final = "ended"
# A run of its program begins: {"step", "paused": whether the one before it was paused, "recipe": of the judge}, and
# what the rules go by (`trainer.campaign.ruling`), which pages read (`recorder.learned.progress`).
BEGUN: Final = "begun"

Written = StepDone | Validated | Alarm | Changed | Ended
_UNMEASURED: tuple[tuple[float | None, int], tuple[float | None, int]] = ((None, 0), (None, 0))


@dataclass(slots=True)
class History:
    """What a campaign has written down so far, in order. `validations` are of versions in service, part val."""

    steps: list[StepDone] = field(default_factory=list)
    validations: list[Validated] = field(default_factory=list)
    baselines: list[Validated] = field(default_factory=list)
    tests: list[Validated] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    changes: list[Changed] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    begun: list[Mapping[str, Any]] = field(default_factory=list)
    judged: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def events(self) -> list[Written]:
        """All that was told, by step."""
        of_steps: list[StepDone | Validated | Alarm | Changed] = [
            *self.baselines, *self.steps, *self.validations, *self.alarms, *self.changes, *self.tests,
        ]  # fmt: skip
        return [*sorted(of_steps, key=lambda event: event.step), *self.ended]

    @property
    def steps_done(self) -> int:
        """How many steps are over."""
        return len(self.steps)

    @property
    def answered_until(self) -> int:
        """After how many steps the campaign was last gone on with after a pause; -1: never."""
        return max((int(row["step"]) for row in self.begun if row.get("paused")), default=-1)

    @property
    def one_judge_from(self) -> int:
        """The step from which on one judge, or several in turn, gave all figures: earlier ones are another measure."""
        return max((change.step + 1 for change in self.changes if change.what == JUDGE_CHANGED), default=0)

    @property
    def seconds(self) -> float:
        """How long everything took that was written down."""
        stepped = sum(sum(step.seconds.values()) for step in self.steps)
        return stepped + sum(one.seconds for one in (*self.validations, *self.baselines, *self.tests))

    def measured(self, yardstick: Yardstick, *, regularly: bool) -> list[tuple[StepDone | Validated, float]]:
        """What stop rules look at: validations where they are made regularly, else the steps' own attempts.

        Not those of another judge than the one of now.
        """
        seen: Sequence[StepDone | Validated] = self.validations if regularly and self.validations else self.steps
        values = [(event, value_of(event, yardstick)) for event in seen if event.step >= self.one_judge_from]
        return [(event, value) for event, value in values if value is not None]

    def baseline(self, name: str, yardstick: Yardstick) -> Validated | None:
        """A baseline's measure that later ones may be compared with: by the judge of now, where a judge measures."""
        since = 0 if yardstick is Yardstick.SUCCESS else self.one_judge_from
        return next((one for one in reversed(self.baselines) if one.version == name and one.step >= since), None)

    def add(self, code: str, detail: Mapping[str, Any]) -> None:
        """Take a row. Those of other codes are not a campaign's course."""
        if code == STEP:
            self.steps.append(StepDone(**detail))
        elif code == VALIDATION:
            self.validations.append(Validated(**detail))
        elif code == BASELINE:
            self.baselines.append(Validated(**detail))
        elif code == TEST:
            self.tests.append(Validated(**detail))
        elif code == ALARM:
            self.alarms.append(Alarm(**detail))
        elif code in (CHANGE, JUDGE_CHANGED):
            self.changes.append(Changed(**detail))
        elif code == ENDED:
            self.ended.append(Ended(**detail))
        elif code == BEGUN:
            self.begun.append(detail)
        elif code == JUDGED:
            self.judged.append(detail)


async def read_history(store: Store, campaign: CampaignView) -> History:
    """What a campaign wrote down before."""
    history = History()
    for entry in await ledger.of(store, "campaign", campaign.id):
        if entry.detail is not None:
            history.add(entry.code, entry.detail)
    return history


async def write(store: Store, campaign: CampaignView, code: str, event: Written) -> None:
    """Write down an event of a campaign."""
    await write_row(store, campaign, code, asdict(event))


async def write_row(store: Store, campaign: CampaignView, code: str, detail: Mapping[str, Any]) -> None:
    """Write down what is no event."""
    row = LedgerRow(campaign.project_id, "campaign", campaign.id, code, dict(detail))
    async with store.write() as conn:
        await ledger.write(conn, [row])


def summary(name: str, stop: Stop, history: History, live: str, seconds: float) -> Ended:
    """What a whole campaign came to."""
    measured = [(e.success, e.attempts) for e in (history.validations or history.steps) if e.success is not None]
    (before, attempts_before), (after, attempts_after) = (measured[0], measured[-1]) if measured else _UNMEASURED
    left_out: Counter[str] = Counter()
    for step in history.steps:
        left_out.update(step.left_out)
    return Ended(
        campaign=name,
        reason=stop.code,
        detail=stop.detail,
        steps=history.steps_done,
        version=live,
        seconds=seconds,
        success_before=before,
        success_after=after,
        attempts_before=attempts_before,
        attempts_after=attempts_after,
        versions=success_by_version(history.steps),
        trained=sum(step.trained for step in history.steps),
        left_out=dict(left_out),
    )


def success_by_version(done: Sequence[StepDone]) -> dict[str, float | None]:
    """The share of successes among the attempts that each version sampled, in the order of the steps."""
    by_version: dict[str, list[float]] = {}
    for step in done:
        by_version.setdefault(step.sampled_by, []).extend([] if step.success is None else [step.success])
    return {name: sum(shares) / len(shares) if shares else None for name, shares in by_version.items()}
