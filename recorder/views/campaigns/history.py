"""The history of a campaign: its events, read from the ledger and sorted by kind.

Owns: reading them, whole or the newest, and what stop rules and views look at. Refuses: writing events
(`trainer.campaign.history`), and deciding anything by them.
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

SHOWN: Final = (VALIDATION, STEP, BASELINE, TEST, JUDGE_CHANGED)  # codes of what views show the newest of


@dataclass(slots=True)
class CampaignHistory:
    """What a campaign has written down so far, in order. `validations` are of versions in service, part val."""

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
        """All that was told, by step."""
        of_steps: list[StepDone | Validation | Alarm | SettingChanged] = [
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
        return max((run.step for run in self.begun if run.paused), default=-1)

    @property
    def one_judge_from(self) -> int:
        """The step from which on one judge, or several in turn, gave all figures: earlier ones are another measure."""
        return max((change.step + 1 for change in self.changes if change.what == JUDGE_CHANGED), default=0)

    @property
    def seconds(self) -> float:
        """How long everything took that was written down."""
        stepped = sum(sum(step.seconds.values()) for step in self.steps)
        return stepped + sum(one.seconds for one in (*self.validations, *self.baselines, *self.tests))

    @property
    def measure(self) -> CampaignMeasure:
        """By what its versions are compared: as its program wrote down, else by what its events have."""
        written = self.begun[-1].measure if self.begun else None
        return infer_measure(self.validations or self.steps) if written is None else written

    def measured(self, by: CampaignMeasure, *, regularly: bool) -> list[StepDone | Validation]:
        """What stop rules look at: validations where they are made regularly, else the steps' own attempts.

        Events that measured nothing are no part of it, nor are those of another judge than the one of now.
        """
        seen: Sequence[StepDone | Validation] = self.validations if regularly and self.validations else self.steps
        return [one for one in seen if one.step >= self.one_judge_from and measure_value(one, by) is not None]

    def baseline(self, name: str, by: CampaignMeasure) -> Validation | None:
        """A baseline's measure that later ones may be compared with: by the judge of now, where a judge measures."""
        since = 0 if by is CampaignMeasure.SUCCESS else self.one_judge_from
        return next((one for one in reversed(self.baselines) if one.version == name and one.step >= since), None)

    def add(self, code: str, stored: Mapping[str, Any]) -> None:
        """Take a row of the ledger. Rows of other codes are not a campaign's history."""
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
    """All that a campaign wrote down."""
    history = CampaignHistory()
    async with store.read() as conn:
        for code, stored in await conn.execute(_rows(campaign.id).order_by(ledger.c.id)):
            if stored is not None:
                history.add(code, stored)
    return history


async def read_newest(conn: AsyncConnection, campaign_id: str, limit: int) -> CampaignHistory:
    """The newest rows of the codes `SHOWN`, at most `limit`, and the newest run of the program."""
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
    """The first steps that campaigns wrote down since a time (unix seconds), each with when, by the campaigns' ids."""
    query = select(ledger.c.object_id, ledger.c.at, ledger.c.detail).where(
        ledger.c.object_kind == "campaign", ledger.c.object_id.in_(campaign_ids), ledger.c.code == STEP
    )
    found: defaultdict[str, list[tuple[float, StepDone]]] = defaultdict(list)
    for id_, at, stored in await conn.execute(query.where(ledger.c.at >= since).order_by(ledger.c.id).limit(limit)):
        if isinstance(event := decode_event(STEP, stored or {}), StepDone):
            found[id_].append((at, event))
    return found


async def read_measures(conn: AsyncConnection, campaign_ids: Collection[str]) -> dict[str, CampaignMeasure]:
    """By what campaigns compare versions, by their ids; those whose program did not write it down are absent."""
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
