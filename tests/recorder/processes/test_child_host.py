"""The parent's half of a child process: its start, its end, time limits, what is killed, and who may answer."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from recorder.processes.child_host import (
    KEPT_BYTES,
    KEPT_LINE_CHARS,
    KEPT_LINES,
    ChildDied,
    ChildError,
    ChildFailed,
    ChildHost,
    ChildSpec,
    ChildTimeout,
    ForeignReply,
    Output,
)

pytestmark = pytest.mark.slow  # processes

ROOT = Path(__file__).parents[3]
CHILD = """
import json, os, subprocess, sys, threading, time
from recorder.processes.user_code_host import connect, encode_line, serve_in_turn

connection = connect("A child for tests.")

def begin(start):
    if "sleep" in start:
        time.sleep(600)
    if "fail" in start:
        print("the last words", flush=True)
        return {"failed": start["fail"]}
    if "stray" in start:
        connection.socket.sendall(start["stray"].encode() + b"\\n")
        time.sleep(600)
    return {"ready": {"pid": os.getpid()}}

def answer(request):
    if "write" in request:
        sys.stdout.write(request["write"])
        sys.stdout.flush()
    if "stray" in request:
        connection.socket.sendall(request["stray"].encode() + b"\\n")
    if "start" in request:
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open("started.new", "w") as file:
            file.write(str(started.pid))
        os.rename("started.new", "started")
    if "sleep" in request:
        time.sleep(request["sleep"])
    if "exit" in request:
        os._exit(request["exit"])
    return {"pid": os.getpid(), "env": sorted(os.environ), "cwd": os.getcwd()}

def at_once(messages):
    "Answers requests as they come: replies overtake one another."
    for message in messages:
        def reply(message=message):
            result = begin(message["start"]) if "start" in message else {"reply": answer(message["request"])}
            connection.send({"id": message["id"], **result})
        threading.Thread(target=reply, daemon=True).start()

if "--at-once" in os.environ.get("MODE", ""):
    at_once(connection.messages())
else:
    serve_in_turn(connection.messages(), connection.send, begin, answer)
    with open("ended", "w") as file:
        file.write("by itself")
