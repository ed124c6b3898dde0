"""A process of its own that changes a store, for tests of those that wait for it.

`python -m tests.recorder.writing_child URL` reads lines: `commit` changes the state of the group "theirs", `hold`
changes it and does not commit, so that it can be killed there. Each is answered by a line once it is done.
"""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy import update

from recorder.store.database import Store
from recorder.store.schema import groups


async def main(url: str) -> None:
    store = Store(url)
    for line in iter(sys.stdin.readline, ""):
        async with store.write() as conn:
            await conn.execute(update(groups).where(groups.c.id == "theirs").values(reason=line))
            if line == "hold\n":
                print("held", flush=True)
                sys.stdin.readline()
        print("done", flush=True)


asyncio.run(main(*sys.argv[1:]))
