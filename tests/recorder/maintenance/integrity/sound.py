"""A store as Hone leaves it: recorded by the real recorder, judged, trained on, one version live and one undecided."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Table, delete, update

from recorder.capture.recorder import Recorder
from recorder.maintenance.integrity.invariants import check_store
from recorder.maintenance.integrity.reader import Check
from recorder.messages.calls import Address
from recorder.queue import leases
from recorder.queue.training import steps
from recorder.states import Purpose
from recorder.store.database import Store
from recorder.store.schema import calls, groups
from tests.recorder.descending import Half, Line, line
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, choice, user

TURNS, MEMBERS, LONG = 3, 2, 300  # LONG: more than two blocks of ids


@dataclass
class Sound:
    """The store, and names of what is in it."""

    store: Store
    rows: Rows
    line: Line
    talk: Talk
    data: Path
    runs: list[str]  # of the live version's group
    group: str  # trained
    tried: str
    live: str
    waiting: str

    async def broken(self) -> dict[str, list[str]]:
        """The checks that find something → what they found."""
        done = await check_store(self.store, self.data)
        return {one.name: [f"{v.kind} {v.id}" for v in one.violations] for one in done if one.violations}

    async def finds(self, check: Check, *what: str) -> None:
        """Assert that this check finds just this, and no other check anything."""
        broken = await self.broken()
        found = {name: sorted(objects) for name, objects in broken.items()}  # ids of one millisecond are in no order
        assert found == {check.__name__: sorted(what)}

    async def change(self, table: Table, *where: ColumnElement[bool], **values: Any) -> None:
        """Write what Hone never would."""
        async with self.store.write() as conn:
            assert (await conn.execute(update(table).where(*where).values(**values))).rowcount

    async def take(self, table: Table, *where: ColumnElement[bool]) -> None:
        """Remove what Hone never would."""
        async with self.store.write() as conn:
            assert (await conn.execute(delete(table).where(*where))).rowcount

    async def calls_of(self, run: str) -> list[Any]:
        """The rows of a run's calls, oldest first."""
        return sorted(
            (row for row in await self.rows.all(calls) if row.trajectory_id == run),
            key=lambda row: (row.prompt_len, row.id),
        )


async def sound(store: Store, recorder: Recorder, data: Path) -> Sound:
    """Two groups of conversations with tools, one trained and one tried."""
    rows, talk = Rows(store), Talk(recorder)
    one = await line(rows)
    runs = await _group(talk, one, "first")
    group = await _judged(one)
    live = await _step(one, data)
    await one.decide("live")
    await _group(talk, one, "second")
    tried = await _judged(one)
    waiting = await _step(one, data)
    return Sound(store, rows, one, talk, data, runs, group, tried, live, waiting)


async def _group(talk: Talk, one: Line, name: str) -> list[str]:
    runs = []
    for number in range(MEMBERS):
        address = Address(trajectory=str(number), group=name, group_size=MEMBERS, purpose=Purpose.TRAIN)
        runs.append(await _run(talk, one, f"{name} {number}", address))
    return runs


async def _run(talk: Talk, one: Line, seed: str, address: Address) -> str:
    base = sum(seed.encode())
    prompt = list(range(base, base + LONG))
    messages: list[Any] = [user(f"Where is my order, {seed}?")]
    for turn in range(TURNS):
        ids = [turn, *range(LONG)]
        said = {"role": "assistant", "content": f"answer {turn} to {seed}"}
        answer = choice(said, token_ids=ids, logprobs=[-0.5] * len(ids))
        made = await talk.call(
            messages, [answer], address, prompt_token_ids=prompt, tools=[{"type": "function"}], alias_id=one.alias.id
        )
        prompt = [*prompt, *ids, turn]
        messages = [*messages, said, user(f"and then, {turn}?")]
    run = made.attribution.trajectory.id
    await talk.recorder.close(PROJECT, run)
    return run


async def _judged(one: Line) -> str:
    """The group that is ready, of the alias and scored."""
    [ready] = [row.id for row in await one.rows.all(groups) if row.state == "ready"]
    await one.rows.set(groups, ready, alias_id=one.alias.id)
    await one.rows.score(ready)
    one.groups.append(ready)
    return str(ready)


async def _step(one: Line, data: Path) -> str:
    half = await one.begin()
    assert half is not None
    await _publish(one, half, data)
    return half.version.id


async def _publish(one: Line, half: Half, data: Path) -> None:
    """As a trainer does: a folder, then the step; every run of its groups was trained on."""
    folder = data / "adapters" / half.version.engine_name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(half.version.id)
    digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    members = [await one.rows.members(claim.group_id) for claim in half.claims]
    await steps.finish_step(
        one.store, half.step.id, version_id=half.version.id, path=str(folder), engine_name=folder.name,
        manifest_sha256=digest, metrics={}, checkpoint_path=None, groups=half.claims,
        trained=[id_ for ids in members for id_ in ids], lease=half.lease,
    )  # fmt: skip
    await leases.release_lease(one.store, half.lease)