"""

Make = Callable[..., ChildHost]


@pytest.fixture
async def child(tmp_path: Path) -> AsyncIterator[Make]:
    (tmp_path / "child.py").write_text(textwrap.dedent(CHILD))
    made: list[ChildHost] = []

    def make(**fields: Any) -> ChildHost:
        own_env = {"PYTHONPATH": str(ROOT)} | fields.pop("own_env", {})
        spec = ChildSpec([sys.executable, tmp_path / "child.py"], cwd=tmp_path, own_env=own_env, **fields)
        made.append(ChildHost(spec))
        return made[-1]

    yield make
    for one in made:
        await one.kill()


def at_once(child: Make, **fields: Any) -> ChildHost:
    return child(in_turn=False, own_env={"MODE": "--at-once"}, **fields)


async def started(folder: Path) -> psutil.Process:
    """What the child started, once it has."""
    while not (folder / "started").exists():
        await asyncio.sleep(0.01)
    return psutil.Process(int((folder / "started").read_text()))


async def ended(process: psutil.Process) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, [process], 20)
    assert all(one.status() == psutil.STATUS_ZOMBIE for one in alive)


# --- start


async def test_a_child_says_what_it_is_ready_with_and_answers_in_its_folder(child: Make, tmp_path: Path) -> None:
    host = child()
    was_running = host.is_running
    ready = await host.ready()
    reply = await host.request({})
    assert (was_running, host.is_running) == (False, True)
    assert reply["pid"] == ready["pid"] != os.getpid()
    assert reply["cwd"] == str(tmp_path)


async def test_a_child_sees_of_our_environment_what_it_needs_and_what_was_named(
    child: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HONE_JUDGE__API_KEY", "NAMED"):
        monkeypatch.setenv(name, "secret")
    names = set((await child(named_env=["NAMED"], own_env={"OWN": "1"}).request({}))["env"])
    assert {"PATH", "NAMED", "OWN"} <= names
    assert "HONE_JUDGE__API_KEY" not in names


async def test_a_child_that_cannot_begin_says_why_with_its_last_words(child: Make) -> None:
    host = child(start={"fail": "no key sk-1"}, clean=lambda text: text.replace("sk-1", "***"))
    with pytest.raises(ChildFailed, match=r"^no key \*\*\*$") as caught:
        await host.ready()
    assert caught.value.starting
    assert caught.value.end.last_lines == ("the last words",)
    assert not host.is_running


async def test_a_program_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    host = ChildHost(ChildSpec([tmp_path / "nothing"]))
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            await host.request({})
    assert str(await host.kill()) == "not running"


async def test_a_child_that_does_not_begin_in_time_is_killed(child: Make) -> None:
    with pytest.raises(ChildTimeout, match=r"0\.3 s") as caught:
        await child(start={"sleep": True}, start_limit_s=0.3).request({})
    assert caught.value.starting
    assert caught.value.end.status == -9


async def test_a_program_that_ends_before_it_is_ready_is_told_with_what_it_wrote(tmp_path: Path) -> None:
    host = ChildHost(ChildSpec([sys.executable, "-c", "raise SystemExit('no module for that')"]))
    with pytest.raises(ChildDied, match=r"status 1; no module for that") as caught:
        await host.ready()
    assert caught.value.starting


# --- requests


async def test_replies_find_their_requests_where_a_child_works_at_several(child: Make) -> None:
    host = at_once(child)
    slow = asyncio.create_task(host.request({"sleep": 1.0}))
    await asyncio.wait_for(host.request({}), 20)
    assert not slow.done()
    assert (await slow)["pid"] == (await host.ready())["pid"]


async def test_requests_to_a_child_that_answers_in_turn_wait_for_theirs(child: Make) -> None:
    host = child()
    await host.ready()
    replies = await asyncio.gather(*(host.request({"sleep": 0.05}, 20.0) for _ in range(4)))
    assert len({reply["pid"] for reply in replies}) == 1


async def test_a_time_limit_kills_the_child_and_what_it_started(child: Make, tmp_path: Path) -> None:
    host = child()
    await host.ready()
    asking = asyncio.create_task(host.request({"start": True, "sleep": 600}, 3.0))
    grandchild = await started(tmp_path)
    with pytest.raises(ChildTimeout) as caught:
        await asking
    assert not caught.value.starting
    await ended(grandchild)


async def test_a_child_that_dies_in_the_middle_is_told_and_the_next_request_has_a_new_one(child: Make) -> None:
    host = child()
    before = (await host.ready())["pid"]
    with pytest.raises(ChildDied, match="status 7; goodbye") as caught:
        await host.request({"write": "goodbye\n", "exit": 7})
    assert caught.value.end.status == 7
    assert not caught.value.starting
    assert (await host.request({}))["pid"] != before


async def test_a_child_that_dies_takes_all_its_requests_and_what_it_started_along(child: Make, tmp_path: Path) -> None:
    host = at_once(child)
    waiting = asyncio.create_task(host.request({"start": True, "sleep": 600}))
    grandchild = await started(tmp_path)
    for lost in await asyncio.gather(waiting, host.request({"exit": 3}), return_exceptions=True):
        assert isinstance(lost, ChildDied)
        assert lost.end.status == 3
    await ended(grandchild)


async def test_a_request_that_is_cut_off_ends_a_child_that_answers_in_turn(child: Make) -> None:
    host = child()
    before = (await host.ready())["pid"]
    asking = asyncio.create_task(host.request({"sleep": 600}))
    await asyncio.sleep(0.1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not psutil.pid_exists(before)
    assert (await host.request({}))["pid"] != before


async def test_a_request_that_is_cut_off_leaves_the_others_alone_where_a_child_works_at_several(child: Make) -> None:
    host = at_once(child)
    before = (await host.ready())["pid"]
    asking = asyncio.create_task(host.request({"sleep": 0.3}))
    await asyncio.sleep(0.1)
    asking.cancel()
    assert (await host.request({"sleep": 0.6}))["pid"] == before  # the late reply comes in the meantime


# --- who may answer


STRAYS = [
    '{"id": "1", "reply": {"forged": true}}',
    '{"id": ["1"], "ready": {"forged": true}}',
    '{"reply": {"forged": true}}',
    "no json",
    "[" * 100_000,
    '"\\xff"',
]


@pytest.mark.parametrize("line", STRAYS, ids=range(len(STRAYS)))
async def test_a_foreign_reply_is_ignored_where_a_child_works_at_several(child: Make, line: str) -> None:
    reply = await at_once(child).request({"stray": line})
    assert "forged" not in reply


@pytest.mark.parametrize("line", STRAYS, ids=range(len(STRAYS)))
async def test_a_foreign_reply_ends_a_child_that_answers_in_turn(child: Make, line: str) -> None:
    host = child()
    with pytest.raises(ForeignReply) as caught:
        await host.request({"stray": line})
    assert str(caught.value) == ascii(f"{line}\n".encode()[:100])[1:]
    assert "pid" in await host.request({})


async def test_a_foreign_reply_while_it_starts_is_no_start(child: Make) -> None:
    with pytest.raises(ForeignReply) as caught:
        await child(start={"stray": '{"id": 1, "ready": {}}'}).ready()
    assert caught.value.starting


# --- output


async def test_a_flood_of_output_is_bounded_and_holds_nothing(child: Make) -> None:
    host = child()
    lines = "".join(f"{n} {'x' * 1000}\n" for n in range(20_000))
    await host.request({"write": lines}, 60.0)
    end = await host.kill()
    assert [line.split()[0] for line in end.last_lines] == [str(n) for n in range(20_000 - KEPT_LINES, 20_000)]
    assert all(len(line) == KEPT_LINE_CHARS for line in end.last_lines)


async def test_a_line_that_lost_its_beginning_is_not_shown(child: Make) -> None:
    host = child()
    await host.request({"write": "x" * (KEPT_BYTES * 3) + "\nlast\n"}, 60.0)
    assert (await host.kill()).last_lines == ("(a very long line)", "last")


async def test_a_log_is_gone_on_with_and_is_the_owners_alone(child: Make, tmp_path: Path) -> None:
    host = child(output=tmp_path / "logs" / "child.log")
    await host.request({"write": "one\n"})
    await host.kill()
    await host.request({"write": "two\n"})
    assert (await host.kill()).last_lines == ()
    log = tmp_path / "logs" / "child.log"
    assert log.read_text() == "one\ntwo\n"
    assert log.stat().st_mode & 0o777 == 0o600


async def test_what_goes_nowhere_goes_nowhere(child: Make, capfd: pytest.CaptureFixture[str]) -> None:
    await child(output=Output.NOWHERE).request({"write": "nowhere\n"})
    await child(output=Output.OURS).request({"write": "to our standard error\n"})
    assert capfd.readouterr() == ("", "to our standard error\n")


# --- end


async def test_an_idle_child_ends_and_the_next_request_has_a_new_one(child: Make) -> None:
    host = child(idle_s=0.0)
    before = (await host.request({}))["pid"]
    async with asyncio.timeout(20):
        while host.is_running or psutil.pid_exists(before):
            await asyncio.sleep(0.01)
    assert (await host.request({}))["pid"] != before


async def test_a_child_that_is_busy_is_not_idle(child: Make) -> None:
    host = child(idle_s=0.05)
    first, second = await asyncio.gather(host.request({"sleep": 0.3}), host.request({"sleep": 0.3}))
    assert first["pid"] == second["pid"]


async def test_a_child_that_is_stopped_ends_by_itself(child: Make, tmp_path: Path) -> None:
    host = child()
    await host.request({})
    assert (await host.stop()).status == 0
    assert (tmp_path / "ended").read_text() == "by itself"
    assert str(await host.stop()) == "not running"


async def test_a_child_that_does_not_end_by_itself_is_killed(child: Make) -> None:
    host = child()
    await host.ready()
    asking = asyncio.create_task(host.request({"sleep": 600}))
    await asyncio.sleep(0.1)
    assert (await host.stop(0.1)).status == -9
    with pytest.raises(ChildError):
        await asking


async def test_who_waits_for_a_stop_no_longer_has_the_child_killed(child: Make) -> None:
    before = psutil.Process().children()
    host = child(start={"sleep": True})
    await host.launch()
    stopping = asyncio.create_task(host.stop())
    await asyncio.sleep(0.1)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not host.is_running
    assert psutil.Process().children() == before
