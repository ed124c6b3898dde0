"""When open runs are due, and which are, is found without asking all of them: held to what asking all of them says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from sqlalchemy import bindparam, select, update

from recorder.queue.groups import idle_trajectories as rules
from recorder.queue.groups.idle_trajectories import IdleRule, idle_trajectories
from recorder.settings import RecorderSettings
from recorder.store import sql
from recorder.store.schema import choices, tool_requests, trajectories
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows

pytestmark = pytest.mark.slow

ROUNDS: Final = 25
TOOLS: Final = b"tools"


@dataclass(frozen=True, slots=True)
class Run:
    """An open run. `answered`: whether it waits for nothing but its agent; None: for it nothing is ever due."""

    id: str
    answered: bool | None


async def _call(rows: Rows, run: str, age_s: float = 0.0, *, says: str = "stop", asks: bool = False, **of: Any) -> str:
    call = await rows.call(run, sampled=0, started_at=now() - age_s, **of)
    await rows.insert(choices, {"call_id": call, "index": 0, "trainable": True, "finish_reason": says})
    if asks:
        where = {"project_id": PROJECT, "trajectory_id": run, "call_id": call, "choice": 0, "position": 0}
        await rows.insert(tool_requests, {**where, "match": b"m"})
    return call


async def _runs(rows: Rows) -> list[Run]:
    """One run of each kind."""

    async def run(answered: bool | None, *, leaf: bool = True, **of: Any) -> Run:
        made = await rows.trajectory(answered=False, **of)
        if leaf:
            await rows.set(trajectories, made, leaf_call_id=await _call(rows, made))
        return Run(made, answered)

    unanswered, plain = await run(False, leaf=False), await run(True)
    said, asked, errand, rewritten, answering = [await run(answered) for answered in (False, False, False, True, None)]
    await rows.set(trajectories, said.id, leaf_call_id=await _call(rows, said.id, says="tool_calls"))
    await rows.set(trajectories, asked.id, leaf_call_id=await _call(rows, asked.id, asks=True))
    await _call(rows, errand.id, 20, asks=True, tools_blob_id=TOOLS)
    await _call(rows, rewritten.id, 20, asks=True, tools_blob_id=TOOLS)
    await _call(rows, rewritten.id, 10, tools_blob_id=TOOLS)
    await rows.call(answering.id, state="open")
    others = [await run(None, origin="campaign"), await run(None, state="completed")]
    return [unanswered, plain, said, asked, errand, rewritten, answering, *others]


async def _heard_of(rows: Rows, runs: Sequence[Run], at: Sequence[float]) -> None:
    heard = update(trajectories).where(trajectories.c.id == bindparam("run")).values(last_call_at=bindparam("at"))
    async with rows.store.write() as conn:
        await conn.execute(heard, [{"run": run.id, "at": at} for run, at in zip(runs, at, strict=True)])


async def _first(rows: Rows, idle: IdleRule) -> float | None:
    async with rows.store.read() as conn:
        times = (await conn.execute(select(*idle.first()))).one()
    return min((time for time in times if time is not None), default=None)


async def _due(rows: Rows, idle: IdleRule) -> tuple[float, set[str], float]:
    """Which are due, between the database's clock before and after."""
    async with rows.store.read() as conn:
        before = await sql.current_time(conn)
        due = set((await conn.execute(idle.due())).scalars())
    async with rows.store.read() as conn:
        return before, due, await sql.current_time(conn)


@pytest.mark.parametrize(("answered_s", "waiting_s"), [(15.0, 900.0), (900.0, 15.0), (60.0, 60.0)])
async def test_what_is_due_and_when_is_what_every_run_says(
    rows: Rows, monkeypatch: pytest.MonkeyPatch, answered_s: float, waiting_s: float
) -> None:
    monkeypatch.setattr(rules, "_FEW", 3)
    idle = idle_trajectories(PROJECT, RecorderSettings(answered_idle_s=answered_s, idle_timeout_s=waiting_s))
    assert await _first(rows, idle) is None
    runs = [*await _runs(rows), *await _runs(rows)]
    drawn = random.Random(7)
    for round_ in range(ROUNDS):
        async with rows.store.read() as conn:
            newest = await sql.current_time(conn) + drawn.choice([0.0, 400.0])
        spread_s = drawn.choice([10.0, 200.0, 1500.0])
        heard = [newest - drawn.random() * spread_s for _ in runs]
        await _heard_of(rows, runs, heard)
        at = {
            run.id: last + (answered_s if run.answered else waiting_s)
            for run, last in zip(runs, heard, strict=True)
            if run.answered is not None
        }
        assert await _first(rows, idle) == min(at.values()), round_
        before, due, after = await _due(rows, idle)
        assert {run for run, when in at.items() if when <= before} <= due, round_
        assert due <= {run for run, when in at.items() if when <= after}, round_
