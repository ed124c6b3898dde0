"""How far campaigns are: their steps, what they were measured at, and each rule that may end them.

Owns: this view. Refuses: ending one (`trainer.campaign.stop` has the rules).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from recorder.learned.lines import Measure, measured_by
from recorder.registry.retention import VALIDATION
from recorder.states import CampaignState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import aliases, campaigns, ledger
from recorder.work.campaigns import TRAINS

_STEP: Final = "step"  # the other code of the ledger's rows about a campaign
SHOWN: Final = 10  # campaigns, the newest
_ROWS: Final = 400  # of the ledger about one


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured after so many steps."""

    step: int
    version: str
    measure: Measure


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that may end a campaign, and how near it is; both in words."""

    rule: str
    now: str


@dataclass(frozen=True, slots=True)
class CampaignProgress:
    """One campaign. `failed_steps` of all; times are unix seconds."""

    id: str
    name: str
    alias: str
    state: CampaignState
    reason: str | None
    steps_done: int
    steps: int | None
    failed_steps: int
    measured: Sequence[Measured]
    rules: Sequence[Rule]
    began_at: float
    ended_at: float | None


async def campaign_progress(store: Store, project_id: str, alias: str | None = None) -> list[CampaignProgress]:
    """The newest campaigns, newest first."""
    query = (
        select(campaigns, aliases.c.name.label("alias"))
        .join(aliases, aliases.c.id == campaigns.c.alias_id)
        .where(campaigns.c.project_id == project_id, TRAINS)
        .order_by(campaigns.c.started_at.desc(), campaigns.c.id.desc())
        .limit(SHOWN)
    )
    if alias is not None:
        query = query.where(aliases.c.name == alias)
    async with store.read() as conn:
        rows = list(await conn.execute(query))
        said = {row.id: [tuple(one) for one in await conn.execute(_said(row.id))][::-1] for row in rows}
    return [_progress(row, said[row.id]) for row in rows]


def _said(campaign_id: str) -> Any:
    about = (ledger.c.object_kind == "campaign", ledger.c.object_id == campaign_id)
    codes = ledger.c.code.in_((VALIDATION, _STEP))
    return (
        select(ledger.c.code, ledger.c.detail)
        .where(*about, codes)
        .order_by(sql.passed_by(ledger.c.id).desc())
        .limit(_ROWS)
    )


def _progress(row: Any, said: Sequence[tuple[str, Mapping[str, Any]]]) -> CampaignProgress:
    stepped = [detail for code, detail in said if code == _STEP and detail]
    validated = [detail for code, detail in said if code == VALIDATION and detail]
    regular = bool(row.settings.get("val_every")) and bool(validated)
    looked_at = _measured(validated if regular else stepped)
    return CampaignProgress(
        id=row.id,
        name=row.name,
        alias=row.alias,
        state=CampaignState(row.state),
        reason=row.reason,
        steps_done=row.steps_done,
        steps=row.settings.get("steps"),
        failed_steps=sum(bool(step.get("failed")) for step in stepped),
        measured=_measured(validated) or looked_at,
        rules=list(_rules(row.settings, row.steps_done, looked_at)),
        began_at=row.started_at,
        ended_at=row.ended_at,
    )


def _measured(said: Iterable[Mapping[str, Any]]) -> list[Measured]:
    found = ((one, measured_by(one)) for one in said)
    return [
        Measured(int(one["step"]), str(one.get("sampled_by") or one["version"]), measure)
        for one, measure in found
        if measure is not None
    ]


def _rules(settings: Mapping[str, Any], done: int, seen: Sequence[Measured]) -> Iterable[Rule]:
    """Those in force; `seen` is what they look at."""
    if (steps := settings.get("steps")) is not None:
        yield Rule(f"after {steps} steps", f"{done} done, {max(0, steps - done)} left")
    if (target := settings.get("target")) is not None:
        last = f"{seen[-1].measure.value:.3g} at last" if seen else "nothing measured yet"
        often = int(settings.get("target_steps") or 1)
        yield Rule(f"at {target:g}" + (f", {often} times in a row" if often > 1 else ""), last)
    if (plateau := settings.get("plateau_steps")) is not None:
        best = max(seen, key=lambda one: one.measure.value, default=None)
        told = f"best {best.measure.value:.3g} after step {best.step}" if best else "nothing measured yet"
        left = plateau - (seen[-1].step - seen[0].step if seen else 0)
        soonest = f"in {left} steps at the soonest" if left > 0 else "whenever it shows"
        yield Rule(f"no rise over {settings.get('plateau_delta', 0):g} in {plateau} steps", f"{told}; {soonest}")
