"""What can be asked about a response that was given: the object again, its end, its deletion, what the model read."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.responses_api.stored_responses import StoredResponses
from recorder.capture.recorder import Recorder
from recorder.messages.calls import ANYBODY
from recorder.settings import RecorderSettings
from recorder.states import CallState
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine, Said, Script, Step, ids_of, tool_call, words
from tests.proxy.running import PROJECT, WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow

FIND = {"type": "function", "name": "find_order", "parameters": {"type": "object"}}
JSON = {"content-type": "application/json"}


def thought(reasoning: str, text: str) -> Said:
    """A choice that reasons before it says something."""
    steps = [Step({"reasoning": reasoning}, ids_of(reasoning)), Step({"content": text}, ids_of(text)), Step({}, [2])]
    return Said(steps, {"role": "assistant", "content": text, "reasoning": reasoning})


def thought_call(reasoning: str, call_id: str) -> Said:
    """A choice that reasons before it calls a tool."""
    called = tool_call("find_order", {"order_id": 1}, call_id)
    called.steps.insert(0, Step({"reasoning": reasoning}, ids_of(reasoning)))
    return Said(called.steps, {**called.message, "reasoning": reasoning}, "tool_calls")


@pytest.fixture
async def engine() -> Any:
    async with FakeEngine() as running:
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> Any:
    async with serving(store, engine, settings=WITHOUT_PAGES) as running:
        yield running


async def ask(proxy: Proxy, **fields: Any) -> dict[str, Any]:
    answer = await proxy.http.post("/v1/responses", json={"model": "helpdesk", "input": "Where?"} | fields)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def show(proxy: Proxy, response_id: str) -> dict[str, Any]:
    answer = await proxy.http.get(f"/v1/responses/{response_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"instructions": "Help.", "tools": [FIND], "metadata": {"a": "b"}, "temperature": 0.5},
        {"instructions": "", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
        {"text": {"format": {"type": "json_schema", "name": "d", "schema": {"type": "object"}}, "verbosity": "low"}},
        {"include_reasoning": False, "reasoning": {"effort": "low"}, "max_output_tokens": 7},
    ],
)
async def test_a_response_is_shown_as_it_was_given(proxy: Proxy, engine: FakeEngine, fields: dict[str, Any]) -> None:
    for said in (words("It arrives"), thought("Hm", "Yes"), thought_call("Hm", "chatcmpl-tool-1")):
        engine.default = Script([said])
        given = await ask(proxy, **fields)
        assert await show(proxy, given["id"]) == given
    # before another prefix, too, as many frameworks give every run its own base URL
    assert (await proxy.http.get(f"/g/a/t/1/v1/responses/{given['id']}")).json() == given


async def test_what_a_stream_told_in_another_order_is_shown_in_it(proxy: Proxy, engine: FakeEngine) -> None:
    called = tool_call("find_order", {}, "chatcmpl-tool-1")
    steps = [Step({"content": "One. "}, [3]), *called.steps[:-1], Step({"content": "Two."}, [4]), called.steps[-1]]
    engine.default = Script([Said(steps, called.message, "tool_calls")])
    answer = await proxy.http.post("/v1/responses", json={"model": "helpdesk", "input": "Where?", "stream": True})
    given = json.loads(answer.text.split("data: ")[-1])["response"]
    assert [item["type"] for item in given["output"]] == ["message", "function_call", "message"]
    assert await show(proxy, given["id"]) == given
    result = {"type": "function_call_output", "call_id": "chatcmpl-tool-1", "output": "sent"}
    for more in (
        {"input": [{"role": "user", "content": "Where?"}, *given["output"], result]},
        {"input": [result], "previous_response_id": given["id"]},
    ):
        await ask(proxy, **more)
        assert engine.requests[-1]["messages"][1]["content"] == "One. Two."
    first, *later = await proxy.calls()
    assert {call["parent_call_id"] for call in later} == {first["call_id"]}


async def test_reasoning_goes_on_with_the_conversation(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script([thought_call("first", "chatcmpl-tool-1")]), Script([thought("second", "Done")])]
    one = await ask(proxy, tools=[FIND], instructions="Help.")
    result = {"type": "function_call_output", "call_id": "chatcmpl-tool-1", "output": "sent"}
    two = await ask(proxy, tools=[FIND], instructions="Other.", input=[result], previous_response_id=one["id"])
    await ask(proxy, input="Thanks", previous_response_id=two["id"])
    messages = engine.requests[-1]["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert [m.get("reasoning") for m in messages] == [None, "first", None, "second", None]
    assert [m["content"] for m in engine.requests[1]["messages"] if m["role"] == "system"] == ["Other."]
    items = (await proxy.http.get(f"/v1/responses/{two['id']}/input_items?order=asc")).json()["data"]
    assert [item["type"] for item in items] == ["message", "reasoning", "function_call", "function_call_output"]


async def test_a_conversation_may_branch(proxy: Proxy, engine: FakeEngine) -> None:
    first = await ask(proxy)
    for text in ("A", "B"):
        await ask(proxy, input=text, previous_response_id=first["id"])
    one, two, three = await proxy.calls()
    assert two["parent_call_id"] == three["parent_call_id"] == one["call_id"]
    assert len({c["trajectory_id"] for c in (one, two, three)}) == 1


async def test_an_address_is_stronger_than_an_id(proxy: Proxy, engine: FakeEngine) -> None:
    first = await ask(proxy)
    body = {"model": "helpdesk", "input": "And?", "previous_response_id": first["id"]}
    await proxy.http.post("/t/other/v1/responses", json=body)
    one, two = await proxy.calls()
    assert two["attribution"] == {"source": "path", "confidence": "stated"}
    assert two["trajectory_id"] != one["trajectory_id"]


async def test_another_projects_response_is_not_found(proxy: Proxy, engine: FakeEngine) -> None:
    given = await ask(proxy)
    elsewhere = StoredResponses(Project(proxy.store, "other"), proxy.recorder)
    with pytest.raises(Exception, match="not found"):
        await elsewhere.response(given["id"], ANYBODY)
    with pytest.raises(Exception, match="not found"):
        await elsewhere.delete(given["id"])
    assert await StoredResponses(Project(proxy.store, PROJECT), proxy.recorder).response(given["id"], ANYBODY) == given


async def test_what_ran_when_its_process_died_has_failed(store: Store, engine: FakeEngine) -> None:
    engine.next = [Script(gate=asyncio.Event())]
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        queued = await ask(proxy, background=True, metadata={"a": "b"})
        assert (queued["status"], queued["metadata"]) == ("queued", {"a": "b"})
        # what a proxy that starts later finds in the store, before this one ended the call
        later = StoredResponses(Project(store, PROJECT), proxy.recorder)
        shown = await later.response(queued["id"], ANYBODY)
        assert (shown["status"], shown["created_at"]) == ("failed", queued["created_at"])
        assert shown["error"]["code"] == "server_error"
    engine.next = []
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        shown = await show(proxy, queued["id"])
        assert shown["status"] == "failed"
        assert (await proxy.http.post(f"/v1/responses/{queued['id']}/cancel", headers=JSON)).status_code == 200
        gone_on = {"model": "helpdesk", "input": "?", "previous_response_id": queued["id"]}
        refused = await proxy.http.post("/v1/responses", json=gone_on)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "previous_response_id")


async def test_a_response_whose_client_hung_up_is_cancelled(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script([words("a b c d")], after_events=3, then="hang")]
    request = {"model": "helpdesk", "input": "Where?", "stream": True}
    async with proxy.http.stream("POST", "/v1/responses", json=request) as stream:
        data: list[str] = []
        async for line in stream.aiter_lines():
            data += [line.removeprefix("data: ")] if line.startswith("data: ") else []
            if "output_text.delta" in line:
                break
    await engine.until(lambda e: e.aborted == [0])
    while not (calls := await proxy.calls()) or calls[0]["status"] == "open":
        await asyncio.sleep(0.01)
    assert calls[0]["status"] == CallState.ABORTED
    assert (await show(proxy, json.loads(data[0])["response"]["id"]))["status"] == "cancelled"


async def test_a_store_that_fails_fails_no_call(
    store: Store, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(
        store, engine, settings=WITHOUT_PAGES, recording=RecorderSettings(commit_timeout_s=0.5)
    ) as proxy:

        async def broken(*_: Any) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(proxy.recorder, "commit", broken)
        given = await ask(proxy)
        assert given["status"] == "completed"
        assert (await proxy.http.get(f"/v1/responses/{given['id']}")).status_code == 404


async def test_an_engines_refusal_speaks_of_the_clients_fields(proxy: Proxy, engine: FakeEngine) -> None:
    said = "max_completion_tokens=5000 cannot be greater (parameter=max_completion_tokens, value=5000)"
    fault = {"message": said, "type": "BadRequestError", "param": "max_completion_tokens", "code": 400}
    engine.default = Script(status=400, error={"error": fault})
    answer = await proxy.http.post("/v1/responses", json={"model": "helpdesk", "input": "?", "max_output_tokens": 5000})
    assert answer.status_code == 400
    told = answer.json()["error"]
    assert told["message"].startswith("max_output_tokens=5000")
    assert told["param"] == "max_output_tokens"


async def test_other_requests_are_told_what_is_wrong(proxy: Proxy) -> None:
    asked = [
        ("GET", "/v1/responses", 405),
        ("PUT", "/v1/responses/resp_1", 405),
        ("POST", "/v1/responses/resp_1", 405),
        ("GET", "/v1/responses/resp_1/cancel", 405),
        ("POST", "/v1/responses/resp_1/cancel", 404),
        ("GET", "/v1/responses/resp_1/input_items", 404),
        ("GET", "/v1/responses/resp_1/other", 404),
        ("GET", "/v1/responses/%00%ff", 404),
        ("GET", "/v1/responsesX", 404),
        ("GET", "/v1/responses/resp_1?stream=true", 400),
    ]
    for method, path, status in asked:
        answer = await proxy.http.request(method, path, headers=JSON)
        assert (path, answer.status_code) == (path, status)
        assert answer.json()["error"]["message"]


async def test_pages_of_input_items_are_checked(proxy: Proxy, engine: FakeEngine) -> None:
    given = await ask(proxy)
    for query in ("order=up", "limit=0", "limit=101", "limit=x"):
        assert (await proxy.http.get(f"/v1/responses/{given['id']}/input_items?{query}")).status_code == 400
    assert (await proxy.http.get(f"/v1/responses/{given['id']}/input_items?after=x")).status_code == 404


async def test_recorders_of_other_processes_forget_a_deleted_response(
    proxy: Proxy, engine: FakeEngine, store: Store
) -> None:
    given = await ask(proxy)
    other = Recorder(store, RecorderSettings())
    await other.start()
    try:
        await StoredResponses(Project(store, PROJECT), other).delete(given["id"])
    finally:
        await other.stop()
    body = {"model": "helpdesk", "input": "?", "previous_response_id": given["id"]}
    assert (await proxy.http.post("/v1/responses", json=body)).status_code == 404
