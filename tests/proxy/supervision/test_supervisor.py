"""Programs are started, watched, restarted, and end with us, whatever ends us."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from examples.running.programs import free_ports
from proxy.engine.command import health_check
from proxy.errors import StartError
from proxy.supervision.supervisor import Program, ProgramState, Supervisor, log_tail
from tests.proxy.running import NO_TLS
from tests.proxy.until import until

pytestmark = pytest.mark.slow  # faults, and processes that end: left out of `make check`

ROOT = Path(__file__).parents[3]
SERVER = Path(__file__).parents[1] / "tiny_server.py"


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def url() -> str:
    [port] = free_ports(1)
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def program(tmp_path: Path, url: str) -> Callable[..., Program]:
    def make(*options: str, **fields: Any) -> Program:
        argv = (sys.executable, str(SERVER), url.rpartition(":")[2], *options)
        defaults: dict[str, Any] = {
            "ready": health_check(url),
            "check_every_s": 0.05,
            "grace_s": 5.0,
            "backoff_s": (0.01,),
            "start_timeout_s": 30.0,
        }
        return Program(name="tiny", argv=argv, log=tmp_path / "logs" / "tiny.log", **{**defaults, **fields})

    return make


async def test_its_log_is_the_owners_alone_also_where_it_was_open(program: Callable[..., Program]) -> None:
    made = program()
    made.log.parent.mkdir()
    made.log.write_text("")
    made.log.chmod(0o644)
    async with running(made):
        assert stat.S_IMODE(made.log.stat().st_mode) == 0o600


@asynccontextmanager
async def running(program: Program) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(program)
    await supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.stop()


async def pid_at(url: str) -> int:
    async with httpx.AsyncClient(verify=NO_TLS) as client:
        return int((await client.get(url + "/health")).text)


async def tell(url: str, path: str) -> None:
    async with httpx.AsyncClient(verify=NO_TLS) as client:
        try:
            await client.get(url + path)
        except httpx.HTTPError:
            assert path == "/die"


async def test_a_program_starts_serves_and_ends(program: Callable[..., Program], url: str) -> None:
    async with running(program("--say", "hello")) as supervisor:
        assert supervisor.state is ProgramState.UP
        pid = await pid_at(url)
        assert supervisor.last_lines() == "hello"
    assert gone(pid)
    assert str(supervisor.state) == "stopped"


async def test_one_that_dies_is_started_again(program: Callable[..., Program], url: str) -> None:
    async with running(program()) as supervisor:
        first = await pid_at(url)
        await tell(url, "/die")
        await until(lambda: supervisor.restarts == 1 and supervisor.state is ProgramState.UP)
        assert await pid_at(url) != first
        await tell(url, "/die")
        await until(lambda: supervisor.restarts == 2 and supervisor.state is ProgramState.UP)


async def test_one_that_is_set_wrongly_is_not_started_again(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import sys, time; time.sleep(0.5); print('no such thing'); sys.exit(2)")
    made = Program(name="s", argv=argv, log=tmp_path / "s.log", settle_s=0.1, backoff_s=(0.01,))
    async with running(made) as supervisor:
        await until(lambda: supervisor.state is ProgramState.FAILED)
        assert supervisor.was_up
        assert supervisor.restarts == 0
        assert "not restarted" in supervisor.detail
        assert supervisor.last_lines() == "no such thing"


async def test_one_that_hangs_is_started_again(
    program: Callable[..., Program], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.engine.command.HEALTH_TIMEOUT_S", 0.2)
    async with running(program(unresponsive_s=0.5, grace_s=0.2)) as supervisor:
        first = await pid_at(url)
        await tell(url, "/hang")
        await until(lambda: supervisor.restarts == 1 and supervisor.state is ProgramState.UP)
        assert await pid_at(url) != first


async def test_one_that_dies_while_starting_shows_its_last_lines(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    code = "print('line one'); print('line two'); raise SystemExit('cannot go on')"
    broken = Program(name="broken", argv=(sys.executable, "-c", code), log=tmp_path / "broken.log", settle_s=30)
    supervisor = Supervisor(broken)
    with pytest.raises(StartError) as caught:
        await supervisor.start()
    text = str(caught.value)
    assert "broken ended while starting (exit status 1)" in text
    assert str(broken.log) in text
    assert text.endswith("line one\nline two\ncannot go on")
    assert supervisor.state is ProgramState.FAILED


async def test_one_that_is_killed_while_starting_is_started_again(tmp_path: Path) -> None:
    there = tmp_path / "there"
    code = "import os, pathlib, time; p = pathlib.Path(os.environ['THERE'])\n"
    code += "if p.exists(): time.sleep(600)\np.touch(); os.kill(os.getpid(), 9)"
    argv, env = (sys.executable, "-c", code), {"THERE": str(there)}
    fields: dict[str, Any] = {"settle_s": 3.0, "backoff_s": (0.01,), "env": env}
    async with running(Program(name="killed", argv=argv, log=tmp_path / "k.log", **fields)) as supervisor:
        assert (supervisor.state, supervisor.restarts) == (ProgramState.UP, 1)


async def test_one_that_is_killed_each_time_it_starts_is_given_up(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    supervisor = Supervisor(Program(name="k", argv=argv, log=tmp_path / "k.log", settle_s=30, backoff_s=(0.01,)))
    with pytest.raises(StartError, match=r"ended while starting \(signal 9\)"):
        await supervisor.start()
    assert supervisor.restarts == 3


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    supervisor = Supervisor(Program(name="ghost", argv=("/no/such/program",), log=tmp_path / "ghost.log", settle_s=30))
    with pytest.raises(StartError, match="/no/such/program"):
        await supervisor.start()


async def test_one_that_is_never_ready_is_ended(program: Callable[..., Program], url: str) -> None:
    supervisor = Supervisor(program("--never", start_timeout_s=1.0))
    with pytest.raises(StartError, match="was not ready after 1 s"):
        await supervisor.start()
    with pytest.raises(httpx.ConnectError):
        await pid_at(url)


async def test_one_without_a_health_check_is_up_when_it_has_lived_a_while(tmp_path: Path) -> None:
    sleeper = (sys.executable, "-c", "import time; time.sleep(600)")
    async with running(Program(name="s", argv=sleeper, log=tmp_path / "s.log", settle_s=0.2)) as supervisor:
        assert supervisor.state is ProgramState.UP


async def test_one_that_ignores_sigterm_is_killed(program: Callable[..., Program], url: str) -> None:
    async with running(program("--stubborn", grace_s=0.2)):
        pid = await pid_at(url)
    assert gone(pid)


async def test_what_the_program_started_ends_too(program: Callable[..., Program], tmp_path: Path, url: str) -> None:
    note = tmp_path / "pid"
    async with running(program("--spawn", str(note))):
        await pid_at(url)
        grandchild = int(note.read_text())
        assert not gone(grandchild)
    await until(lambda: gone(grandchild))


async def test_what_the_program_started_ends_when_it_dies(
    program: Callable[..., Program], tmp_path: Path, url: str
) -> None:
    note = tmp_path / "pid"
    async with running(program("--spawn", str(note))) as supervisor:
        grandchild = int(note.read_text())
        await tell(url, "/die")
        await until(lambda: supervisor.restarts == 1 and supervisor.state is ProgramState.UP)
        assert gone(grandchild)


async def test_everything_ends_when_the_supervisor_is_killed(tmp_path: Path, url: str) -> None:
    note = tmp_path / "pid"
    code = f"""
