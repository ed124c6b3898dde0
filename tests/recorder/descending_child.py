"""A trainer or a controller as a process of its own, to be killed: its arguments are its role and the store's URL.

It says `working` once it is about to look for work.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from recorder.errors import Conflict
from recorder.queue import leases
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from tests.recorder.descending import Line, line
from tests.recorder.rows import PROJECT, Rows

LOOK_S = 1.0  # a process that was killed tells nobody


async def train(one: Line) -> None:
    """One step, if there is anything to train on."""
    await leases.release_dead(Project(one.store, PROJECT), leases.trainer_lease(one.alias.name))
    await one.train()


async def decide(one: Line) -> None:
    """One version into service, by way of a canary."""
    await one.decide("canary")
    await one.decide("live")


async def work(role: str, url: str) -> None:
    one = await line(Rows(Store(url)))
    one.process = leases.holder_name()
    act = {"train": train, "decide": decide}[role]
    with one.store.watch.on(Topic.GROUPS, Topic.SERVICE, Topic.LEASES) as news:
        print("working", flush=True)
        while True:
            with suppress(Conflict):
                await act(one)
            await news.wait(LOOK_S)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
