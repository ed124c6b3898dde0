"""The cost of a big store: recording, closing, `hone status`, lists, retention; and queries that scan a whole table.

    python -m benchmarks.stores FOLDER --short 90000 --long 10000
    python -m benchmarks.pages FOLDER --save NAME       writes a line of benchmarks/results/pages.json
    python -m benchmarks.pages FOLDER --served          the pages as a proxy serves them (`benchmarks.served_pages`)

Each operation runs `TIMES` times on a store that `benchmarks.stores` made (it is modified: some trajectories are added,
others deleted). Beside its time are listed the statements whose plan scans all of a growing table: there should be
none. With `--to URL` the store is first copied to that database, which is then measured instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import event, func, select
from sqlalchemy.engine import Connection

from benchmarks import served_pages
from benchmarks.stores import turn
from proxy.commands.status_view import status_json
from recorder.capture.recorder import Recorder
from recorder.maintenance.sweep import next_due_query, seconds_until_due, sweep
from recorder.maintenance.transfer.store_copy import copy_store
from recorder.maintenance.transfer.target import open_target
from recorder.messages.calls import Address
from recorder.queue.claims import claim_for_judging, next_try_in
from recorder.registry.aliases import ensure_alias
from recorder.settings import RecorderSettings
from recorder.states import GroupState, Purpose, TrajectoryState
from recorder.store import ledger
from recorder.store.bootstrap import DEFAULT_PROJECT, open_store
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from recorder.totals.follower import count_waiting
from recorder.views.lists.filters import (
    ANY,
    USUAL_ORIGINS,
    GroupFilter,
    Split,
    TrafficFilter,
    TrajectoryFilter,
    with_usual_groups,
    with_usual_trajectories,
)
from recorder.views.lists.groups import list_groups
from recorder.views.lists.sort_order import Sort
from recorder.views.lists.trajectories import list_trajectories
from recorder.views.status.stages import LoopSettings
from recorder.views.status.traffic import load_traffic

RESULTS: Final = Path(__file__).parent / "results" / "pages.json"
TIMES: Final = 5
AT_ONCE: Final = 32
GROW: Final = {"nodes", "blobs", "groups", "trajectories", "calls", "choices", "issued", "tool_requests", "tool_calls",
               "scores", "score_parts", "verdicts", "feedback", "ledger", "node_blobs", "prompts", "said",
               "second_scores", "unindexed", "counted_calls", "traffic", "trajectory_totals",
               "trajectory_facets"}  # fmt: skip

# Indexes that are read in order until a page is full, or that hold few rows.
NOBODY: Final = "nobody"
# Filters of lists: some match many rows, some none.
RUNS: Final = (
    ("those open", TrajectoryFilter(states=(TrajectoryState.OPEN,))),
    (
        "those that failed or were given up",
        TrajectoryFilter(states=(TrajectoryState.ERRORED, TrajectoryState.ABANDONED)),
    ),
    ("the usual origins", with_usual_trajectories(TrajectoryFilter())),
    ("the usual origins of an alias", with_usual_trajectories(TrajectoryFilter(alias="helpdesk"))),
    ("an alias", TrajectoryFilter(alias="helpdesk")),
    ("no alias", TrajectoryFilter(alias=NOBODY)),
    ("a version", TrajectoryFilter(version="helpdesk@0")),
    ("no purpose", TrajectoryFilter(purpose=Purpose.EVAL)),
    ("an attribution", TrajectoryFilter(source="lineage")),
    ("no attribution", TrajectoryFilter(source=NOBODY)),
    ("no session", TrajectoryFilter(session=NOBODY)),
    ("no tag", TrajectoryFilter(tags=((NOBODY, None),))),
    ("a reward", TrajectoryFilter(reward_from=0.9)),
    ("no reward", TrajectoryFilter(reward_from=2.0)),
    ("a time", TrajectoryFilter(since=1.0, until=2.0)),
    ("tool errors", TrajectoryFilter(tool_error=True)),
    ("no tool errors", TrajectoryFilter(tool_error=False)),
    ("a reason", TrajectoryFilter(reason="too_few")),
    ("no reason", TrajectoryFilter(reason=NOBODY)),
    ("no group", TrajectoryFilter(group=NOBODY)),
    ("an alias and no reward", TrajectoryFilter(alias="helpdesk", reward_from=2.0)),
    ("a finish reason", TrajectoryFilter(finish_reason="stop")),
    ("no client", TrajectoryFilter(client=NOBODY)),
    ("any error", TrajectoryFilter(error=ANY)),
    ("no key", TrajectoryFilter(key=NOBODY)),
    ("those trained on", TrajectoryFilter(trained=True)),
    ("those not trained on", TrajectoryFilter(trained=False)),
    ("many tokens", TrajectoryFilter(tokens_from=1e9)),
    ("a duration", TrajectoryFilter(duration_from=1e9)),
    ("those active", TrajectoryFilter(active_since=1.0)),
)
GROUPS: Final = (
    ("those ready", GroupFilter(states=(GroupState.READY,))),
    ("the usual origins", with_usual_groups(GroupFilter())),
    ("the usual origins of those ready", with_usual_groups(GroupFilter(states=(GroupState.READY,)))),
    ("no alias", GroupFilter(alias=NOBODY)),
    ("no version", GroupFilter(version=NOBODY)),
    ("no campaign", GroupFilter(campaign=NOBODY)),
    ("no reason", GroupFilter(reason=NOBODY)),
    ("a spread", GroupFilter(spread_from=0.5)),
    ("no spread", GroupFilter(spread_from=2.0)),
)
PAGED: Final = {
    "ix_trajectories_newest",
    "ix_groups_newest",
    "ix_groups_scored",
    "ix_calls_open",
    "ix_counted_calls_waiting",
}

Deed = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Bench:
    """The measured store."""

    store: Store
    recorder: Recorder
    alias_id: str
    data: Path
    settings: RecorderSettings
    runs: int


def deeds(on: Bench) -> Iterator[tuple[str, Deed]]:
    """Return the measured operations by name. Those that change the store come last."""
    store, project, settings = on.store, DEFAULT_PROJECT, on.settings
    question = next_due_query(project, settings)
    yield "when something is next due (polled)", lambda: seconds_until_due(store, question)
    yield "when a group is next tried (polled)", lambda: next_try_in(Project(store, project))
    yield "hone status", lambda: status_json(Project(store, project), on.data, LoopSettings(settings))
    yield "runs, first page", lambda: list_trajectories(Project(store, project))
    for said, runs in RUNS:
        yield f"runs, first page of {said}", partial(list_trajectories, Project(store, project), runs)
    for sort in Sort:
        yield f"runs, sorted by {sort}", partial(list_trajectories, Project(store, project), sort=sort)
    for split in (None, *Split):
        wanted = TrafficFilter(range="30d", split=split, origins=USUAL_ORIGINS)
        yield (
            f"traffic of 30 days, split by {split or 'nothing'}",
            partial(load_traffic, Project(store, project), wanted),
        )
    yield "calls to count (polled)", lambda: count_waiting(Project(store, project), most=1)
    yield "groups, first page", lambda: list_groups(Project(store, project))
    for said, groups in GROUPS:
        yield f"groups, first page of {said}", partial(list_groups, Project(store, project), groups)
    yield "ledger, newest", lambda: ledger.latest_entries(Project(store, project))
    yield "ledger, counted", lambda: ledger.count_codes(Project(store, project), "trajectory")
    yield "a turn of a new run", lambda: _record(on, 1)
    yield f"{AT_ONCE} turns of new runs at once", lambda: _record(on, AT_ONCE)
    yield f"{AT_ONCE} runs ended, and their groups closed", lambda: _close(on)
    yield "a group claimed for judging", lambda: claim_for_judging(Project(store, project), "bench:1:a", 60)
    yield "retention, one sweep", lambda: _retain(on)


async def _record(on: Bench, runs: int, *, task: int | None = None, last: bool = False) -> None:
    task = time.time_ns() if task is None else task
    refs = [on.recorder.new_trajectory(Address(), None) for _ in range(runs)]
    await asyncio.gather(*(on.recorder.commit(turn(on.alias_id, r, task, 0, None, last=last)) for r in refs))


async def _close(on: Bench) -> None:
    await _record(on, AT_ONCE, last=True)
    await sweep(Project(on.store, DEFAULT_PROJECT), on.settings)


async def _retain(on: Bench) -> None:
    settings = on.settings.model_copy(update={"retention_days": 80.0})
    report = await sweep(Project(on.store, DEFAULT_PROJECT), settings)
    assert report.trajectories_deleted > 0, "nothing is old enough: make the store with benchmarks.stores"


@contextmanager
def listening(store: Store) -> Iterator[dict[str, tuple[str, Any]]]:
    """Collect the statements that a block executes: their text, with one set of parameters."""
    heard: dict[str, tuple[str, Any]] = {}

    def hear(_: Connection, __: object, text: str, parameters: Any, ___: object, many: bool) -> None:
        if (not many and text.lstrip()[:6].upper() in ("SELECT", "UPDATE", "DELETE")) or text.startswith("WITH"):
            heard.setdefault(text, (text, parameters))

    engines = [store._reader.sync_engine, store._writer.sync_engine]
    for engine in engines:
        event.listen(engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", hear)


async def walks(store: Store, heard: dict[str, tuple[str, Any]]) -> list[str]:
    """Return SQLite's full scans of growing tables: the plan's line, and the statement.

    A page that is read in the order of an index stops when it is full, so it does not count.
    """
    found = []
    for text, parameters in heard.values():
        async with store.read() as conn:
            plan = (await conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters)).mappings().all()
        lines = [str(row["detail"]) for row in plan]
        ends_early = " LIMIT " in text and not any(line.startswith("USE TEMP B-TREE") for line in lines)
        found += [f"{line} | {' '.join(text.split())}" for line in lines if _is_walk(line) and not ends_early]
    return found


def _is_walk(line: str) -> bool:
    """Whether a line of a plan scans all rows of a growing table, or all rows of a project in it."""
    words = line.split()
    whole = words[0] == "SCAN" or (words[0] == "SEARCH" and line.endswith("(project_id=?)"))
    return whole and words[1] in GROW and PAGED.isdisjoint(words)


async def measure(on: Bench, only: str) -> list[dict[str, Any]]:
    """Run every operation, and check its query plans."""
    rows = []
    for name, deed in deeds(on):
        if only not in name:
            continue
        times = []
        with listening(on.store) as heard:
            for _ in range(TIMES):
                began = time.perf_counter()
                await deed()
                times.append(time.perf_counter() - began)
        row = {"deed": name, "ms_p50": round(statistics.median(times) * 1e3, 2), "ms_most": round(max(times) * 1e3, 2)}
        found = await walks(on.store, heard) if on.store.is_sqlite else []
        rows.append(row | {"walks": len(found)})
        print(f"{name:45} p50 {row['ms_p50']:10.2f} ms  most {row['ms_most']:10.2f} ms  {len(found)} walks", flush=True)
        for line in found:
            print(f"    {line[:400]}")
    return rows


async def opened(folder: Path, url: str | None) -> Store:
    """Open the store in a folder, or its copy at a URL."""
    store = await open_store(folder, RecorderSettings(), migrate=True)
    if url is None:
        return store
    target = await open_target(url)
    began = time.perf_counter()
    done = await copy_store(store, target)
    print(f"copied and verified {done.rows:,} rows in {time.perf_counter() - began:.0f} s", flush=True)
    await store.close()
    return target


async def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a store that benchmarks.stores made")
    parser.add_argument("--to", metavar="URL", help="copy the store to this empty database, and measure the copy")
    parser.add_argument(
        "--served", action="store_true", help="measure the pages over HTTP, instead of operations on the store"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of calls with open pages")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each")
    parser.add_argument("--only", default="", help="operations whose name contains this")
    parser.add_argument("--save", metavar="NAME", help=f"write the figures into {RESULTS.name} under this name")
    asked = parser.parse_args()
    store = await opened(asked.folder, asked.to)
    async with store.read() as conn:
        runs = int((await conn.execute(select(func.count()).select_from(trajectories))).scalar_one())
    try:
        if asked.served:
            found = await served_pages.measure(store, asked.folder, asked.to, asked.rounds, asked.seconds)
        else:
            found = {"deeds": await _deeds(store, asked.folder, runs, asked.only)}
    finally:
        await store.close()
    if asked.save:
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        machine = {"cores": os.cpu_count(), "load_1min": os.getloadavg()[0]}
        told = {"database": store.url.get_backend_name(), "runs": runs, "machine": machine} | found
        kept[asked.save] = kept.get(asked.save, {}) | told
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


async def _deeds(store: Store, folder: Path, runs: int, only: str) -> list[dict[str, Any]]:
    settings = RecorderSettings(group_window_s=1e-6)
    alias = await ensure_alias(Project(store, DEFAULT_PROJECT), "helpdesk", "base", "0" * 64)
    recorder = Recorder(store, settings)
    await recorder.start()
    try:
        return await measure(Bench(store, recorder, alias.id, folder, settings, runs), only)
    finally:
        await recorder.stop()


if __name__ == "__main__":
    asyncio.run(main())
