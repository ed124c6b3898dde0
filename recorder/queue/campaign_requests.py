"""What people ask of a running campaign: to pause it, or to end it. Its process follows after the step that runs.

Owns: the requests, as rows of the ledger, and which one is open. Refuses: following it (`trainer.campaign.loop`), and
resuming, which needs a program (`hone train --resume NAME`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.queue import campaigns
from recorder.queue.campaigns import CampaignView
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow, write_rows
from recorder.store.schema import keys, ledger

Wish = Literal["pause", "end"]
ASKED_BY: Final = "asked by "  # the beginning of an end's detail, before the name
_CODES: Final[dict[str, Wish]] = {"pause_asked": "pause", "end_asked": "end"}


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """What was asked; `by`: the name of a key, or the actor while no key is required; `at`: unix seconds."""

    wish: Wish
    by: str
    at: float


async def ask_campaign(project: Project, name: str, wish: Wish, who: str) -> CampaignView:
    """Ask the process of a campaign (its id, or the newest of that name) to pause or to end it.

    Raises NotFound, and Conflict if no process runs it.
    """
    listed = await campaigns.list_campaigns(project)
    found = next((one for one in listed if name in (one.id, one.name)), None)
    if found is None:
        raise NotFound(f"there is no campaign {name[:200]!r}: `hone status` lists them.")
    if found.id not in {one.id for one in await campaigns.list_running(project.store, found.alias_id)}:
        raise Conflict(f"no process runs the campaign {found.name!r}: `hone train --resume {found.name}` continues it.")
    code = next(code for code, one in _CODES.items() if one == wish)
    async with project.store.write() as conn:
        await write_rows(conn, [LedgerRow(project.id, "campaign", found.id, code, {"who": who})])
    return found


async def open_request(conn: AsyncConnection, campaign_id: str, begun: str) -> CampaignRequest | None:
    """Return what was asked since the campaign's process began, if anything. `begun`: the ledger's code of that."""
    who = ledger.c.detail["who"].as_string()
    query = (
        select(ledger.c.code, func.coalesce(keys.c.name, who, "").label("by"), ledger.c.at)
        .outerjoin(keys, keys.c.id == who)
        .where(ledger.c.object_kind == "campaign", ledger.c.object_id == campaign_id)
        .where(ledger.c.code.in_((*_CODES, begun)))
        .order_by(ledger.c.id.desc())
        .limit(1)
    )
    row = (await conn.execute(query)).first()
    return None if row is None or row.code == begun else CampaignRequest(_CODES[row.code], row.by, float(row.at))
