"""Facts of a call, for tests that begin where they have been read; and counting all that waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recorder.queue import leases
from recorder.search.indexer import index_calls
from recorder.states import Origin
from recorder.store.database import Project
from recorder.totals.call_facts import CallFacts
from recorder.totals.follower import LEASE, count_calls

PLAIN = CallFacts(
    call_id="call_1",
    trajectory_id="traj_1",
    origin=Origin.LIVE,
    started_at=1_800_000_000.0,
    error=None,
    tokens_in=10,
    tokens_out=4,
    cost_usd=0.5,
    duration_s=2.0,
    first_token_s=0.25,
    alias="helpdesk",
    version="helpdesk@1",
    client="curl",
    key="",
    tags=(),
)


def facts(**changes: Any) -> CallFacts:
    return replace(PLAIN, **changes)


async def count_all(project: Project, owner: str = "here") -> int:
    """Index and count until nothing waits, as a proxy does beside the calls; return how many calls that were."""
    while await index_calls(project):
        pass
    lease = await leases.acquire_lease(project, LEASE, owner, 60)
    assert lease is not None
    total = 0
    while done := await count_calls(project, lease):
        total += done
    await leases.release_lease(project.store, lease)
    return total
