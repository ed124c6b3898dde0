"""The held-out attempts of a version and of the one before it, read from the store.

Owns: these queries, each by an index and of bounded size: the gate's attempts at held-out scenarios, its judged pairs,
and the validations of a campaign before and after. Refuses: comparing them (`recorder.views.versions.held_out`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import first_id_at
from recorder.queue.gate_requests import GateArm, find_request
from recorder.queue.judging.scores import REWARD
from recorder.registry.versions import VersionView, parse_name
from recorder.states import AttemptState, Origin, Purpose, StepState, VersionState
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import (
    attempts,
    calls,
    campaigns,
    groups,
    ledger,
    scenarios,
    score_parts,
    scores,
    steps,
    trajectories,
    versions,
)
from recorder.views.campaigns.events import VALIDATION, Validation, decode_event
from recorder.views.lists.columns import first_words
from recorder.views.versions.before_after import TrajectoryAttempt
from recorder.views.versions.held_out import (
    EVEN,
    TIE,
    HeldOutComparison,
    HeldOutSource,
    ValidationAttempt,
    compare_held_out,
    validation_unit,
    value_attempts,
)

ROWS: Final = 2000  # attempts of one source that are read
_EVENTS: Final = 200  # newest validations of a campaign that are read
_SLACK_S: Final = 60.0  # between the clocks of a proxy and of the database

_ATTEMPTED_IN: Final = and_(
    trajectories.c.project_id == attempts.c.project_id,
    trajectories.c.address_group == attempts.c.group_external_id,
    trajectories.c.external_id == attempts.c.trajectory_external_id,
    trajectories.c.sequence == 0,
)


async def load_held_out(
    project: Project, version: VersionView, parent: VersionView, decided_at: float | None
) -> list[HeldOutComparison]:
    """Return a version's held-out attempts beside its parent's, by source; sources without any are absent.

    `decided_at`: when its gate decided (unix seconds); until then it answered nothing else. A campaign that does not
    validate every version compares with the newest version that it validated before.
    """
    request = await find_request(project.store, version, parent)
    was_examined = decided_at is not None or version.state is VersionState.LOADED
    async with project.store.read() as conn:
        found = [
            await _validations(conn, version),
            await _gate_scenarios(conn, parent, request) if request is not None else None,
            await _gate_pairs(conn, version, parent, decided_at) if was_examined else None,
        ]
        shown = [one for one in found if one is not None]
        words = await first_words(conn, [task.trajectory_after for one in shown for task in one.shown])
    return [one.with_tasks(words) for one in shown]


# --- the gate


async def _gate_scenarios(conn: AsyncConnection, parent: VersionView, request: str) -> HeldOutComparison | None:
    a = attempts.c
    query = (
        select(scenarios.c.external_id.label("scenario"), a.number, a.success, trajectories.c.id)
        .select_from(attempts)
        .join(campaigns, and_(campaigns.c.id == a.campaign_id, a.step_number <= campaigns.c.steps_done))
        .join(scenarios, scenarios.c.id == a.scenario_id)
        .join(trajectories, _ATTEMPTED_IN)
        .where(a.campaign_id == request, a.success.is_not(None))
        .order_by(a.step_number, a.group_external_id)
        .limit(ROWS)
    )
    rows = (await conn.execute(query)).all()
    sides: dict[int, list[TrajectoryAttempt]] = {arm: [] for arm in GateArm}
    for row in rows:
        one = TrajectoryAttempt(row.scenario, "val", "", row.id, row.id, row.success, absolute=True)
        sides[row.number].append(one)
    about = HeldOutSource("gate scenarios", parent.name, "success", is_complete=len(rows) < ROWS)
    return compare_held_out(about, sides[GateArm.LIVE], sides[GateArm.CANDIDATE])


async def _gate_pairs(
    conn: AsyncConnection, version: VersionView, parent: VersionView, decided_at: float | None
) -> HeldOutComparison | None:
    rows = (await conn.execute(_judged_pairs(version, parent, decided_at))).all()
    before, after = [], []
    for row in rows:
        task = row.prompt_node_id.hex() if row.prompt_node_id is not None else row.group_id
        value = _pair_value(row.own, row.others)
        after.append(TrajectoryAttempt(task, "val", version.id, row.group_id, row.own_id, value, absolute=True))
        lost = None if value is None else 1 - value
        before.append(TrajectoryAttempt(task, "val", parent.id, row.group_id, row.other_id, lost, absolute=True))
    about = HeldOutSource("gate pairs", parent.name, "wins", is_complete=len(rows) < ROWS)
    return compare_held_out(about, before, after)


def _pair_value(own: float | None, other: float | None) -> float | None:
    if own is None or other is None:
        return None
    return TIE if abs(own - other) <= EVEN else float(own > other)


def _judged_pairs(version: VersionView, parent: VersionView, decided_at: float | None) -> Select[Any]:
    """The judged pairs of a version's gate: its first trajectories, in groups of its own, each beside its parent's."""
    t, other = trajectories.c, trajectories.alias("other")
    newest = [] if decided_at is None else [t.id < first_id_at("traj", decided_at + _SLACK_S)]
    first = (
        select(t.id, t.group_id, t.leaf_call_id)
        .where(t.version_id == version.id, *newest)
        .where(sql.without_index(t.origin) == Origin.SHADOW, t.purpose == Purpose.EVAL)
        .order_by(t.id)
        .limit(ROWS)
        .subquery()
    )
    own, others = score_parts.alias("own"), score_parts.alias("others")
    return (
        select(
            first.c.group_id,
            first.c.id.label("own_id"),
            other.c.id.label("other_id"),
            calls.c.prompt_node_id,
            own.c.value.label("own"),
            others.c.value.label("others"),
        )
        .select_from(first)
        .join(groups, and_(groups.c.id == first.c.group_id, groups.c.version_id == version.id))
        .join(other, and_(other.c.group_id == first.c.group_id, sql.without_index(other.c.version_id) == parent.id))
        .outerjoin(calls, calls.c.id == first.c.leaf_call_id)
        .outerjoin(own, _reward_of(own, first.c.id))
        .outerjoin(others, _reward_of(others, other.c.id))
        .order_by(first.c.id)
    )


def _reward_of(part: Any, trajectory_id: Any) -> Any:
    """The condition that joins the reward of a trajectory by its group's current score."""
    of_score = and_(part.c.score_id == groups.c.current_score_id, part.c.trajectory_id == trajectory_id)
    return and_(of_score, part.c.part == REWARD, ~part.c.unasked)


