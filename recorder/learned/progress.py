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
from recorder.store.project import Project
from recorder.store.schema import aliases, campaigns, ledger
from recorder.work.campaigns import TRAINS, view
from recorder.work.spending import MINUTE_S, Judged, judged_for

# The other codes of the ledger's rows about a campaign.
_STEP: Final = "step"
_BEGUN: Final = "begun"  # what its rules go by: {"measure", "plateau_steps", "epoch_steps"}
_TOOK_TIME: Final = (VALIDATION, _STEP, "baseline", "test")
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


async def campaign_progress(project: Project, alias: str | None = None) -> list[CampaignProgress]:
    """The newest campaigns, newest first."""
    query = (
        select(campaigns, aliases.c.name.label("alias"))
        .join(aliases, aliases.c.id == campaigns.c.alias_id)
        .where(campaigns.c.project_id == project.id, TRAINS)
        .order_by(campaigns.c.started_at.desc(), campaigns.c.id.desc())
        .limit(SHOWN)
    )
    if alias is not None:
        query = query.where(aliases.c.name == alias)
    async with project.store.read() as conn:
        rows = list(await conn.execute(query))
        said = {row.id: [tuple(one) for one in await conn.execute(_said(row.id))][::-1] for row in rows}
        begun = {row.id: (await conn.execute(_begun(row.id))).scalar() or {} for row in rows}
    return [_progress(row, said[row.id], begun[row.id], await _judged(project.store, row)) for row in rows]


async def _judged(store: Store, row: Any) -> Judged | None:
    """What judging it has cost; None: no rule asks."""
    asked = any(row.settings.get(name) is not None for name in ("max_judge_usd", "max_judge_tokens"))
    return await judged_for(store, view(row)) if asked else None


def _begun(campaign_id: str) -> Any:
    """What the newest run of its program goes by."""
    about = (ledger.c.object_kind == "campaign", ledger.c.object_id == campaign_id, ledger.c.code == _BEGUN)
    return select(ledger.c.detail).where(*about).order_by(ledger.c.id.desc()).limit(1)


def _said(campaign_id: str) -> Any:
    about = (ledger.c.object_kind == "campaign", ledger.c.object_id == campaign_id)
    codes = ledger.c.code.in_(_TOOK_TIME)
    return (
        select(ledger.c.code, ledger.c.detail)
        .where(*about, codes)
        .order_by(sql.passed_by(ledger.c.id).desc())
        .limit(_ROWS)
    )


def _progress(
    row: Any, said: Sequence[tuple[str, Mapping[str, Any]]], in_force: Mapping[str, Any], judged: Judged | None
) -> CampaignProgress:
    stepped = [detail for code, detail in said if code == _STEP and detail]
    validated = [detail for code, detail in said if code == VALIDATION and detail]
    regular = bool(row.settings.get("val_every")) and bool(validated)
    kind = in_force.get("measure")
    looked_at = _measured(validated if regular else stepped, kind)
    spent = _Spent(sum(_took(detail) for code, detail in said if code in _TOOK_TIME and detail) / MINUTE_S, judged)
    return CampaignProgress(
        id=row.id,
        name=row.name,
        alias=row.alias,
        state=CampaignState(row.state),
        reason=row.reason,
        steps_done=row.steps_done,
        steps=row.settings.get("steps"),
        failed_steps=sum(bool(step.get("failed")) for step in stepped),
        measured=_measured(validated, kind) or looked_at,
        rules=[
            *_by_measure({**row.settings, **in_force}, looked_at),
            *_by_steps({**row.settings, **in_force}, row.steps_done),
            *_by_budget(row.settings, spent),
        ],
        began_at=row.started_at,
        ended_at=row.ended_at,
    )


@dataclass(frozen=True, slots=True)
class _Spent:
    """What a campaign took until now; `judged` where a rule asks for it."""

    minutes: float
    judged: Judged | None


def _took(said: Mapping[str, Any]) -> float:
    """Seconds of a step, by its phases, or of a validation."""
    seconds = said.get("seconds") or 0.0
    return sum(seconds.values()) if isinstance(seconds, Mapping) else float(seconds)


def _measured(said: Iterable[Mapping[str, Any]], kind: str | None) -> list[Measured]:
    """Measures of that kind. A step knows no wins, and where nothing is measured its mean reward is no measure."""
    found = ((one, measured_by(one, kind)) for one in said)
    return [
        Measured(int(one["step"]), str(one.get("sampled_by") or one["version"]), measure)
        for one, measure in found
        if measure is not None
    ]


# --- the rules in force, in words


def _by_steps(settings: Mapping[str, Any], done: int) -> Iterable[Rule]:
    if (steps := settings.get("steps")) is not None:
        yield Rule(f"after {steps} steps", f"{done} done, {max(0, steps - done)} left")
    if (epochs := settings.get("epochs")) is not None:
        of = int(settings.get("epoch_steps") or 1)
        rule = f"after {epochs} epoch{'s' * (epochs != 1)} of {of} steps"
        yield Rule(rule, f"{done / of:.3g} done, {max(0, epochs * of - done)} steps left")


def _by_measure(settings: Mapping[str, Any], seen: Sequence[Measured]) -> Iterable[Rule]:
    """`seen` is what they look at."""
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


def _by_budget(settings: Mapping[str, Any], spent: _Spent) -> Iterable[Rule]:
    if (minutes := settings.get("max_minutes")) is not None:
        yield Rule(f"after {minutes:g} minutes", f"{spent.minutes:.3g} of them spent on what is written down")
    if spent.judged is None:
        return
    if (usd := settings.get("max_judge_usd")) is not None:
        yield Rule(f"when judging has cost ${usd:g}", f"${spent.judged.usd:.4g} until now")
    if (tokens := settings.get("max_judge_tokens")) is not None:
        taken = spent.judged.tokens_in + spent.judged.tokens_out
        yield Rule(f"when judging has taken {tokens:,} tokens", f"{taken:,} until now")
