"""Which campaigns' attempts may use tools that are not marked read-only, and which tools were withheld.

Owns: finding the campaign of a tool's caller, its permission (`campaign.allow_writes`), and the ledger's row for each
withheld tool. Refuses: the tools themselves (the gateway), and notifying people (trainer). Without the permission, a
campaign or gate allows no such tool, because its attempts are many and run unattended.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import func, or_, select, update

from recorder.states import ToolOutcome
from recorder.store import ledger
from recorder.store.changes import mark_quiet
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import campaigns, groups, tool_calls, trajectories

ALLOWED: Final = "allow_writes"  # the key in a campaign's settings
LEFT_OUT: Final = "tool_left_out"  # a code of the ledger's rows about a campaign; their detail: {"tool"}
REFUSED: Final = "write_not_allowed"  # the beginning of a refused call's error


async def find_barred_campaign(
    project: Project, *, group: str | None, trajectory_id: str | None, family: str
) -> str | None:
    """Return the campaign (or gate) whose scenario a caller attempts, if its attempts may not write; else None.

    A caller is identified by the group that it named, the trajectory of its call, or its key's family.
    """
    c = campaigns.c
    known = [c.id == family]
    if group is not None:
        same = (groups.c.project_id == project.id, groups.c.external_id == group)
        known.append(c.id.in_(select(groups.c.campaign_id).where(*same, groups.c.campaign_id.is_not(None))))
    if trajectory_id is not None:
        known.append(c.id.in_(select(trajectories.c.made_by).where(trajectories.c.id == trajectory_id)))
    async with project.store.read() as conn:
        rows = await conn.execute(select(c.id, c.settings).where(c.project_id == project.id, or_(*known)))
        return next((str(row.id) for row in rows if not row.settings.get(ALLOWED)), None)


async def set_writes_allowed(store: Store, campaign_id: str, *, allowed: bool) -> None:
    """Set whether a campaign's attempts may write."""
    c = campaigns.c
    async with store.write() as conn:
        settings: dict[str, Any] = (await conn.execute(select(c.settings).where(c.id == campaign_id))).scalar_one()
        if settings.get(ALLOWED) is not allowed:
            changed = update(campaigns).where(c.id == campaign_id).values(settings={**settings, ALLOWED: allowed})
            await conn.execute(mark_quiet(changed))


async def note_withheld_tools(project: Project, campaign_id: str, tools: Collection[str]) -> None:
    """Write to the ledger that tools were withheld from a campaign's attempts."""
    async with project.store.write() as conn:
        rows = [LedgerRow(project.id, "campaign", campaign_id, LEFT_OUT, {"tool": tool}) for tool in tools]
        await ledger.write_rows(conn, rows)


async def list_withheld_tools(store: Store, campaign_id: str) -> list[str]:
    """Return the tools that were withheld from a campaign's attempts, in the order of time."""
    rows = await ledger.object_entries(store, "campaign", campaign_id)
    return list(dict.fromkeys(str(row.detail["tool"]) for row in rows if row.code == LEFT_OUT and row.detail))


async def count_refused_calls(store: Store, campaign_id: str) -> int:
    """Return how many calls of withheld tools were refused."""
    t, c = trajectories.c, tool_calls.c
    query = (
        select(func.count())
        .select_from(tool_calls.join(trajectories, t.id == c.trajectory_id))
        .where(t.made_by == campaign_id, c.outcome == ToolOutcome.ERRORED, c.error.startswith(REFUSED))
    )
    async with store.read() as conn:
        return int((await conn.execute(query)).scalar_one())
