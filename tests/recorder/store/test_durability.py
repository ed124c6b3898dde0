"""What was acknowledged stays: through kill -9 of the writing process, and around a disk that was full."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.capture.recorder import Recorder
from recorder.errors import RolledBack
from recorder.messages.calls import Address
from recorder.settings import RecorderSettings
from recorder.states import TrajectoryState
from recorder.store.bootstrap import open_store
from recorder.store.database import Store, sqlite_url
from recorder.store.schema import calls, choices, nodes, trajectories
from recorder.store.statement import Statement
from recorder.store.write_backends import SqliteBackend
from recorder.views.trajectories import transcripts
from tests.recorder.talk import Talk, assistant, choice, user

ROOT = Path(__file__).parents[3]
KILLS = (1, 17, 60, 150)  # after how many acknowledged turns


def acknowledged_until_killed(url: str, name: str, turns: int) -> list[str]:
    """Run a writer, kill -9 it after so many acknowledged turns, and return all that it had acknowledged by then."""
    command = [sys.executable, "-m", "tests.recorder.committing_child", url, name]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(turns)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    return [line.rstrip("\n") for line in lines if line.endswith("\n")]


@pytest.mark.slow
async def test_kill_9_loses_no_acknowledged_turn(store: Store) -> None:
    acknowledged: list[str] = []
    url = store.url.render_as_string(hide_password=False)
    for number, turns in enumerate(KILLS):
        acknowledged += await asyncio.to_thread(acknowledged_until_killed, url, f"run{number}", turns)
    assert len(acknowledged) >= sum(KILLS)
    async with store.read() as conn:
        written = {row.id: row for row in (await conn.execute(select(calls))).all()}
        sampled = set((await conn.execute(select(choices.c.call_id))).scalars())
        known = set((await conn.execute(select(nodes.c.id))).scalars())
        ended = select(trajectories.c.id, trajectories.c.call_count, trajectories.c.state)
        homes = {row.id: row for row in (await conn.execute(ended)).all()}
    assert set(acknowledged) <= set(written)
    assert set(written) == sampled  # no call without its choices: a transaction is whole
    assert {row.prompt_node_id for row in written.values()} <= known
    for id_, home in homes.items():
        own = sum(row.trajectory_id == id_ for row in written.values())
        assert home.call_count == own
        assert (home.state == TrajectoryState.OPEN) == (own < 3)
    view = await transcripts.load_trajectory(store, written[acknowledged[-1]].trajectory_id, with_tokens=True)
    for step, call in enumerate(view.calls):
        assert list(call.prompt_token_ids or ()) == list(range(200 + step))


@contextlib.contextmanager
def no_larger_files(folder: Path) -> Iterator[None]:
    """No file may grow: what a full disk is like, for whoever may not mount one."""
    largest = max(path.stat().st_size for path in folder.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """Every byte that was free is taken."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    try:
        yield
    finally:
        filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A disk of 4 MiB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("stays", [True, False])
async def test_turns_of_a_full_disk_wait_for_room_and_are_refused_where_it_stays_full(
    small_disk: Path | None, tmp_path: Path, empty_database: Path, stays: bool
) -> None:
    folder = small_disk or tmp_path
    shutil.copy(empty_database, folder / "hone.db")
    store = await open_store(folder, RecorderSettings(), migrate=False)
    recorder = Recorder(store, RecorderSettings(), SqliteBackend(store, "process", patience_s=0.2 if stays else 20.0))
    await recorder.start()
    talk = Talk(recorder)
    at = Address(trajectory="run")
    large = user("x" * 200_000)
    before = await talk.call([user("?")], "before", at)
    with full_disk(folder) if small_disk else no_larger_files(folder):
        refused = await talk.attributed([user("?"), assistant("before"), large], [choice(assistant("during"))], at)
        during = [replace(refused, call_id=f"call_during_{number}") for number in range(3)]
        waiting = [asyncio.ensure_future(recorder.commit(call)) for call in during]
        if stays:
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(result) for result in results] == [RolledBack] * 3
        else:
            await asyncio.sleep(0.3)
            assert not any(one.done() for one in waiting)
    if not stays:
        await asyncio.gather(*waiting)
    assert recorder.stats().unrecorded_turns == (3 if stays else 0)
    after = await talk.call([user("?"), assistant("before"), large], "after", at)
    await recorder.stop()
    view = await transcripts.load_trajectory(store, before.attribution.trajectory.id, with_tokens=True)
    kept = [] if stays else [call.call_id for call in during]
    assert [c.id for c in view.calls] == [before.call_id, *kept, after.call_id]
    assert view.answer == "after"
    await store.close()


async def test_power_durability_writes_the_same(tmp_path: Path, empty_database: Path) -> None:
    shutil.copy(empty_database, tmp_path / "hone.db")
    settings = RecorderSettings(durability="power")
    store = Store(sqlite_url(tmp_path), durability="power")
    recorder = Recorder(store, settings)
    await recorder.start()
    made = await asyncio.gather(*(Talk(recorder).call([user(f"{n}")], "!") for n in range(20)))
    await recorder.stop()
    async with store.read() as conn:
        assert set((await conn.execute(select(calls.c.id))).scalars()) == {m.call_id for m in made}
    await store.close()


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("power", 2)])
async def test_only_power_durability_waits_for_the_disk(
    tmp_path: Path, durability: Literal["process", "power"], synchronous: int
) -> None:
    store = await open_store(tmp_path, RecorderSettings(durability=durability), migrate=True)
    backend = SqliteBackend(store, durability)
    await backend.start()
    asked = Statement(text("PRAGMA synchronous"))

    async def of_store(conn: AsyncConnection, found: Any) -> None:
        assert (await conn.exec_driver_sql("PRAGMA synchronous")).scalar_one() == synchronous

    assert [tuple(row) for row in await backend.write(lambda ex: ex.all(asked))] == [(synchronous,)]
    await backend.write(lambda ex: None, of_store)  # what ends a run goes this way
    await backend.stop()
    await store.close()
