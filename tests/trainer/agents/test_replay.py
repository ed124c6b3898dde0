"""Hone's own agent: tools answered from the record, and nothing invented."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from trainer.agents import replay
from trainer.agents.replay import NOT_RECORDED, NotRecorded, ToolRecord, canonical_arguments
from trainer.agents.user_agent import AgentSpec, AttemptEnding, UserAgent

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def call(name: str, arguments: object, id_: str = "c1") -> dict[str, Any]:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": given}}


@given(st.dictionaries(st.text(), values, max_size=4), st.randoms())
def test_arguments_are_compared_as_json_whatever_order_and_white_space_they_came_in(
    arguments: dict[str, Any], random: Any
) -> None:
    shuffled = list(arguments.items())
    random.shuffle(shuffled)
    assert (
        canonical_arguments(json.dumps(dict(shuffled), indent=2))
        == canonical_arguments(json.dumps(arguments))
        == canonical_arguments(arguments)
    )


def test_arguments_that_are_no_json_are_compared_as_text() -> None:
    assert canonical_arguments("{broken") == "{broken"


def test_the_same_call_gets_its_results_in_order_and_the_last_one_again() -> None:
    results = [
        {"name": "find", "arguments": canonical_arguments({"id": 7}), "content": text} for text in ("open", "shipped")
    ]
    record = ToolRecord(results)
    answers = [record.answer(call("find", '{ "id": 7 }')) for _ in range(3)]
    assert [answer["content"] for answer in answers] == ["open", "shipped", "shipped"]
    assert answers[0] == {"role": "tool", "tool_call_id": "c1", "content": "open"}


@pytest.mark.parametrize("asked", [call("find", {"id": 8}), call("track", {"id": 7}), call("find", "{"), {"id": "c"}])
def test_a_call_that_was_not_recorded_is_not_answered(asked: Mapping[str, Any]) -> None:
    record = ToolRecord([{"name": "find", "arguments": canonical_arguments({"id": 7}), "content": "open"}])
    with pytest.raises(NotRecorded):
        record.answer(asked)


@pytest.fixture
async def model() -> AsyncIterator[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """A model on loopback: its address, what it was asked, and what it says, in order, for the test to set."""
    asked: list[dict[str, Any]] = []
    said: list[dict[str, Any]] = []

    async def complete(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response({"choices": [{"index": 0, "message": {"role": "assistant", **said.pop(0)}}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    yield f"http://{host}:{port}/v1", asked, said
    await runner.cleanup()


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[UserAgent]:
    running = UserAgent(
        AgentSpec(f"{replay.__name__}:run", tmp_path / "agent.log", cwd=Path(replay.__file__).parents[2])
    )
    yield running
    await running.stop()


def task(url: str) -> dict[str, Any]:
    recorded = {
        "messages": [{"role": "user", "content": "Where is order 7?"}],
        "tools": [{"type": "function", "function": {"name": "find"}}],
        "sampling": {"max_tokens": 9},
        "results": [{"name": "find", "arguments": canonical_arguments({"id": 7}), "content": "shipped"}],
    }
    return {"id": "t", "scenario_id": "s", "input": recorded, "base_url": url, "api_key": "none", "model": "helpdesk"}


async def test_an_attempt_goes_on_with_recorded_results_until_the_model_asks_for_no_tool(
    model: tuple[str, list[dict[str, Any]], list[dict[str, Any]]], agent: UserAgent
) -> None:
    url, asked, said = model
    said += [{"content": None, "tool_calls": [call("find", {"id": 7})]}, {"content": "It was shipped."}]
    outcome = await agent.run(task(url), {}, 60)
    assert (outcome.ending, outcome.answer) == (AttemptEnding.DONE, "It was shipped.")
    assert [len(body["messages"]) for body in asked] == [1, 3]
    assert asked[1]["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "shipped"}
    assert {(body["model"], body["max_tokens"], len(body["tools"])) for body in asked} == {("helpdesk", 9, 1)}


async def test_a_tool_call_that_the_record_cannot_answer_ends_the_attempt_by_its_name(
    model: tuple[str, list[dict[str, Any]], list[dict[str, Any]]], agent: UserAgent
) -> None:
    url, asked, said = model
    said += [{"content": None, "tool_calls": [call("cancel", {"id": 7})]}]
    outcome = await agent.run(task(url), {}, 60)
    assert (outcome.ending, outcome.network, len(asked)) == (AttemptEnding.ERROR, False, 1)
    assert outcome.error is not None
    assert outcome.error.startswith(NOT_RECORDED)
    assert 'the record has no answer to cancel({"id":7})' in outcome.error
