"""Calls that are long, large or slow, through the real proxy in a process of its own: right, and flat in memory.

Memory is the resident size of the proxy's process, after a first round of the same work has filled its caches and its
allocator's pools. The bounds are shares of what the measured work carried: whatever keeps it, or copies of it, exceeds
them by a multiple.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from examples.running.programs import free_ports
from recorder.maintenance.export import raw_lines
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import load_trajectory
from tests.proxy.fake_engine import END, FakeEngine, Said, Script, Step, ids_of, prompt_ids, words
from tests.proxy.running import ALIAS, NO_TLS, PROJECT, say
from tests.proxy.until import until

pytestmark = pytest.mark.slow  # a proxy's process takes seconds to start

EVENTS = 10_000
MIB = 2**20


@dataclass
class Child:
    """The proxy in its process."""

    url: str
    http: httpx.AsyncClient
    process: psutil.Process
    data: Path

    async def chat(self, messages: list[dict[str, Any]], path: str = "", **more: Any) -> httpx.Response:
        body = {"model": ALIAS, "messages": messages, **more}
        answer = await self.http.post(f"{path}/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text[:500]
        return answer

    def rss(self) -> int:
        """Resident bytes."""
        return int(self.process.memory_info().rss)

    async def stored(self) -> int:
        """Bytes of the store, with all of its log brought into it."""
        await until(self._is_whole)
        return (self.data / "hone.db").stat().st_size

    def _is_whole(self) -> bool:
        with contextlib.closing(sqlite3.connect(self.data / "hone.db", timeout=10)) as store:
            busy, _, _ = store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy  # somebody reads


@pytest.fixture
async def child(tmp_path: Path, engine: FakeEngine) -> AsyncIterator[Child]:
    [port] = free_ports(1)
    argv = [sys.executable, "-m", "tests.proxy.proxy_child", str(port), engine.url, str(tmp_path / "data")]
    process = subprocess.Popen(argv)
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS) as http:
            await until(lambda: _answers(http, process), within_s=60)
            yield Child(url, http, psutil.Process(process.pid), tmp_path / "data")
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def _answers(http: httpx.AsyncClient, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the proxy died while starting"
    try:
        return (await http.get("/healthz")).is_success
    except httpx.ConnectError:
        return False


@pytest.fixture
async def store(child: Child) -> AsyncIterator[Store]:
    opened = await open_store(child.data, RecorderSettings(), migrate=False)
    yield opened
    await opened.close()


async def recorded(store: Store) -> list[dict[str, Any]]:
    lines = [line async for line in raw_lines(Project(store, PROJECT))]
    return sorted(lines, key=lambda line: (line["started_at"], line["call_id"]))


def long_answer(events: int, filler: str = "") -> Said:
    """An answer of so many events, one token each, and all different."""
    texts = [f" w{at}{filler}" for at in range(events)]
    steps = [Step({"content": text}, [100 + at]) for at, text in enumerate(texts)]
    return Said(steps, {"role": "assistant", "content": "".join(texts)})


def text_of(stream: str) -> str:
    """The content of a stream that ended as it should."""
    *events, done, rest = stream.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    parsed = [json.loads(event.removeprefix("data: ")) for event in events if not event.startswith(":")]
    assert parsed[-1]["choices"][0]["finish_reason"] == "stop"
    return "".join(c["delta"].get("content") or "" for event in parsed for c in event["choices"])


async def test_streams_of_ten_thousand_events_are_whole_and_leave_nothing_behind(
    child: Child, engine: FakeEngine, store: Store
) -> None:
    said = long_answer(EVENTS)
    engine.default = Script([said])
    carried = 0
    for number in range(6):
        answer = await child.chat(say("Count")["messages"], f"/t/{number}", stream=True)
        assert text_of(answer.text) == said.message["content"]
        if number == 1:
            before = child.rss()
        elif number > 1:
            carried += len(answer.content)
    # Four more streams; kept text, ids or events of theirs would be all they carried, and more as Python objects.
    assert child.rss() - before < carried / 2
    for call in await recorded(store):
        assert call["choices"][0]["token_ids"] == said.ids()
        assert call["choices"][0]["logprobs"] == pytest.approx(said.logprobs(), rel=1e-6)
        assert call["response"]["choices"][0]["message"]["content"] == said.message["content"]


async def test_a_reader_that_does_not_read_makes_the_engine_wait_and_not_the_proxy_buffer(
    child: Child, engine: FakeEngine, store: Store
) -> None:
    said = long_answer(EVENTS, "x" * 4096)
    size = len(said.message["content"])
    await child.chat(say("Hello")["messages"], stream=True)
    before, sent = child.rss(), engine.sent_events
    engine.default = Script([said])
    reader, writer = await _ask_and_wait(child, say("Slow", stream=True))
    stalled = await _stalled(engine)
    # The sockets on the way hold some MB; the engine is stopped well before its 40 MB are out.
    assert stalled - sent < EVENTS
    assert child.rss() - before < size / 2  # what of the answer is on its way is held once, to be recorded
    raw = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert text_of(_unchunked(raw)) == said.message["content"]
    assert [len(call["choices"][0]["token_ids"]) for call in await recorded(store)] == [
        len(words("It arrives on Monday").ids()),
        EVENTS,
    ]


async def _ask_and_wait(child: Child, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send a request on a connection that takes little, and read nothing of the answer."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    sock.connect(("127.0.0.1", int(child.url.rpartition(":")[2])))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**14)
    sent = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {len(sent)}\r\n"
    )
    writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + sent)
    await writer.drain()
    return reader, writer


async def _stalled(engine: FakeEngine) -> int:
    """How many events the engine has sent when it gets no more of them out."""
    seen, looks = engine.sent_events, 0

    def look() -> int | None:
        nonlocal seen, looks
        looks = looks + 1 if engine.sent_events == seen else 0
        seen = engine.sent_events
        return seen if looks == 100 else None  # looks are 10 ms apart, an event takes the engine some 0.1 ms

    return await until(look, within_s=60)


def _unchunked(raw: bytes) -> str:
    _, _, rest = raw.partition(b"\r\n\r\n")
    parts = []
    while rest:
        length, _, rest = rest.partition(b"\r\n")
        parts.append(rest[: int(length, 16)])
        rest = rest[int(length, 16) + 2 :]
    return b"".join(parts).decode()


async def test_tool_results_of_a_megabyte_are_passed_on_whole_and_stored_once(
    child: Child, engine: FakeEngine, store: Store
) -> None:
    result = "".join(f"{at:07d} 🚚\n" for at in range(MIB // 13))
    call = {"id": "call_megabyte1", "type": "function", "function": {"name": "dump", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Dump it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]
    turns, warm = 20, 4
    for turn in range(turns):
        engine.default = Script([words(f"Answer {turn}")])
        await child.chat(messages, "/t/one")
        assert engine.requests[-1]["messages"] == messages
        messages += [{"role": "assistant", "content": f"Answer {turn}"}, {"role": "user", "content": f"And {turn}?"}]
        if turn == 0:
            before = await child.stored()
        if turn == warm:  # by then the allocator has most of what it needs for one turn; what it takes later, it keeps
            resident = child.rss()
    size = len(result.encode())
    assert await child.stored() - before < size  # nineteen turns with it in their history
    # A copy that stays is four times as much as text of Python. The allocator's pools grow by some 3 MB at a time, so
    # three turns do not tell one from the other; fifteen do.
    assert child.rss() - resident < (turns - 1 - warm) * size
    [*_, last] = await recorded(store)
    assert last["request"]["messages"] == messages[:-2]
    assert last["prompt_token_ids"] == prompt_ids(messages[:-2])


async def test_text_that_is_cut_inside_its_characters_arrives_and_is_recorded_whole(
    child: Child, engine: FakeEngine, store: Store
) -> None:
    text = "Größe 🚚👩‍👩‍👧‍👦 नमस्ते e\u0301 \u2028 \U0001f1e9\U0001f1ea ok"
    for cut in (1, 2, 3, 5, 7):
        engine.default = Script([words(text)], cut_bytes=cut)
        answer = await child.chat(say("Hello")["messages"], stream=True)
        assert text_of(answer.text) == text
    assert {call["response"]["choices"][0]["message"]["content"] for call in await recorded(store)} == {text}


async def test_two_hundred_tools_are_passed_on_and_stored_once(child: Child, engine: FakeEngine, store: Store) -> None:
    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{at}",
                "description": f"Does {at}. " * 40,
                "parameters": {"type": "object", "properties": {f"p{at}": {"type": "string"}}},
            },
        }
        for at in range(200)
    ]
    engine.default = Script([words("Done")])
    messages = say("Do")["messages"]
    await child.chat(messages, "/t/one", tools=tools)
    before = await child.stored()
    for _ in range(5):
        messages = [*messages, {"role": "assistant", "content": "Done"}, {"role": "user", "content": "Again"}]
        await child.chat(messages, "/t/one", tools=tools)
        assert engine.requests[-1]["tools"] == tools
    assert await child.stored() - before < len(json.dumps(tools)) * 2  # of five more times
    assert [call["request"]["tools"] for call in await recorded(store)] == [tools] * 6


@pytest.mark.parametrize(
    "path", [pytest.param("/t/deep", id="addressed", marks=pytest.mark.long), pytest.param("", id="by lineage")]
)
async def test_a_history_of_five_hundred_turns_is_one_run_and_grows_linearly(
    child: Child, engine: FakeEngine, store: Store, path: str
) -> None:
    messages: list[dict[str, Any]] = []
    resident, sizes = {}, {}
    for turn in range(500):
        engine.default = Script([words(f"Answer number {turn}")])
        messages.append({"role": "user", "content": f"Question number {turn}"})
        await child.chat(messages, path)
        messages.append({"role": "assistant", "content": f"Answer number {turn}"})
        if turn in (0, 249, 499):
            resident[turn], sizes[turn] = child.rss(), await child.stored()
    calls = await recorded(store)
    assert len({call["trajectory_id"] for call in calls}) == 1
    assert [call["parent_call_id"] for call in calls] == [None] + [call["call_id"] for call in calls[:-1]]
    assert calls[-1]["prompt_token_ids"] == prompt_ids(messages[:-1])
    assert calls[-1]["choices"][0]["token_ids"] == [*ids_of("Answer number 499"), END]
    view = await load_trajectory(store, calls[0]["trajectory_id"])
    assert list(view.messages) == messages
    # Prompts add up to 500 × 250 turns; a store that kept them whole would grow by three times as much in the second
    # half as in the first.
    assert sizes[499] - sizes[249] < 1.5 * (sizes[249] - sizes[0])
    histories = sum(len(json.dumps(messages[: 2 * turn])) for turn in range(250, 500))
    assert resident[499] - resident[249] < histories / 2  # half of the second half's histories
