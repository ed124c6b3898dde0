"""Requests of a version's gate to the learner: attempt held-out scenarios with the version and with the live one.

Owns: the request (a row of `campaigns` that names the version, at most one), the arm of an attempt, its measured value,
and the pairs that follow. Refuses: running attempts (trainer), and the decision over pairs (`proxy.gate`).

Rounds count from 1 (`attempts.step_number`). `campaigns.steps_done` counts the measured rounds, and only their pairs
are shown. So which attempts count is settled before anybody sees their values.
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
from recorder.queue.groups.readiness import GroupCode
from recorder.registry.versions import VersionView
from recorder.states import UNDECIDED, CampaignState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import attempts, campaigns, versions
from recorder.store.sql import now
from recorder.store.transitions import try_move_state

# Why a gate's row is over, where nothing failed.
DECIDED = "decided"  # its pairs decide, or the version is decided about otherwise
ATTEMPTED = "attempted"  # the learner made as many pairs as requested
LATE = "late"  # the gate waited no longer
# Why its groups are excluded: no trajectory is lost by that, so no ledger row is needed.
NO_LOSS: Final = GroupCode.MEASURED


_OPEN: Final = and_(
    campaigns.c.state == CampaignState.RUNNING,
    exists().where(versions.c.id == campaigns.c.version_id, versions.c.state.in_(sorted(UNDECIDED))),
)


class GateArm(IntEnum):
    """As which version an attempt is made: its number."""

    CANDIDATE = 0
    LIVE = 1


@dataclass(frozen=True, slots=True)
class GateRequest:
    """A request to attempt the alias's held-out scenarios as `version` and as `beside`, at most `pairs` times each."""

    row: CampaignView
    version: str  # names that a proxy answers to: `helpdesk@3`
    beside: str
    pairs: int


@dataclass(frozen=True, slots=True)
class GatePair:
    """One scenario, attempted with both versions; their measured values, 0 or 1."""

    candidate: float
    live: float


@dataclass(frozen=True, slots=True)
class GateResult:
    """How far a wish is."""

    state: CampaignState
    reason: str | None
    pairs: Sequence[GatePair]  # in the order in which they were planned


async def request_gate(store: Store, version: VersionView, beside: VersionView, pairs: int) -> str:
    """Request a version's scenarios, with the live version beside it; returns the id. An equal request exists once."""
    row = {
        "id": new_id("gate"),
        "project_id": version.project_id,
        "alias_id": version.alias_id,
        "name": f"gate:{version.name}",
        "settings": {"version": version.name, "beside": beside.name, "pairs": pairs},
        "state": CampaignState.RUNNING,
        "version_id": version.id,
    }
    found = select(campaigns.c.id).where(campaigns.c.version_id == version.id)
    async with store.write() as conn:
        await conn.execute(sql.insert_ignore(conn, campaigns).values(**row, started_at=now()))
        return str((await conn.execute(found)).scalar_one())


async def next_request(store: Store, alias_id: str) -> GateRequest | None:
    """The oldest open request for an alias's scenarios, while its version is undecided."""
    query = select(campaigns).where(campaigns.c.alias_id == alias_id, _OPEN).order_by(campaigns.c.id)
    async with store.read() as conn:
        row = (await conn.execute(query)).first()
    return (
        GateRequest(campaign_view(row), *(row.settings[name] for name in ("version", "beside", "pairs")))
        if row
        else None
    )


async def is_open(store: Store, wish_id: str) -> bool:
    """Whether a wish still waits for an answer."""
    async with store.read() as conn:
        return (await conn.execute(select(campaigns.c.id).where(campaigns.c.id == wish_id, _OPEN))).first() is not None


async def find_request(store: Store, version_id: str) -> str | None:
    """The wish of a version's gate, over or not."""
    async with store.read() as conn:
        found = await conn.execute(select(campaigns.c.id).where(campaigns.c.version_id == version_id))
        return found.scalar_one_or_none()


async def end_request(store: Store, wish_id: str, state: CampaignState, reason: str) -> None:
    """End a wish; one that is over stays as it is."""
    async with store.write() as conn:
        await try_move_state(conn, campaigns, wish_id, state, reason=reason, ended_at=now())


async def write_round(store: Store, wish_id: str, number: int, worth: Mapping[str, float]) -> None:
    """Write the measured values of a round's attempts, by the external ids of their groups; absent: not measurable."""
    of_group = update(attempts).where(
        attempts.c.campaign_id == wish_id, attempts.c.group_external_id == bindparam("of_group")
    )
    rows = [{"of_group": group, "worth": value} for group, value in worth.items()]
    done = update(campaigns).where(campaigns.c.id == wish_id).values(steps_done=number)
    async with store.write() as conn:
        if rows:
            await conn.execute(of_group.values(success=bindparam("worth")), rows)
        await conn.execute(done)


async def gate_result(store: Store, wish_id: str) -> GateResult:
    """How far a wish is."""
    a = attempts.c
    counted = and_(a.campaign_id == campaigns.c.id, a.step_number <= campaigns.c.steps_done)
    query = (
        select(campaigns.c.state, campaigns.c.reason, a.step_number, a.scenario_id, a.number, a.success)
        .outerjoin(attempts, and_(counted, a.success.is_not(None)))
        .where(campaigns.c.id == wish_id)
        .order_by(a.step_number, a.group_external_id)
    )
    async with store.read() as conn:
        rows = (await conn.execute(query)).all()
    return GateResult(CampaignState(rows[0].state), rows[0].reason, _pairs(rows))


def _pairs(rows: Sequence[Any]) -> list[GatePair]:
    worth: defaultdict[tuple[int, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        worth[row.step_number, row.scenario_id][row.number] = row.success
    both = [sides for sides in worth.values() if sides.keys() >= set(GateArm)]
    return [GatePair(sides[GateArm.CANDIDATE], sides[GateArm.LIVE]) for sides in both]


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
    """The wishes of a project that wait for an answer, by version."""
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
