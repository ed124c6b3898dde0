"""The history of a campaign: its events, read from the ledger and sorted by kind.

Owns: reading all events or the newest, and selecting those that stop rules and views use. Refuses: writing events
(`trainer.campaign.record`), and decisions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.campaigns import CampaignView
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import ledger
from recorder.views.campaigns.events import (
    BASELINE,
    BEGUN,
    JUDGE_CHANGED,
    STEP,
    TEST,
    VALIDATION,
    Alarm,
    CampaignBegun,
    CampaignEnded,
    CampaignMeasure,
    SettingChanged,
    StepDone,
    StepJudges,
    Validation,
    decode_event,
)
from recorder.views.campaigns.measures import infer_measure, measure_value

SHOWN: Final = (VALIDATION, STEP, BASELINE, TEST, JUDGE_CHANGED)  # the codes of events that views show


@dataclass(slots=True)
class CampaignHistory:
    """The events of a campaign so far, in order. `validations` are those of trained versions on the part `val`."""

    steps: list[StepDone] = field(default_factory=list)
    validations: list[Validation] = field(default_factory=list)
    baselines: list[Validation] = field(default_factory=list)
    tests: list[Validation] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    changes: list[SettingChanged] = field(default_factory=list)
    ended: list[CampaignEnded] = field(default_factory=list)
    begun: list[CampaignBegun] = field(default_factory=list)
    judged: list[StepJudges] = field(default_factory=list)

    @property
    def events(self) -> list[StepDone | Validation | Alarm | SettingChanged | CampaignEnded]:
        """The events that are shown, in order of their steps, the end last."""
        of_steps: list[StepDone | Validation | Alarm | SettingChanged] = [
            *self.baselines, *self.steps, *self.validations, *self.alarms, *self.changes, *self.tests,
        ]  # fmt: skip
        return [*sorted(of_steps, key=lambda event: event.step), *self.ended]

    @property
    def steps_done(self) -> int:
        """The number of finished steps."""
        return len(self.steps)

    @property
    def answered_until(self) -> int:
        """The step after which the campaign was last resumed after a pause; -1 if it never was."""
        return max((one.step for one in self.begun if one.paused), default=-1)

    @property
    def one_judge_from(self) -> int:
        """The step from which the current judge gave all figures. Earlier figures are not comparable."""
        return max((change.step + 1 for change in self.changes if change.what == JUDGE_CHANGED), default=0)

    @property
    def seconds(self) -> float:
        """The seconds that all recorded events took together."""
        stepped = sum(sum(step.seconds.values()) for step in self.steps)
        return stepped + sum(one.seconds for one in (*self.validations, *self.baselines, *self.tests))

    @property
    def measure(self) -> CampaignMeasure:
        """The measure by which versions are compared: the recorded one, else inferred from the events."""
        written = self.begun[-1].measure if self.begun else None
        return infer_measure(self.validations or self.steps) if written is None else written

    def measured(self, by: CampaignMeasure, *, regularly: bool) -> list[StepDone | Validation]:
        """Return the events that stop rules use: validations if they are made regularly, else the steps.

        Events that measured nothing are omitted, and so are those of an earlier judge.
        """
        seen: Sequence[StepDone | Validation] = self.validations if regularly and self.validations else self.steps
        return [one for one in seen if one.step >= self.one_judge_from and measure_value(one, by) is not None]

    def baseline(self, name: str, by: CampaignMeasure) -> Validation | None:
        """Return a baseline's newest measure that can be compared with later ones, or None.

        Unless success is measured, it must be by the current judge.
        """
        since = 0 if by is CampaignMeasure.SUCCESS else self.one_judge_from
        return next((one for one in reversed(self.baselines) if one.version == name and one.step >= since), None)

    def add(self, code: str, stored: Mapping[str, Any]) -> None:
        """Add a row of the ledger. Rows with other codes are ignored."""
        event = decode_event(code, stored)
        if isinstance(event, StepDone):
            self.steps.append(event)
        elif isinstance(event, Validation):
            rows = {BASELINE: self.baselines, TEST: self.tests}.get(code, self.validations)
            rows.append(event)
        elif isinstance(event, Alarm):
            self.alarms.append(event)
        elif isinstance(event, SettingChanged):
            self.changes.append(event)
        elif isinstance(event, CampaignEnded):
            self.ended.append(event)
        elif isinstance(event, CampaignBegun):
            self.begun.append(event)
        elif isinstance(event, StepJudges):
            self.judged.append(event)


async def read_history(store: Store, campaign: CampaignView) -> CampaignHistory:
    """Read all events of a campaign."""
    history = CampaignHistory()
    async with store.read() as conn:
        for code, stored in await conn.execute(_rows(campaign.id).order_by(ledger.c.id)):
            if stored is not None:
                history.add(code, stored)
    return history


async def read_newest(conn: AsyncConnection, campaign_id: str, limit: int) -> CampaignHistory:
    """Read the newest events with the codes `SHOWN`, at most `limit`, and the newest start of the program."""
    history = CampaignHistory()
    newest = sql.without_index(ledger.c.id).desc()
    events = _rows(campaign_id).where(ledger.c.code.in_(SHOWN)).order_by(newest).limit(limit)
    begun = _rows(campaign_id).where(ledger.c.code == BEGUN).order_by(ledger.c.id.desc()).limit(1)
    for query in (events, begun):
        for code, stored in reversed((await conn.execute(query)).all()):
            if stored is not None:
                history.add(code, stored)
    return history


async def read_steps(
    conn: AsyncConnection, campaign_ids: Collection[str], since: float, limit: int
) -> dict[str, list[tuple[float, StepDone]]]:
    """Return the first steps recorded since a time (unix seconds), each with its time, by campaign id."""
    query = select(ledger.c.object_id, ledger.c.at, ledger.c.detail).where(
        ledger.c.object_kind == "campaign", ledger.c.object_id.in_(campaign_ids), ledger.c.code == STEP
    )
    found: defaultdict[str, list[tuple[float, StepDone]]] = defaultdict(list)
    for id_, at, stored in await conn.execute(query.where(ledger.c.at >= since).order_by(ledger.c.id).limit(limit)):
        if isinstance(event := decode_event(STEP, stored or {}), StepDone):
            found[id_].append((at, event))
    return found


async def read_measures(conn: AsyncConnection, campaign_ids: Collection[str]) -> dict[str, CampaignMeasure]:
    """Return the measure that each campaign compares versions by, by campaign id, if it was recorded."""
    query = select(ledger.c.object_id, ledger.c.detail).where(
        ledger.c.object_kind == "campaign", ledger.c.object_id.in_(campaign_ids), ledger.c.code == BEGUN
    )
    found = {}
    for id_, stored in await conn.execute(query.order_by(ledger.c.id)):
        begun = decode_event(BEGUN, stored or {})
        if isinstance(begun, CampaignBegun) and begun.measure is not None:
            found[str(id_)] = begun.measure
    return found


def _rows(campaign_id: str) -> Select[tuple[str, Any]]:
    about = (ledger.c.object_kind == "campaign", ledger.c.object_id == campaign_id)
    return select(ledger.c.code, ledger.c.detail).where(*about)
