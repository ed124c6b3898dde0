"""Requests of a version's gate to the learner: attempt held-out scenarios with the version and with another one.

The other one is the live version, or an earlier one (`aliases.NAME.gate.earlier`).

Owns: the request (a row of `campaigns` that names the version, at most one for each other version), the arm of an
attempt, its measured value, and the pairs that follow. Refuses: running attempts (trainer), and the decision over pairs
(`proxy.gate`).

Rounds count from 1 (`attempts.step_number`). `campaigns.steps_done` counts the measured rounds, and only their pairs
are returned. So which attempts count is decided before their values are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from sqlalchemy import and_, bindparam, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import new_id
from recorder.queue.campaigns import CampaignView, campaign_view
from recorder.registry.ancestry import ancestry_ages
from recorder.registry.versions import VersionView
from recorder.states import UNDECIDED, CampaignState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import attempts, campaigns, steps, versions
from recorder.store.sql import now
from recorder.store.transitions import try_move_state

# Why a gate's request ended without a failure.
DECIDED = "decided"  # the pairs suffice, or the version was decided in another way
ATTEMPTED = "attempted"  # the learner made all requested pairs
LATE = "late"  # the gate stopped waiting

_OPEN: Final = and_(
    campaigns.c.state == CampaignState.RUNNING,
    exists().where(versions.c.id == campaigns.c.version_id, versions.c.state.in_(sorted(UNDECIDED))),
)


class GateArm(IntEnum):
    """The arm of an attempt, by its number: with the new version, or with the live or earlier one."""

    CANDIDATE = 0
    LIVE = 1


@dataclass(frozen=True, slots=True)
class GateRequest:
    """A request to attempt held-out scenarios with `version` and `beside`, at most `pairs` times.

    `beside`: the live version, or an earlier one.
    """

    row: CampaignView
    version: str  # model names at the proxy: `helpdesk@3`
    beside: str
    pairs: int


@dataclass(frozen=True, slots=True)
class GatePair:
    """One scenario, attempted with both versions, and the measured values, 0 or 1."""

    candidate: float
    live: float


@dataclass(frozen=True, slots=True)
class GateResult:
    """The state of a request, and its measured pairs so far."""

    state: CampaignState
    reason: str | None
    pairs: Sequence[GatePair]  # in the order of planning


async def request_gate(store: Store, version: VersionView, beside: VersionView, pairs: int) -> str:
    """Request attempts with a version and another one; return the request's id. Equal requests are one row."""
    name = _request_name(version, beside)
    row = {
        "id": new_id("gate"),
        "project_id": version.project_id,
        "alias_id": version.alias_id,
        "name": name,
        "settings": {"version": version.name, "beside": beside.name, "pairs": pairs},
        "state": CampaignState.RUNNING,
        "version_id": version.id,
    }
    found = select(campaigns.c.id).where(campaigns.c.version_id == version.id, campaigns.c.name == name)
    async with store.write() as conn:
        await conn.execute(sql.insert_ignore(conn, campaigns).values(**row, started_at=now()))
        return str((await conn.execute(found)).scalar_one())


def _request_name(version: VersionView, beside: VersionView) -> str:
    """A request's name, which tells those of one gate apart. The live version is the parent, and is not named."""
    return f"gate:{version.name}" if beside.id == version.parent_id else f"gate:{version.name}:{beside.name}"


async def next_request(store: Store, alias_id: str) -> GateRequest | None:
    """Return the oldest open request for an alias, if its version is undecided."""
    query = select(campaigns).where(campaigns.c.alias_id == alias_id, _OPEN).order_by(campaigns.c.id)
    async with store.read() as conn:
        row = (await conn.execute(query)).first()
    return (
        GateRequest(campaign_view(row), *(row.settings[name] for name in ("version", "beside", "pairs")))
        if row
        else None
    )


async def is_open(store: Store, request_id: str) -> bool:
    """Return whether a request is still open."""
    async with store.read() as conn:
        return (
            await conn.execute(select(campaigns.c.id).where(campaigns.c.id == request_id, _OPEN))
        ).first() is not None


async def find_request(store: Store, version: VersionView, beside: VersionView) -> str | None:
    """Return the id of the request of a version's gate for attempts beside another version, open or not."""
    name = _request_name(version, beside)
    query = select(campaigns.c.id).where(campaigns.c.version_id == version.id, campaigns.c.name == name)
    async with store.read() as conn:
        found = await conn.execute(query)
        return found.scalar_one_or_none()


