"""`hone scenarios generate`: a real MCP server, a scripted model over HTTP, and the program as people start it.

The model that writes scenarios, over HTTP: it keeps the judge's pace, a pause that it asks for, and its key.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from anyio.from_thread import BlockingPortal, start_blocking_portal

from judge.settings import JudgeSettings
from recorder.llm import rate_limiter
from recorder.llm.rate_limiter import RequestSlot
from tests.judge.judge_server import Json, JudgeServer, completion, fails, says, serve
from tests.proxy.hone_command import hone
from tests.proxy.mcp_everything import Everything, served
from trainer.errors import GeneratorFailed
from trainer.scenario_generation.program import WriterModel
from trainer.tasks.scenarios import read_scenarios

pytestmark = pytest.mark.slow  # LiteLLM and the program itself take seconds to start

ROOT = Path(__file__).parents[3]
KINDS = {"One call of": 1, "at least two calls": 2, "goes wrong": 0, "Nothing is to be done": 0}
SUBJECTS = ["refunds", "harbours", "violins", "glaciers", "lanterns", "orchards", "turbines", "mosaics", "falcons"]
VERBS = ["compare", "describe", "postpone", "translate", "summarise", "schedule", "forecast", "withdraw"]


@pytest.fixture
async def model() -> AsyncIterator[JudgeServer]:
    async with serve() as server:
        server.behave(Writer().answer)
        yield server


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    """An event loop beside a command that runs in this process: LiteLLM is then imported once."""
    with start_blocking_portal() as started:
        yield started


@pytest.fixture
def other(portal: BlockingPortal, here: Path) -> Iterator[JudgeServer]:
    """The model, for a command in this process."""
    with portal.wrap_async_context_manager(serve()) as server:
        server.behave(Writer().answer)
        judged_by(server, here)
        yield server


class Writer:
    """Writes as many tasks as it is asked for, of the kind that it is asked for, all with other words."""

    def __init__(self, begin: int = 0, tools: bool = True) -> None:
        self._number = begin
        self._tools = tools

    async def answer(self, body: Json) -> web.StreamResponse:
        said = body["messages"][-1]["content"]
        asked = re.match(r"Write (\d+)", said)
        assert asked is not None
        calls = next(calls for words, calls in KINDS.items() if words in said)
        tasks = "\n".join(json.dumps(self._task(calls)) for _ in range(int(asked[1])))
        return completion(f"<think>{{hm</think>Here:\n```\n{tasks}\n```")

    def _task(self, calls: int) -> dict[str, Any]:
        verb, subject = divmod(self._number, len(SUBJECTS))
        self._number += 1
        return {
            "input": f"{VERBS[verb]} our {SUBJECTS[subject]}, {SUBJECTS[subject][::-1]}",
            "tools": ["find_order"] * calls * self._tools,
        }


async def start(folder: Path, *arguments: str, **env: str) -> asyncio.subprocess.Process:
    own = {name: value for name, value in os.environ.items() if not name.upper().startswith("HONE_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy.cli", "scenarios", "generate", *arguments),
        cwd=folder,
        env={**own, "PYTHONPATH": str(ROOT), **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def generate(folder: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
    return await ended(await start(folder, *arguments, **env))


def judged_by(model: JudgeServer, folder: Path) -> None:
    (folder / "hone.toml").write_text(
        f'[judge]\nmodel = "openai/m"\napi_base = "{model.url}"\napi_key = "the-judges-own-key"\nretry_wait_s = 0.01\n'
    )


async def test_scenarios_of_a_servers_tools_are_written_checked_and_no_tool_is_called(
    model: JudgeServer, tmp_path: Path
) -> None:
    judged_by(model, tmp_path)
    everything = Everything()
    async with served(everything) as url:
        code, out, err = await generate(tmp_path, "--mcp", url, "-n", "20", "--out", "made.jsonl")
    assert code == 0, err
    assert out == ""
    found = read_scenarios(tmp_path / "made.jsonl")
    assert len(found) == 20
    kinds = [one.reference["difficulty"] for one in found]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "one_tool": 7,
        "several_steps": 7,
        "error": 3,
        "nothing_to_do": 3,
    }
    assert everything.seen == []
    assert "20 of 20 scenarios" in err
    assert "not marked read-only, so excluded (--allow-writes): " in err
    shown = json.dumps([body["messages"] for body in model.requests])
    assert "find_order" in shown
    unmarked = [name for name, (told, _) in everything.tools.items() if "readOnlyHint" not in json.dumps(told)]
    assert unmarked
    assert not [name for name in unmarked if f'\\"name\\":\\"{name}\\"' in shown]
    assert model.headers[0]["Authorization"] == "Bearer the-judges-own-key"


def test_with_writes_allowed_every_tool_is_shown(other: JudgeServer, portal: BlockingPortal) -> None:
    everything = Everything()
    everything.tools = {"send_mail": ({"name": "send_mail", "inputSchema": {"type": "object"}}, _never)}
    other.behave(says('{"input": "Write to Ann", "tools": ["send_mail"]}'))
    with portal.wrap_async_context_manager(served(everything)) as url:
        code, _, err = hone("scenarios", "generate", "--mcp", url, "-n", "1")
        assert code == 1
        assert "none of the server's 1 tools is marked read-only (send_mail)" in err
        assert "--allow-writes" in err
        code, out, err = hone("scenarios", "generate", "--mcp", url, "-n", "1", "--allow-writes")
    assert code == 0, err
    assert json.loads(out)["input"] == "Write to Ann"


def test_a_description_is_enough_and_json_has_all_of_it(other: JudgeServer, here: Path) -> None:
    other.behave(says('{"input": "Add 2 and 3"}'))
    code, out, _ = hone("scenarios", "generate", "--task", "An agent that adds", "-n", "4", "--json")
    assert code == 1  # fewer than were asked for
    told = json.loads(out)
    assert told["stopped"] is False
    assert [one["input"] for one in told["scenarios"]] == ["Add 2 and 3"]
    assert told["dropped"]["duplicate"] >= 3
    assert sum(told["missing"].values()) == 3
    assert told["spent"]["tokens_in"] == 100 * told["spent"]["requests"]
    assert "An agent that adds" in other.requests[0]["messages"][1]["content"]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["-n", "2"], 2, "--mcp URL, --task TEXT, or both"),
        (["-n", "2", "--task", "x"], 1, "no model is set that could write scenarios: name one with --model"),
        (["-n", "2", "--mcp", "desk", "--model", "openai/m"], 1, "'desk' is neither a URL"),
        (["-n", "2", "--mcp", "http://127.0.0.1:9/mcp", "--model", "openai/m"], 1, "cannot list its tools"),
        (["-n", "2", "--task", "x", "--model", "openai/m", "--out", "taken"], 1, "taken already exists"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_asked(here: Path, arguments: list[str], code: int, why: str) -> None:
    (here / "taken").write_text("mine")
    found, out, err = hone("scenarios", "generate", *arguments)
    assert (found, out) == (code, ""), err
    assert why in err
    assert (here / "taken").read_text() == "mine"


def test_a_model_that_refuses_is_told_without_its_key_and_no_file_is_left(other: JudgeServer, here: Path) -> None:
    other.behave(fails(401, "bad key the-judges-own-key"))
    code, _, err = hone("scenarios", "generate", "--task", "x", "-n", "2", "--out", "made.jsonl")
    assert code == 1
    assert "refused the request" in err
    assert "the-judges-own-key" not in err
    assert not (here / "made.jsonl").exists()


async def stopped(model: JudgeServer, folder: Path, by: signal.Signals, *arguments: str) -> tuple[int, str, str]:
    """Stopped while the model writes more of two kinds, once it has written all it was first asked for."""
    writing, again = Writer(tools=False), asyncio.Event()
    asked: Counter[str] = Counter()

    async def answer(body: Json) -> web.StreamResponse:
        kind = next(words for words in KINDS if words in body["messages"][-1]["content"])
        asked[kind] += 1
        if max(asked.values()) > 1 and sum(asked.values()) == 6:
            again.set()
        return await (model.hang(body) if asked[kind] > 1 else writing.answer(body))

    model.behave(answer)
    judged_by(model, folder)
    process = await start(folder, "--task", "x", "-n", "40", *arguments)
    await asyncio.wait_for(again.wait(), 120)
    process.send_signal(by)
    return await ended(process)


@pytest.mark.parametrize(
    "by", [*(pytest.param(one, marks=pytest.mark.long) for one in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL]
)
async def test_stopped_or_killed_it_loses_nothing_and_the_same_command_goes_on(
    model: JudgeServer, tmp_path: Path, by: signal.Signals
) -> None:
    code, out, err = await stopped(model, tmp_path, by, "--out", "made.jsonl")
    there = (tmp_path / "made.jsonl").read_text()
    begun = read_scenarios(tmp_path / "made.jsonl")
    assert len(begun) >= 20
    if by is signal.SIGKILL:
        assert code == -9
    else:
        assert (code, out) == (130, "")
        assert err.endswith(
            f"stopped: {len(begun)} of 40 scenarios are in made.jsonl; the same command continues from here\n"
        )
    model.behave(says(json.dumps({"input": begun[0].input})), Writer(begin=40, tools=False).answer)
    code, _, err = await generate(tmp_path, "--task", "x", "-n", "40", "--out", "made.jsonl")
    assert code == 0, err
    assert f"continuing with the {len(begun)} existing scenarios" in err
    assert "dropped: duplicate 1" in err
    assert (tmp_path / "made.jsonl").read_text().startswith(there)
    found = read_scenarios(tmp_path / "made.jsonl")
    assert len(found) == len({one.input for one in found}) == 40


async def test_what_is_printed_is_printed_as_it_goes_and_json_says_what_there_is(
    model: JudgeServer, tmp_path: Path
) -> None:
    code, out, err = await stopped(model, tmp_path, signal.SIGINT)
    assert code == 130
    assert err.endswith(f"stopped: {len(out.splitlines())} of 40 scenarios were made\n")
    assert len({json.loads(line)["id"] for line in out.splitlines()}) >= 20
    code, out, _ = await stopped(model, tmp_path, signal.SIGINT, "--json")
    assert code == 130
    told = json.loads(out)
    assert (told["stopped"], told["written"]) == (True, None)
    assert len(told["scenarios"]) + sum(told["missing"].values()) == 40


@pytest.mark.long
def test_a_model_that_was_overloaded_is_asked_again(other: JudgeServer, here: Path) -> None:
    other.behave(fails(503), says('{"input": "Add 2 and 3"}'))
    code, out, err = hone("scenarios", "generate", "--task", "x", "-n", "1")
    assert code == 0, err
    assert json.loads(out)["input"] == "Add 2 and 3"


def test_a_model_that_hangs_is_told_and_not_asked_again(other: JudgeServer, here: Path) -> None:
    other.behave(other.hang)
    with (here / "hone.toml").open("a") as file:
        file.write("timeout_s = 0.5\n")
    code, _, err = hone("scenarios", "generate", "--task", "x", "-n", "1")
    assert code == 1
    assert "did not answer within 0.5 s (judge.timeout_s)" in err
    assert len(other.requests) <= 1  # it may hang before it is read


def test_another_providers_model_never_gets_the_judges_key(other: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")
    arguments = ("--task", "x", "-n", "1", "--model", "hosted_vllm/other")
    code, _, _ = hone("scenarios", "generate", *arguments)
    assert code == 1
    assert other.requests == []


async def _never(*_: Any) -> dict[str, Any]:
    raise AssertionError("no tool is called")


ASKED = [{"role": "user", "content": "Write 3 tasks"}]


@pytest.fixture
async def server() -> AsyncIterator[JudgeServer]:
    async with serve() as one:
        yield one


def settings(server: JudgeServer, **more: object) -> JudgeSettings:
    given = {"model": "openai/m", "api_base": server.url, "api_key": "a-very-secret-key", "retry_wait_s": 0.01, **more}
    return JudgeSettings.model_validate(given)


async def test_it_takes_its_turns_of_the_models_pace(server: JudgeServer) -> None:
    server.behave(says("hi"))
    model = WriterModel(settings(server, requests_per_minute=2))
    kept = rate_limiter.shared_limiter("openai/m", server.url, 2, None)
    await model.ask(ASKED)
    assert isinstance(kept.take(1), RequestSlot)  # the second of this minute
    assert isinstance(kept.take(1), float)
    await model.close()


async def test_a_long_pause_that_is_asked_for_is_told_and_kept(server: JudgeServer) -> None:
    server.behave(fails(429, retry_after="3600"))
    model = WriterModel(settings(server))
    for _ in range(2):
        with pytest.raises(GeneratorFailed, match=r"^the model openai/m at .* asked for a pause of .* s more"):
            await model.ask(ASKED)
    assert len(server.requests) == model.spent.requests == 1
    await model.close()


async def test_every_request_is_counted_and_the_key_is_told_nowhere(server: JudgeServer) -> None:
    server.behave(fails(503, "a-very-secret-key"), fails(503), says("hi"), fails(401, "no a-very-secret-key"))
    model = WriterModel(settings(server))
    assert await model.ask(ASKED) == "hi"
    assert "response_format" not in server.requests[0]
    with pytest.raises(GeneratorFailed, match="refused the request") as caught:
        await model.ask(ASKED)
    assert "a-very-secret-key" not in str(caught.value)
    assert (model.spent.requests, model.spent.tokens_in, model.spent.tokens_out) == (4, 100, 20)
    await model.close()
