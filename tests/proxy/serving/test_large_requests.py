"""Requests that are large, or hostile by their structure: others are served meanwhile.

Where a request is served, the engine and the client are in another process: what they do is not what is measured.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.event_loop import GAP_S, loop_gaps
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.formats import CHAT, COMPLETIONS, MESSAGES, RESPONSES, fault_in, request
from tests.proxy.running import WITHOUT_PAGES, Proxy, serving
from tests.proxy.separate_process import SeparateProcess, separate_process

pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # to the engine

ONCE_MORE = pytest.mark.long  # a format that repeats another
LISTS: dict[str, Callable[[int], dict[str, Any]]] = {
    CHAT: lambda n: {"messages": [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(n)]},
    MESSAGES: lambda n: {"messages": [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(n)]},
    RESPONSES: lambda n: {"input": [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(n)]},
    COMPLETIONS: lambda n: {"prompt": ["x"] * n},
}


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[SeparateProcess]:
    async with separate_process(tmp_path) as process:
        yield process


@pytest.fixture
async def plain_proxy(store: Store, other: SeparateProcess) -> AsyncIterator[Proxy]:
    """A proxy before an engine that only answers. A slow disk takes longer than two seconds for 20,000 messages."""
    recording = RecorderSettings(commit_timeout_s=50.0)
    async with serving(store, other, settings=WITHOUT_PAGES, recording=recording) as running:
        yield running


async def served(proxy: Proxy, other: SeparateProcess, path: str, body: dict[str, Any] | bytes) -> str:
    """Send a request from the other process, which must be answered while the loop runs. Return the answer."""
    await other.prepare(body if isinstance(body, bytes) else json.dumps(body).encode())
    async with loop_gaps() as gaps:
        status, text = await other.send(proxy.url + path)
    assert status == 200, text
    assert gaps.busy_s <= GAP_S
    return text


async def post(proxy: Proxy, path: str, body: dict[str, Any] | bytes) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await proxy.http.post(path, content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize("count", [20_001, 500_001])
@pytest.mark.parametrize("path", LISTS)
async def test_more_than_20000_messages_are_refused(proxy: Proxy, engine: FakeEngine, path: str, count: int) -> None:
    body = json.dumps(request(path, **LISTS[path](count))).encode()
    async with loop_gaps() as gaps:
        answer = await post(proxy, path, body)
    assert answer.status_code == 413
    fault = fault_in(path, 413, answer.text, streamed=False)
    assert fault is not None
    assert "20000" in fault["message"]
    assert "max_messages" in fault["message"]
    assert engine.requests == []
    assert gaps.busy_s <= GAP_S


@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=ONCE_MORE)])
@pytest.mark.parametrize("path", [CHAT, pytest.param(MESSAGES, marks=ONCE_MORE), RESPONSES])
async def test_20000_messages_are_served_and_recorded(
    plain_proxy: Proxy, other: SeparateProcess, path: str, stream: bool
) -> None:
    await served(plain_proxy, other, path, request(path, **LISTS[path](19_999), stream=stream))
    [call] = await plain_proxy.calls()
    assert len(call["request"]["messages"]) == 19_999


async def test_20000_messages_of_a_named_trajectory_are_served(plain_proxy: Proxy, other: SeparateProcess) -> None:
    await served(plain_proxy, other, f"/t/one{CHAT}", request(CHAT, **LISTS[CHAT](19_999)))
    assert (await plain_proxy.call())["trajectory_external_id"] == "one"


async def test_20000_messages_are_compared_with_a_recorded_conversation(
    plain_proxy: Proxy, other: SeparateProcess
) -> None:
    said = LISTS[CHAT](19_997)["messages"]
    more = [*said, {"role": "assistant", "content": "It"}, {"role": "user", "content": "and"}]
    for clock, messages in (("It is nine.", said), ("It is ten.", more)):
        now = {"role": "system", "content": clock}
        await served(plain_proxy, other, CHAT, request(CHAT, messages=[now, *messages]))
    first, second = await plain_proxy.calls()
    assert second["attribution"]["source"] == "similar"
    assert second["trajectory_id"] == first["trajectory_id"]


async def test_a_response_with_19000_items_is_continued(plain_proxy: Proxy, other: SeparateProcess) -> None:
    text = await served(plain_proxy, other, RESPONSES, request(RESPONSES, **LISTS[RESPONSES](19_000)))
    more = request(RESPONSES, previous_response_id=json.loads(text)["id"])
    await served(plain_proxy, other, RESPONSES, more)
    assert len((await plain_proxy.calls())[1]["request"]["messages"]) == 19_002


async def test_20000_messages_are_counted(plain_proxy: Proxy, other: SeparateProcess) -> None:
    await served(plain_proxy, other, "/tokenize", request(CHAT, **LISTS[CHAT](19_999)))


BLOCKS = [{"type": "text", "text": "x"}] * 20_000
LONG = {
    "blocks of a message": (MESSAGES, json.dumps(request(MESSAGES, messages=[{"role": "user", "content": BLOCKS}]))),
    "new lines": (CHAT, json.dumps(request(CHAT, messages=[{"role": "user", "content": "\n" * 15_000_000}]))),
    "plain text": (CHAT, json.dumps(request(CHAT, messages=[{"role": "user", "content": "some words " * 2_700_000}]))),
}


@pytest.mark.parametrize(("path", "body"), LONG.values(), ids=LONG)
async def test_a_long_message_is_served_and_recorded(
    plain_proxy: Proxy, other: SeparateProcess, path: str, body: str
) -> None:
    await served(plain_proxy, other, path, body.encode())
    call = await plain_proxy.call()
    assert call["request"]["messages"][0]["content"] == json.loads(body)["messages"][0]["content"]


async def test_the_most_messages_are_a_setting(store: Store, engine: FakeEngine) -> None:
    settings = WITHOUT_PAGES.model_copy(update={"max_messages": 2})
    async with serving(store, engine, settings=settings) as proxy:
        for path in LISTS:
            answer = await post(proxy, path, request(path, **LISTS[path](3)))
            assert answer.status_code == 413
            assert "max_messages" in answer.text
        assert (await proxy.chat("one")).status_code == 200


async def test_messages_that_a_format_has_within_one_are_counted(store: Store, engine: FakeEngine) -> None:
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "f", "input": {}} for n in range(8)]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "x"} for n in range(8)]
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": calls}]
    settings = WITHOUT_PAGES.model_copy(update={"max_messages": 9})
    async with serving(store, engine, settings=settings) as proxy:
        answer = await post(proxy, MESSAGES, request(MESSAGES, messages=[*said, {"role": "user", "content": results}]))
    assert answer.status_code == 413
    assert answer.json()["type"] == "error"


async def test_messages_of_an_earlier_response_are_counted(store: Store, engine: FakeEngine) -> None:
    settings = WITHOUT_PAGES.model_copy(update={"max_messages": 4})
    async with serving(store, engine, settings=settings) as proxy:
        one = (await post(proxy, RESPONSES, request(RESPONSES))).json()["id"]
        two = await post(proxy, RESPONSES, request(RESPONSES, previous_response_id=one))
        three = await post(proxy, RESPONSES, request(RESPONSES, previous_response_id=two.json()["id"]))
    assert (two.status_code, three.status_code) == (200, 413)


START = b'{"model":"helpdesk","messages":[{"role":"user","content":"hi"}],"metadata":'
SPECIAL = b'{"model":"helpdesk","messages":[{"role":"user","content":"'
# Made in the test that sends it: together they are 200 MB, which each worker would hold from its collection on.
HOSTILE: dict[str, Callable[[], bytes]] = {
    "empty lists": lambda: START + b"[" + b"[]," * 5_000_000 + b"[]]}",
    "empty objects": lambda: START + b"[" + b"{}," * 5_000_000 + b"{}]}",
    "numbers": lambda: START + b"[" + b"1," * 10_000_000 + b"1]}",
    "keys": lambda: START + b"{" + b",".join(b'"%d":0' % n for n in range(1_000_000)) + b"}}",
    "texts": lambda: START + b"[" + b'"",' * 5_000_000 + b'""]}',
    "deep": lambda: START + b"[" * 8_000_000 + b"]" * 8_000_000 + b"}",
    "deep objects": lambda: START + b'{"a":' * 2_000_000 + b"1" + b"}" * 2_000_001,
    "a huge number": lambda: START + b"9" * 16_000_000 + b"}",
    "a huge fraction": lambda: START + b"0." + b"9" * 16_000_000 + b"x}",
    "a text that does not end": lambda: SPECIAL + b"a\\n" * 6_000_000,
    "escapes": lambda: SPECIAL + b"\\u0041" * 3_000_000 + b'"}]',
    "half a character": lambda: SPECIAL + b"\\ud83d" + b"a" * 16_000_000 + b'"}]}',
    "many halves": lambda: SPECIAL + b"\\ud83d" * 3_000_000 + b'"}]}',
    "brackets in a text": lambda: SPECIAL + b"[{," * 5_000_000 + b'"}]',
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("path", [CHAT, "/tokenize"])
async def test_a_body_that_is_refused_does_not_stop_the_loop(
    proxy: Proxy, make: Callable[[], bytes], path: str
) -> None:
    body = make()
    async with loop_gaps() as gaps:
        answer = await post(proxy, path, body)
    assert answer.status_code in (400, 413)
    assert gaps.busy_s <= GAP_S


ARGUMENTS: dict[str, Callable[[], str]] = {
    "lists": lambda: "[" + "[]," * 2_000_000 + "[]]",
    "deep": lambda: "[" * 3_000_000,
    "digits": lambda: '{"a":' + "9" * 4000 + "}",
    "keys": lambda: "{" + ",".join(f'"{n}":0' for n in range(300_000)) + "}",
}


@pytest.mark.parametrize("make", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_hostile_arguments_do_not_stop_the_loop(
    plain_proxy: Proxy, other: SeparateProcess, make: Callable[[], str]
) -> None:
    arguments = make()
    calls = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    many = calls * (6_000_000 // len(arguments))
    said = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": many},
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
    ]
    await served(plain_proxy, other, CHAT, request(CHAT, messages=said))
    [call] = await plain_proxy.calls()
    assert call["request"]["messages"][1]["tool_calls"] == many


async def test_a_long_conversation_is_served_and_recorded_whole(plain_proxy: Proxy, other: SeparateProcess) -> None:
    text = 'Look at {"a": [1, 2, {"b": "c"}]}, please.\n' * 300
    said = [{"role": ("user", "assistant")[n % 2], "content": f"{n} {text}"} for n in range(401)]
    await served(plain_proxy, other, CHAT, request(CHAT, messages=said))
    [call] = await plain_proxy.calls()
    assert [m["content"] for m in call["request"]["messages"][:401]] == [m["content"] for m in said]