async def end_request(store: Store, request_id: str, state: CampaignState, reason: str) -> None:
    """End a request; an ended request is not changed."""
    async with store.write() as conn:
        await try_move_state(conn, campaigns, request_id, state, reason=reason, ended_at=now())


async def write_round(store: Store, request_id: str, number: int, measured: Mapping[str, float]) -> None:
    """Write a round's measured values by the groups' external ids; an attempt without a value was not measurable."""
    of_group = update(attempts).where(
        attempts.c.campaign_id == request_id, attempts.c.group_external_id == bindparam("of_group")
    )
    rows = [{"of_group": group, "worth": value} for group, value in measured.items()]
    done = update(campaigns).where(campaigns.c.id == request_id).values(steps_done=number)
    async with store.write() as conn:
        if rows:
            await conn.execute(of_group.values(success=bindparam("worth")), rows)
        await conn.execute(done)


async def gate_result(store: Store, request_id: str) -> GateResult:
    """Return the state of a request, and its measured pairs so far."""
    a = attempts.c
    counted = and_(a.campaign_id == campaigns.c.id, a.step_number <= campaigns.c.steps_done)
    query = (
        select(campaigns.c.state, campaigns.c.reason, a.step_number, a.scenario_id, a.number, a.success)
        .outerjoin(attempts, and_(counted, a.success.is_not(None)))
        .where(campaigns.c.id == request_id)
        .order_by(a.step_number, a.group_external_id)
    )
    async with store.read() as conn:
        rows = (await conn.execute(query)).all()
    return GateResult(CampaignState(rows[0].state), rows[0].reason, _pairs(rows))


def _pairs(rows: Sequence[Any]) -> list[GatePair]:
    measured: defaultdict[tuple[int, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        measured[row.step_number, row.scenario_id][row.number] = row.success
    both = [sides for sides in measured.values() if sides.keys() >= set(GateArm)]
    return [GatePair(sides[GateArm.CANDIDATE], sides[GateArm.LIVE]) for sides in both]


@dataclass(frozen=True, slots=True)
class AcceptedVersion:
    """A version that its gate measured and accepted: the step that made it, and the mean of its measured attempts."""

    number: int
    step: int
    attempts: int
    success: float


async def list_accepted(store: Store, live_version_id: str, since: float) -> list[AcceptedVersion]:
    """Return the live version and its ancestors whose gates began after `since` (unix seconds), oldest first."""
    a, c = attempts.c, campaigns.c
    line = ancestry_ages(live_version_id).subquery()
    query = (
        select(
            versions.c.number,
            steps.c.number.label("step"),
            func.count().label("attempts"),
            func.avg(a.success).label("success"),
        )
        .select_from(line)
        .join(versions, versions.c.id == line.c.id)
        .join(steps, steps.c.version_id == versions.c.id)
        .join(campaigns, c.version_id == versions.c.id)
        .join(attempts, and_(a.campaign_id == c.id, a.step_number <= c.steps_done))
        .where(a.number == GateArm.CANDIDATE, a.success.is_not(None), c.started_at > since)
        .group_by(versions.c.number, steps.c.number)
        .order_by(steps.c.number)
    )
    async with store.read() as conn:
        return [sql.as_view(AcceptedVersion, row) for row in await conn.execute(query)]


@dataclass(frozen=True, slots=True)
class GateProgress:
    """A gate whose scenarios are being attempted: `ended` of at most `most` attempts, in `rounds` measured rounds."""

    version: str  # its name
    ended: int
    most: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.ended} of at most {self.most} attempts"


async def list_in_progress(conn: AsyncConnection, project_id: str) -> dict[str, GateProgress]:
    """Return the progress of a project's open requests, by version id."""
    a, c = attempts.c, campaigns.c
    ended = select(func.count(func.distinct(a.group_external_id))).where(a.campaign_id == c.id, a.ended_at.is_not(None))
    columns = (c.version_id, ended.scalar_subquery().label("ended"), c.settings, c.steps_done)
    rows = await conn.execute(select(*columns).where(c.project_id == project_id, _OPEN))
    return {
        row.version_id: GateProgress(
            row.settings["version"], row.ended, len(GateArm) * row.settings["pairs"], row.steps_done
        )
        for row in rows
    }