import asyncio, sys
from pathlib import Path
from proxy.engine.command import health_check
from proxy.supervision.supervisor import Program, Supervisor

async def main():
    argv = (sys.executable, {str(SERVER)!r}, {url.rpartition(":")[2]!r}, "--spawn", {str(note)!r})
    log = Path({str(tmp_path / "t.log")!r})
    await Supervisor(Program(name="tiny", argv=argv, log=log, ready=health_check({url!r}))).start()
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "up\n"
        server, grandchild = await pid_at(url), int(note.read_text())
        supervisor.kill()
    await until(lambda: gone(server) and gone(grandchild))


async def test_the_program_and_what_it_started_end_when_their_watcher_is_killed(
    program: Callable[..., Program], url: str, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    async with running(program("--spawn", str(note))) as supervisor:
        pid, grandchild = await pid_at(url), int(note.read_text())
        watcher = supervisor.pid
        assert watcher is not None
        os.kill(watcher, signal.SIGKILL)
        await until(lambda: gone(pid) and gone(grandchild))
        await until(lambda: supervisor.restarts == 1 and supervisor.state is ProgramState.UP)


async def test_a_supervisor_that_is_stopped_while_starting_leaves_nothing(
    program: Callable[..., Program], url: str
) -> None:
    supervisor = Supervisor(program("--never"))
    starting = asyncio.create_task(supervisor.start())

    async def answers() -> int:
        try:
            return await pid_at(url)
        except httpx.HTTPError:
            return 0

    pid = await until(answers)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert gone(pid)


def test_tail_shows_the_last_lines_since_a_start(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("old\n")
    start = log.stat().st_size
    log.write_text("old\nnew 1\nnew 2\nnew 3\n")
    assert log_tail(log, start, 2) == "new 2\nnew 3"
    assert log_tail(log, start, 9) == "new 1\nnew 2\nnew 3"
    assert log_tail(tmp_path / "none", 0, 2) == ""


# Notes its phase as the next of PHASES says, and is killed by signal 9: `training:2` after two finished steps.
KILLED = """
import json, os, pathlib, time
left = pathlib.Path(os.environ["PHASES"])
phase, *others = left.read_text().split()
left.write_text(" ".join(others))
name, _, steps = phase.partition(":")
if name == "lives":
    time.sleep(600)
if name == "exits":
    raise SystemExit(1)
if name != "silent":
    pathlib.Path(os.environ["FILE"]).write_text(json.dumps({"name": name, "steps": int(steps or 0)}))
time.sleep(0.3)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Callable[..., Program]:
    def make(phases: str, **fields: Any) -> Program:
        (tmp_path / "phases").write_text(phases)
        env = {"PHASES": str(tmp_path / "phases"), "FILE": str(tmp_path / "phase.json")}
        given: dict[str, Any] = {
            "settle_s": 0.05, "backoff_s": (0.01,), "env": env, "phase_file": tmp_path / "phase.json",
            "if_killed": "Lower trainer.token_budget.", **fields,
        }  # fmt: skip
        return Program(name="learn", argv=(sys.executable, "-c", KILLED), log=tmp_path / "learn.log", **given)

    return make


@pytest.mark.parametrize(
    ("phases", "restarts"),
    [
        ("training training training lives", 2),
        ("silent silent silent lives", 2),  # before it could note anything
        ("waiting training training waiting waiting waiting lives", 5),
        ("training exits training training lives", 3),
        ("training training training:1 training training lives", 4),  # a step was finished before the third kill
    ],
)
async def test_one_that_is_killed_three_times_in_the_same_phase_is_not_started_again(
    killed: Callable[..., Program], phases: str, restarts: int
) -> None:
    async with running(killed(phases)) as supervisor:
        await until(lambda: supervisor.state is ProgramState.FAILED)
        assert supervisor.restarts == restarts
        assert "signal 9" in supervisor.detail
        assert "killed 3 times in the phase" in supervisor.detail
        assert supervisor.detail.endswith("Lower trainer.token_budget.")
        assert not supervisor.misconfigured


@pytest.mark.parametrize("phases", ["training waiting training waiting lives", "training training:4 training lives"])
async def test_kills_in_other_phases_and_after_a_finished_step_do_not_add_up(
    killed: Callable[..., Program], phases: str
) -> None:
    async with running(killed(phases)) as supervisor:
        await until(lambda: supervisor.restarts == phases.count(" ") and supervisor.state is ProgramState.UP)


async def test_one_that_notes_no_phase_is_started_again_however_often_it_is_killed(
    killed: Callable[..., Program],
) -> None:
    async with running(killed("training training training training lives", phase_file=None)) as supervisor:
        await until(lambda: supervisor.restarts == 4 and supervisor.state is ProgramState.UP)


async def test_one_that_is_killed_three_times_before_it_is_up_says_what_to_do(killed: Callable[..., Program]) -> None:
    supervisor = Supervisor(killed("silent silent silent lives", settle_s=30.0))
    with pytest.raises(StartError, match=r"3 times in the phase 'starting'.*trainer\.token_budget"):
        await supervisor.start()
    assert supervisor.restarts == 2


def runs(supervisor: Supervisor) -> bool:
    return supervisor.pid is not None


async def test_a_program_starts_and_restarts_only_once_it_may(program: Callable[..., Program]) -> None:
    allowed, asked = asyncio.Event(), 0

    async def may_start() -> bool:
        nonlocal asked
        asked += 1
        return allowed.is_set()

    supervisor = Supervisor(program(may_start=may_start))
    starting = asyncio.ensure_future(supervisor.start())
    await until(lambda: asked > 2)
    assert not runs(supervisor)
    allowed.set()
    await starting
    allowed.clear()
    before, asked = supervisor.pid, 0
    assert before is not None
    os.kill(before, signal.SIGKILL)
    await until(lambda: asked > 2)
    assert not runs(supervisor)
    allowed.set()
    await until(lambda: supervisor.state is ProgramState.UP and supervisor.pid not in (None, before))
    await supervisor.stop()


async def test_a_program_is_killed_by_a_process_of_its_own(program: Callable[..., Program]) -> None:
    async with running(program()) as supervisor:
        before = supervisor.pid
        assert before is not None
        assert not supervisor.kill_process(os.getpid())
        [child, *_] = psutil.Process(before).children()
        assert supervisor.kill_process(child.pid)
        await until(lambda: gone(child.pid))
        await until(lambda: supervisor.state is ProgramState.UP and supervisor.pid not in (None, before))
