"""A process of its own that claims groups until none is left, for tests of real competition.

`python -m tests.recorder.competitor URL OWNER judge|train ALIAS` begins when it reads a line, and prints each claim as
`group epoch`.
"""

from __future__ import annotations

import asyncio
import sys

from recorder.queue import claims
from recorder.queue.claims import GroupClaim
from recorder.store.database import Project, Store


async def take(store: Store, owner: str, kind: str, alias_id: str) -> list[GroupClaim]:
    if kind == "train":
        return await claims.claim_for_training(store, alias_id, owner, 60, limit=3)
    claim = await claims.claim_for_judging(Project(store, "default"), owner, 60)
    return [claim] if claim else []


async def main(url: str, owner: str, kind: str, alias_id: str) -> None:
    store = Store(url)
    print("started", flush=True)
    sys.stdin.readline()  # both begin at once
    while claimed := await take(store, owner, kind, alias_id):
        for claim in claimed:
            print(claim.group_id, claim.epoch, flush=True)
    await store.close()


asyncio.run(main(*sys.argv[1:]))
