"""The store on a real PostgreSQL: migrated up from nothing, and a conversation through the recorder and back;
verdicts, which are kept by a statement of several rows.

A private cluster is made in a temporary folder and heard on a socket there alone. Whoever has no PostgreSQL, or no
driver for it, sees these tests skipped.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from recorder.capture.recorder import Recorder
from recorder.content.turns import Parent
from recorder.reading import transcripts
from recorder.settings import RecorderSettings
from recorder.states import Confidence
from recorder.store import migrate
from recorder.store.migrate import HEAD, open_store
from recorder.work import verdicts
from recorder.work.verdicts import KeptVerdicts, NewVerdicts
from tests.recorder.talk import PROJECT, Talk, assistant, tool_result, tool_turn, user

pytestmark = pytest.mark.slow  # a cluster takes seconds to make

_OTHER_USER = "nobody" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root


def _program(name: str) -> str | None:
    debians = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(debians[-1]) if debians else None)


def _run(*command: str) -> None:
    subprocess.run(command, user=_OTHER_USER, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """The URL of an empty database."""
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("no PostgreSQL is installed (initdb, pg_ctl)")
    if importlib.util.find_spec("asyncpg") is None:
        pytest.skip("asyncpg, the driver for PostgreSQL, is not installed")
    folder = Path(tempfile.mkdtemp(prefix="hone-pg-"))  # a socket's path must be short
    if _OTHER_USER is not None:
        shutil.chown(folder, _OTHER_USER)
    data = str(folder / "data")
    try:
        _run(initdb, "-D", data, "-U", "hone", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        _run(pg_ctl, "-D", data, "-l", str(folder / "log"), "-o", options, "-w", "start")
        try:
            yield f"postgresql+asyncpg://hone@/postgres?host={folder}"
        finally:
            _run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


async def test_a_conversation_is_recorded_attributed_and_read_back(postgresql: str, tmp_path: Path) -> None:
    settings = RecorderSettings(url=postgresql)
    store = await open_store(tmp_path, settings, migrate=True)
    assert await migrate.revision(store) == HEAD
    recorder = Recorder(store, settings)
    await recorder.start()
    try:
        talk = Talk(recorder)
        first = await talk.call([user("Where?")], "On Monday\n")
        asked = [user("Where?"), assistant("On Monday"), user("Really?")]  # as a client retells it
        second = await talk.call(asked, tool_turn("id-1"))
        third = await talk.call([*asked, tool_turn("id-1"), tool_result("id-1")], "Yes")
        view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    finally:
        await recorder.stop()
        await store.close()
    assert [call.id for call in view.calls] == [first.call_id, second.call_id, third.call_id]
    assert [call.attribution_source for call in view.calls] == ["new", "lineage", "tool_call_id"]
    assert second.attribution.parent == Parent(first.call_id, 0)
    assert third.attribution.parent == Parent(second.call_id, 0)
    assert {turn.attribution.confidence for turn in (second, third)} == {Confidence.EXACT}
    assert view.calls[1].choices[0].message == tool_turn("id-1")


async def test_verdicts_are_kept_together_and_what_was_said_first_stays(postgresql: str, tmp_path: Path) -> None:
    settings = RecorderSettings(url=postgresql)
    store = await open_store(tmp_path, settings, migrate=True)
    recorder = Recorder(store, settings)
    await recorder.start()
    try:
        run = (await Talk(recorder).call([user("What?")], "That")).attribution.trajectory.id
        first = [
            NewVerdicts("b", run, "[1]", None),
            NewVerdicts("a", run, "[2]", "judge 1"),
            NewVerdicts("c", "", "", ""),
        ]
        await verdicts.keep(store, PROJECT, [*first, NewVerdicts("b", run, "[3]", None)])
        found = await verdicts.find(store, PROJECT, ["a", "b", "c"])
    finally:
        await recorder.stop()
        await store.close()
    assert found == {"a": KeptVerdicts("[2]", "judge 1"), "b": KeptVerdicts("[1]", None)}
