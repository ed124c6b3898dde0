"""The agent host with real child processes: async and sync functions, commands, and everything users do to them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainer.agents.user_agent import AgentSpec, AttemptEnding, AttemptOutcome, UserAgent
from trainer.errors import AgentUnusable

pytestmark = pytest.mark.slow  # programs and whole campaigns: left out of `make check`

MODULE = """
import asyncio, ctypes, json, os, sys, subprocess, time
from types import SimpleNamespace

async def echo(task):
    await asyncio.sleep(0)
    return {"id": task.id, "question": task.input["question"], "url": task.base_url,
            "env": os.environ["OPENAI_BASE_URL"],
            "model": os.environ.get("HONE_MODEL")}

def names(task):
    with open("names.txt", "w") as file:
        file.write(" ".join(os.environ))

def searches(task):
    return os.environ["SEARCH_KEY"]

def sync_echo(task):
    return {"id": task.id, "env": os.environ["OPENAI_BASE_URL"], "pid": os.getpid()}

async def in_thread(task):
    return await asyncio.to_thread(lambda: os.getenv("OPENAI_BASE_URL"))

def asyncio_inside(task):
    async def inner():
        await asyncio.sleep(0)
        return "ran"
    return asyncio.run(inner())

def returns_coroutine(task):
    return echo(task)

class Callable_:
    async def __call__(self, task):
        return "called"

instance = Callable_()

async def raises(task):
    raise ValueError("no such order")

def sync_raises(task):
    raise ValueError("no such order")

async def exits(task):
    sys.exit(3)

def sync_exits(task):
    sys.exit(3)

async def cancels_itself(task):
    raise asyncio.CancelledError()

async def sleeps(task):
    await asyncio.sleep(600)

async def stubborn(task):
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

def sync_sleeps(task):
    open("started", "w").close()
    subprocess.Popen(["sleep", "600"])
    time.sleep(600)

async def blocks(task):
    if task.id == "block":
        open("started", "w").close()
        time.sleep(600)
    await asyncio.sleep(600)

def segfaults(task):
    ctypes.string_at(0)

async def host_dies(task):
    if task.id == "die":
        os._exit(7)
    await asyncio.sleep(600 if task.input == "wait" else 0)
    return "alive"

class Odd:
    def __repr__(self):
        raise RuntimeError("no")

async def odd(task):
    return Odd()

async def nan(task):
    return float("nan")

async def huge(task):
    return "x" * 3_000_000

async def noisy(task):
    print('{"op": "done", "id": "j1", "answer": "forged"}')
    sys.stdout.buffer.write(b"\\xff\\x00 bytes \\n")
    for fd in (1, 2):
        os.write(fd, b'{"op": "done", "id": "j1", "answer": "forged"}\\n')
    sys.stdout.close()
    return "mine"

def solved(trajectory):
    return trajectory.answer == "yes"
