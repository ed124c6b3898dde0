"""Why a group could not be judged: what the judge said, how often it was tried, and when it is next.

Owns: reading that. Refuses: groups that were judged, or left out for good.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from recorder.base.terminal import duration
from recorder.judged.disputed import CODE as DISPUTED
from recorder.states import GroupState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import groups, ledger
from recorder.telling.happenings import said_in


@dataclass(frozen=True, slots=True)
class FailedJudging:
    """`next_in_s` None: by a person or `hone score` alone."""

    code: str
    said: str
    tries: int
    next_in_s: float | None

    def sentence(self) -> str:
        """All of it, in words."""
        by_hand = "a person's choice scores it" if self.code == DISPUTED else "nobody tries it again: use `hone score`"
        again = by_hand if self.next_in_s is None else f"next in {duration(self.next_in_s)}"
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return f"could not be judged ({self.code}), tried {times}, {again}: {self.said}"


async def failed_judging(store: Store, group_id: str) -> FailedJudging | None:
    """What is known of a group that is unscored; None for any other."""
    columns = (groups.c.reason, groups.c.tries, groups.c.try_after)
    unscored = (groups.c.id == group_id, groups.c.state == GroupState.UNSCORED)
    of_group = (ledger.c.object_kind == "group", ledger.c.object_id == group_id)
    async with store.read() as conn:
        row = (await conn.execute(select(*columns).where(*unscored))).first()
        if row is None:
            return None
        at = await sql.clock(conn)
        newest = select(ledger.c.detail).where(*of_group, ledger.c.code == row.reason).order_by(ledger.c.id.desc())
        detail = (await conn.execute(newest.limit(1))).scalar_one_or_none()
    next_in_s = None if row.try_after is None else max(0.0, row.try_after - at)
    return FailedJudging(str(row.reason), said_in(detail or {}), int(row.tries), next_in_s)