# --- the validations of a campaign


@dataclass(frozen=True, slots=True)
class _Validations:
    """The validation of a version, and the newest one before it of another version."""

    campaign_id: str
    campaign: str
    before: Validation
    after: Validation


async def _validations(conn: AsyncConnection, version: VersionView) -> HeldOutComparison | None:
    found = await _find_validations(conn, version)
    if found is None:
        return None
    numbers = 0, parse_name(found.before.version)[1]
    of_alias = select(versions.c.number, versions.c.id).where(versions.c.alias_id == version.alias_id)
    ids = {row.number: row.id for row in await conn.execute(of_alias.where(versions.c.number.in_(numbers)))}
    earlier = ids.get(numbers[1])
    old = await _attempts(conn, found.campaign_id, found.before.step)
    new = await _attempts(conn, found.campaign_id, found.after.step)
    unit = validation_unit([*old, *new])
    before, after = value_attempts(old, unit, ids.get(0)), value_attempts(new, unit, ids.get(0))
    about = HeldOutSource(
        "validation", found.before.version, unit, found.campaign, is_complete=max(len(old), len(new)) < ROWS
    )
    return compare_held_out(
        about,
        [one for one in before if one.version_id == earlier],
        [one for one in after if one.version_id == version.id],
    )


async def _find_validations(conn: AsyncConnection, version: VersionView) -> _Validations | None:
    of_step = select(campaigns.c.id, campaigns.c.name).join(steps, steps.c.campaign_id == campaigns.c.id)
    made = of_step.where(steps.c.version_id == version.id, steps.c.state == StepState.DONE)
    campaign = (await conn.execute(made)).first()
    if campaign is None:
        return None
    about = (ledger.c.object_kind == "campaign", ledger.c.object_id == campaign.id, ledger.c.code == VALIDATION)
    newest = select(ledger.c.detail).where(*about).order_by(sql.without_index(ledger.c.id).desc()).limit(_EVENTS)
    events = (decode_event(VALIDATION, detail or {}) for detail in (await conn.execute(newest)).scalars())
    seen = [one for one in events if isinstance(one, Validation)]
    after = next((one for one in seen if one.version == version.name), None)
    if after is None:
        return None
    earlier = [one for one in seen if one.step < after.step and one.version != version.name]
    before = max(earlier, key=lambda one: one.step, default=None)
    return _Validations(campaign.id, campaign.name, before, after) if before is not None else None


async def _attempts(conn: AsyncConnection, campaign_id: str, step: int) -> list[ValidationAttempt]:
    """Return the ended attempts of one validation, without those at adversarial scenarios."""
    a, t, part = attempts.c, trajectories.c, score_parts
    query = (
        select(
            scenarios.c.external_id, t.group_id, t.id, calls.c.version_id, a.success, part.c.value, scores.c.absolute
        )
        .select_from(attempts)
        .join(scenarios, scenarios.c.id == a.scenario_id)
        .join(trajectories, _ATTEMPTED_IN)
        .join(groups, groups.c.id == t.group_id)
        .outerjoin(calls, calls.c.id == t.leaf_call_id)
        .outerjoin(scores, scores.c.id == groups.c.current_score_id)
        .outerjoin(part, _reward_of(part, t.id))
        .where(a.campaign_id == campaign_id, a.step_number == step, a.purpose == Purpose.VAL)
        .where(a.state.in_((AttemptState.DONE, AttemptState.ERRORED)), ~scenarios.c.adversarial)
        .order_by(a.scenario_id, a.number)
        .limit(ROWS)
    )
    rows = await conn.execute(query)
    return [ValidationAttempt(*row[:4], row[4], row[5], bool(row[6])) for row in rows]
