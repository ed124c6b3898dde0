"""A big store, made quickly and as Hone leaves it: trajectories of one turn and of six, ended, grouped, mostly judged.

    python -m benchmarks.stores FOLDER --short 1000000 --long 100000       then `hone db check --data FOLDER`

The trajectories go through the real recorder, many at once, and end there; so do their groups. The traces of weeks of
traffic are written afterwards in bulk: scores of most groups, ledger rows of trajectories that retention deleted, and
times over `DAYS` days.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.maintenance.sweep import sweep
from recorder.messages.calls import Address, ParentCall, RecordedCall, SampledChoice, TrajectoryRef
from recorder.registry.aliases import ensure_alias
from recorder.settings import RecorderSettings
from recorder.states import Confidence
from recorder.store.bootstrap import DEFAULT_PROJECT, open_store
from recorder.store.database import Project, Store
from tests.recorder import talk

DAYS: Final = 90.0
LONG_TURNS: Final = 6
AT_ONCE: Final = 512  # trajectories that are written together
SWEEP_EVERY: Final = 16  # times
SCORED: Final = 0.9  # of the groups
SETTINGS: Final = RecorderSettings(batch_calls=AT_ONCE, commit_timeout_s=600)
_SYSTEM: Final = {"role": "system", "content": "You are a helpful agent that answers questions about orders."}


def turn(
    alias_id: str, ref: TrajectoryRef, task: int, number: int, parent: ParentCall | None, *, last: bool
) -> RecordedCall:
    """Return call `number` of a trajectory at a task, with its whole history."""
    messages: list[dict[str, Any]] = [_SYSTEM, {"role": "user", "content": f"Where is my order {task}?"}]
    for earlier in range(number):
        messages += [_said(task, ref.id, earlier), {"role": "user", "content": f"And then, {earlier}?"}]
    ids = list(range(60 + 40 * number))
    body_hash = blake2b(f"{ref.id} {number}".encode(), digest_size=16).digest()
    return talk.turn(
        ref,
        talk.request(messages, rest={"temperature": 1.0}, body_hash=body_hash),
        [SampledChoice(0, _said(task, ref.id, number), list(range(30)), [-0.25] * 30, "stop")],
        source="lineage" if parent else "new",
        confidence=Confidence.EXACT,
        parent=parent,
        address=Address(done=last),
        project_id=DEFAULT_PROJECT,
        alias_id=alias_id,
        base_fingerprint="0" * 64,
        prompt_token_ids=ids,
        usage={"prompt_tokens": len(ids), "completion_tokens": 30},
    )


def _said(task: int, run: str, number: int) -> dict[str, Any]:
    return {"role": "assistant", "content": f"Your order {task} arrives in {number} days, says {run[-6:]}."}


async def _run(recorder: Recorder, alias_id: str, task: int, turns: int) -> None:
    ref, parent = recorder.new_trajectory(Address(), None), None
    for number in range(turns):
        made = turn(alias_id, ref, task, number, parent, last=number == turns - 1)
        await recorder.commit(made)
        parent = ParentCall(made.call_id, 0)


@contextlib.asynccontextmanager
async def recording(folder: Path) -> AsyncIterator[tuple[Store, Recorder, str]]:
    """Open a store in a folder, with its recorder and the id of its alias."""
    store = await open_store(folder, SETTINGS, migrate=True)
    alias = await ensure_alias(Project(store, DEFAULT_PROJECT), "helpdesk", "base", "0" * 64)
    recorder = Recorder(store, SETTINGS)
    await recorder.start()
    try:
        yield store, recorder, alias.id
    finally:
        await recorder.stop()
        await store.close()


async def record(folder: Path, short: int, long: int) -> None:
    """Record the trajectories, eight of each task, the long ones spread among the short."""
    every = max(1, (short + long) // long) if long else 0
    kinds = (LONG_TURNS if every and (n // 8) % every == 0 else 1 for n in range(short + long))
    runs: Iterator[tuple[int, int]] = ((n // 8, turns) for n, turns in enumerate(kinds))
    async with recording(folder) as (store, recorder, alias_id):
        for chunk in count(1):
            together = list(islice(runs, AT_ONCE))
            await asyncio.gather(*(_run(recorder, alias_id, task, turns) for task, turns in together))
            if chunk % SWEEP_EVERY == 0 or not together:
                await sweep(Project(store, DEFAULT_PROJECT), SETTINGS)
            if not together:
                return


def age(file: Path, taken: int) -> None:
    """Write the traces of weeks: times over `DAYS`, scores, and ledger rows of `taken` deleted trajectories."""
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.create_function("new_id", 1, new_id)
        _spread(db)
        _score(db)
        db.executemany(
            "insert into ledger (project_id, object_kind, object_id, code, detail, at)"
            " values (?, 'trajectory', ?, 'deleted', '{\"why\":\"retention\",\"calls\":1}', ?)",
            ((DEFAULT_PROJECT, new_id("traj"), time.time() - DAYS * 86400) for _ in range(taken)),
        )
        db.commit()


def _spread(db: sqlite3.Connection) -> None:
    """Spread the times of a table: the oldest row has the lowest rowid."""
    for table, columns in (
        ("trajectories", ("started_at", "last_call_at", "ended_at")),
        ("calls", ("started_at", "first_token_at", "finished_at")),
        ("groups", ("opened_at", "joined_at", "last_call_at", "ready_at")),
    ):
        most = db.execute(f"select max(rowid) from {table}").fetchone()[0]
        earlier = f"{DAYS * 86400} * (1.0 - rowid / {most}.0)"
        db.execute(f"update {table} set " + ", ".join(f"{name} = {name} - {earlier}" for name in columns))


def _score(db: sqlite3.Connection) -> None:
    db.execute(
        "insert into scores (id, project_id, group_id, recipe_hash, judge_model, tokens_in, tokens_out, created_at,"
        " alias_id, absolute) select new_id('score'), project_id, id, 'recipe', 'judge', 900, 60, ready_at, alias_id, 0"
        " from groups where state = 'ready' and rowid % 1000 < ?",
        (SCORED * 1000,),
    )
    db.execute("create temp table newest as select group_id, id from scores")
    db.execute("create unique index temp.by_group on newest (group_id)")
    db.execute(
        "insert into score_parts (score_id, trajectory_id, part, value, weight)"
        " select newest.id, t.id, part.name, (t.rowid % 11) / 10.0, 1.0 from newest"
        " join trajectories t on t.group_id = newest.group_id"
        " join (select 'reward' as name union all select 'ruler') part"
    )
    db.execute(
        "update groups set state = 'scored', current_score_id = (select id from newest where group_id = groups.id)"
        " where id in (select group_id from newest)"
    )


def make(folder: Path, short: int, long: int, taken: int) -> dict[str, Any]:
    """Make a store in a folder that has none; return the duration and the size."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "hone.db"
    if file.exists():
        raise SystemExit(f"{file} is there already: name another folder")
    began = time.monotonic()
    asyncio.run(record(folder, short, long))
    recorded_s = time.monotonic() - began
    age(file, taken)
    made_s = time.monotonic() - began
    return {"short": short, "long": long, "taken": taken, "recorded_s": round(recorded_s), "made_s": round(made_s),
            "mb": round(file.stat().st_size / 1e6)}  # fmt: skip


def main() -> None:
    """Make a store from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--short", type=int, default=1_000_000, help="trajectories of one call [1,000,000]")
    parser.add_argument("--long", type=int, default=100_000, help="trajectories of six calls [100,000]")
    parser.add_argument("--taken", type=int, default=200_000, help="ledger rows of deleted trajectories [200,000]")
    asked = parser.parse_args()
    print(make(asked.folder, asked.short, asked.long, asked.taken))


if __name__ == "__main__":
    main()