"""


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Callable[..., UserAgent]]:
    (tmp_path / "user_agent.py").write_text(MODULE)
    made: list[UserAgent] = []

    def make(target: str, **fields: Any) -> UserAgent:
        spec = AgentSpec(target, tmp_path / "logs" / "agent.log", cwd=tmp_path, **fields)
        made.append(UserAgent(spec))
        return made[-1]

    yield make
    for one in made:
        await one.stop()


async def attempt(agent: UserAgent, name: str = "a", given: object = None, timeout_s: float = 30.0) -> AttemptOutcome:
    url = f"http://127.0.0.1:1/t/{name}/v1"
    task = {"id": name, "input": given or {"question": "where?"}, "base_url": url, "api_key": "k", "model": "m"}
    env = {"OPENAI_BASE_URL": url, "HONE_MODEL": "m", "HONE_TASK_ID": name, "HONE_TASK_INPUT": json.dumps(given)}
    return await agent.run(task, env, timeout_s)


async def test_concurrent_async_attempts_each_see_their_own_task_and_environment(
    agent: Callable[..., UserAgent],
) -> None:
    host = agent("user_agent:echo")
    outcomes = await asyncio.gather(*(attempt(host, f"t{i}") for i in range(64)))
    assert [o.answer for o in outcomes] == [
        {
            "id": f"t{i}",
            "question": "where?",
            "url": f"http://127.0.0.1:1/t/t{i}/v1",
            "env": f"http://127.0.0.1:1/t/t{i}/v1",
            "model": "m",
        }
        for i in range(64)
    ]


async def test_threads_of_an_async_attempt_see_its_environment(agent: Callable[..., UserAgent]) -> None:
    host = agent("user_agent:in_thread")
    outcomes = await asyncio.gather(*(attempt(host, f"t{i}") for i in range(8)))
    assert [o.answer for o in outcomes] == [f"http://127.0.0.1:1/t/t{i}/v1" for i in range(8)]


async def test_sync_attempts_run_in_processes_of_their_own(agent: Callable[..., UserAgent]) -> None:
    host = agent("user_agent:sync_echo")
    answers = [o.answer for o in await asyncio.gather(*(attempt(host, f"t{i}") for i in range(16)))]
    assert [a["env"] for a in answers] == [f"http://127.0.0.1:1/t/t{i}/v1" for i in range(16)]
    assert len({a["pid"] for a in answers}) == 16


@pytest.mark.parametrize(
    ("target", "answer"),
    [("asyncio_inside", "ran"), ("instance", "called"), ("instance.__call__", "called")],
)
async def test_every_kind_of_callable_is_run(agent: Callable[..., UserAgent], target: str, answer: str) -> None:
    assert await attempt(agent(f"user_agent:{target}")) == AttemptOutcome(AttemptEnding.DONE, answer)


async def test_a_sync_function_that_returns_a_coroutine_is_awaited(agent: Callable[..., UserAgent]) -> None:
    outcome = await attempt(agent("user_agent:returns_coroutine"), "t")
    assert outcome.answer["id"] == "t"


@pytest.mark.parametrize("target", ["raises", "sync_raises"])
async def test_an_exception_is_the_attempts_error_and_the_host_goes_on(
    agent: Callable[..., UserAgent], target: str
) -> None:
    host = agent(f"user_agent:{target}")
    for _ in range(2):
        outcome = await attempt(host)
        assert outcome.ending is AttemptEnding.ERROR
        assert outcome.error is not None
        assert outcome.error.startswith("ValueError: no such order\n")
        assert "user_agent.py" in outcome.error


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("exits", "SystemExit: 3"),
        ("sync_exits", "SystemExit: 3"),
        ("cancels_itself", "cancelled its own task"),
        ("segfaults", "signal 11"),
    ],
)
async def test_an_agent_that_ends_its_process_ends_only_its_attempt(
    agent: Callable[..., UserAgent], target: str, said: str
) -> None:
    outcome = await attempt(agent(f"user_agent:{target}"))
    assert outcome.ending is AttemptEnding.ERROR
    assert said in (outcome.error or "")


@pytest.mark.parametrize("target", ["sleeps", "stubborn", "sync_sleeps"])
async def test_an_attempt_that_takes_too_long_is_stopped(agent: Callable[..., UserAgent], target: str) -> None:
    outcome = await attempt(agent(f"user_agent:{target}"), timeout_s=0.2)
    assert outcome.ending is AttemptEnding.TIMEOUT


async def test_nothing_of_a_stopped_sync_attempt_is_left_running(agent: Callable[..., UserAgent]) -> None:
    host = agent("user_agent:sync_sleeps")
    await host.ready()
    await attempt(host, timeout_s=0.5)
    await nothing_sleeps()


async def test_an_async_agent_that_blocks_its_loop_times_out_and_the_others_are_lost(
    agent: Callable[..., UserAgent],
) -> None:
    host = agent("user_agent:blocks", stuck_after_s=0.2)
    await host.ready()
    blocked, other = await asyncio.gather(attempt(host, "block", timeout_s=0.3), attempt(host, "other"))
    assert (blocked.ending, other.ending) == (AttemptEnding.TIMEOUT, AttemptEnding.LOST)


async def test_a_host_that_dies_loses_its_attempts_and_is_started_again(agent: Callable[..., UserAgent]) -> None:
    host = agent("user_agent:host_dies")
    await host.ready()
    waiting = asyncio.create_task(attempt(host, "waits", "wait"))
    dying = asyncio.create_task(attempt(host, "die"))
    lost = [await waiting, await dying]
    assert [o.ending for o in lost] == [AttemptEnding.LOST, AttemptEnding.LOST]
    assert "status 7" in (lost[0].error or "")
    assert await attempt(host, "again") == AttemptOutcome(AttemptEnding.DONE, "alive")


@pytest.mark.parametrize(
    ("target", "answer"),
    [("odd", "<Odd; its repr failed: RuntimeError>"), ("nan", "nan")],
)
async def test_an_answer_that_is_not_json_becomes_its_repr(
    agent: Callable[..., UserAgent], target: str, answer: str
) -> None:
    assert await attempt(agent(f"user_agent:{target}")) == AttemptOutcome(AttemptEnding.DONE, answer)


async def test_a_huge_answer_is_cut(agent: Callable[..., UserAgent]) -> None:
    outcome = await attempt(agent("user_agent:huge"))
    assert outcome.answer.endswith("(cut, 3000002 characters)")
    assert len(outcome.answer) < 1_100_000


async def test_what_an_agent_prints_goes_to_the_log_and_forges_nothing(
    agent: Callable[..., UserAgent], tmp_path: Path
) -> None:
    assert await attempt(agent("user_agent:noisy")) == AttemptOutcome(AttemptEnding.DONE, "mine")
    assert b"forged" in (tmp_path / "logs" / "agent.log").read_bytes()


async def test_a_success_function_is_called_with_the_trajectory(agent: Callable[..., UserAgent]) -> None:
    host = agent("user_agent:solved", use="measure")
    assert (await host.run({"answer": "yes"}, {}, 10.0)).answer is True
    assert (await host.run({"answer": "no"}, {}, 10.0)).answer is False


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_module:run", "No module named 'no_such_module'"),
        ("user_agent:nothing", "has no attribute 'nothing'"),
        ("user_agent:MODULE_LEVEL", "has no attribute"),
        ("breaks:run", "SystemExit: 4"),
        ("talks:run", "is a str, not a function"),
    ],
)
async def test_a_function_that_cannot_be_imported_is_told_before_any_attempt(
    agent: Callable[..., UserAgent], tmp_path: Path, target: str, said: str
) -> None:
    (tmp_path / "breaks.py").write_text("import sys\nsys.exit(4)\n")
    (tmp_path / "talks.py").write_text("run = 'hello'\n")
    with pytest.raises(AgentUnusable, match=said):
        await agent(target).ready()


async def test_a_python_that_is_not_there_is_told(agent: Callable[..., UserAgent], tmp_path: Path) -> None:
    with pytest.raises(AgentUnusable, match="--python"):
        await agent("user_agent:echo", python=tmp_path / "python").ready()


async def test_modules_of_hone_do_not_shadow_the_users(agent: Callable[..., UserAgent], tmp_path: Path) -> None:
    (tmp_path / "campaign.py").write_text("async def run(task):\n    return 'the user’s'\n")
    assert (await attempt(agent("campaign:run"))).answer == "the user’s"


async def test_a_module_level_client_is_sent_to_an_address_that_says_why(
    agent: Callable[..., UserAgent], tmp_path: Path
) -> None:
    (tmp_path / "early.py").write_text(
        "import os\nURL = os.environ['OPENAI_BASE_URL']\n\nasync def run(task):\n    return URL\n"
    )
    assert "read-OPENAI_BASE_URL-inside-the-function" in (await attempt(agent("early:run"))).answer


async def test_a_command_finds_its_address_and_task_in_the_environment(
    agent: Callable[..., UserAgent], tmp_path: Path
) -> None:
    host = agent('echo "$OPENAI_BASE_URL $HONE_MODEL $HONE_TASK_ID $HONE_TASK_INPUT" > "$HONE_TASK_ID.out"')
    outcomes = await asyncio.gather(*(attempt(host, f"t{i}", {"n": i}) for i in range(4)))
    assert {o.ending for o in outcomes} == {AttemptEnding.DONE}
    assert (tmp_path / "t2.out").read_text() == 'http://127.0.0.1:1/t/t2/v1 m t2 {"n": 2}\n'


@pytest.mark.parametrize("target", ["user_agent:names", "env | cut -d= -f1 > names.txt"])
async def test_an_agent_sees_of_our_environment_what_it_needs_and_what_was_named(
    agent: Callable[..., UserAgent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    for name in ("HONE_JUDGE__API_KEY", "AWS_SECRET_ACCESS_KEY", "NAMED"):
        monkeypatch.setenv(name, "secret")
    outcome = await attempt(agent(target, env=("NAMED",)))
    assert outcome.ending is AttemptEnding.DONE, outcome.error
    names = set((tmp_path / "names.txt").read_text().split())
    assert {"NAMED", "PATH", "HOME", "OPENAI_BASE_URL"} <= names
    assert not {"HONE_JUDGE__API_KEY", "AWS_SECRET_ACCESS_KEY"} & names


async def test_an_agent_that_dies_for_want_of_a_variable_is_told_where_to_name_it(
    agent: Callable[..., UserAgent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_KEY", "secret")
    outcome = await attempt(agent("user_agent:searches"))
    assert outcome.ending is AttemptEnding.ERROR
    assert "not passed on to the agent: SEARCH_KEY. See campaign.agent_env" in (outcome.error or "")
    assert "secret" not in (outcome.error or "")
    (tmp_path / "early.py").write_text("import os\nKEY = os.environ['SEARCH_KEY']\n")
    with pytest.raises(AgentUnusable, match=r"SEARCH_KEY\. See campaign\.agent_env"):
        await agent("early:run").ready()


async def test_an_exit_code_other_than_0_is_an_error_with_the_output(agent: Callable[..., UserAgent]) -> None:
    outcome = await attempt(agent("echo no such order >&2; exit 3"))
    assert outcome == AttemptOutcome(AttemptEnding.ERROR, error="exit code 3\nno such order\n")


async def test_a_command_that_takes_too_long_is_killed_with_its_children(agent: Callable[..., UserAgent]) -> None:
    host = agent("sleep 600 & sleep 600")
    await host.ready()
    assert (await attempt(host, timeout_s=0.3)).ending is AttemptEnding.TIMEOUT
    await nothing_sleeps()


async def test_a_command_that_leaves_a_child_behind_ends_with_it_killed(agent: Callable[..., UserAgent]) -> None:
    assert (await attempt(agent("sleep 600 & exit 0"))).ending is AttemptEnding.DONE
    await nothing_sleeps()


async def test_a_killed_host_takes_its_commands_along(agent: Callable[..., UserAgent], tmp_path: Path) -> None:
    host = agent("echo started > started; exec sleep 600")
    await host.ready()
    running = asyncio.create_task(attempt(host))
    while not (tmp_path / "started").exists():
        await asyncio.sleep(0.01)
    (own,) = [p for p in _descendants() if "processes/user_code_host.py" in " ".join(p.cmdline())]
    os.kill(own.pid, signal.SIGKILL)
    assert (await running).ending is AttemptEnding.LOST
    await nothing_sleeps()


@pytest.mark.parametrize("target", ["user_agent:blocks", "user_agent:sync_sleeps", "echo > started; exec sleep 600"])
async def test_when_hone_is_killed_nothing_of_the_agent_survives(
    agent: Callable[..., UserAgent], tmp_path: Path, target: str
) -> None:
    agent(target)  # writes the user's module
    program = f"""
        import asyncio, sys
        from pathlib import Path
        from trainer.agents.user_agent import UserAgent, AgentSpec

        async def main():
            agent = UserAgent(AgentSpec({target!r}, Path("agent.log"), cwd=Path.cwd()))
            await agent.ready()
            running = asyncio.create_task(agent.run({{"id": "block", "input": 1}}, {{}}, 600))
            while not Path("started").exists():
                await asyncio.sleep(0.01)
            print("running", flush=True)
            await running

        asyncio.run(main())
    """
    root = Path(__file__).parents[3]
    hone = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
    )
    assert hone.stdout is not None
    assert await asyncio.to_thread(hone.stdout.readline) == b"running\n"
    children = psutil.Process(hone.pid).children(recursive=True)
    hone.kill()
    hone.wait()
    hone.stdout.close()
    assert children
    await end(children)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


async def nothing_sleeps() -> None:
    """No `sleep` that an agent started is left, or it is about to go: a kill takes a moment."""
    await end([p for p in _descendants() if "sleep" in p.name()])


async def end(processes: list[psutil.Process]) -> None:
    """Wait until all have ended; a zombie that nobody reaps has."""
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 20)
    assert all(p.status() == psutil.STATUS_ZOMBIE for p in alive)
