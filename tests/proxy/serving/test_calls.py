"""A call through the whole proxy: what the client gets and when, what is recorded, and what ends it early."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine, Script, prompt_ids, tool_call, words
from tests.proxy.running import BASE, WITHOUT_PAGES, Proxy, say, serving
from tests.proxy.until import until

ANSWER = words("It arrives on Monday")  # what a script says that is told nothing else
FIND = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}


# --- what is served and recorded


async def test_a_plain_call_is_served_and_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    answer = await proxy.chat("Where is 4821?", path="/g/orders/t/first", temperature=0.7)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "It arrives on Monday"
    assert engine.requests[0]["model"] == BASE
    call = await proxy.call()
    assert (call["status"], call["attribution"]) == ("complete", {"source": "path", "confidence": "stated"})
    assert call["prompt_token_ids"] == prompt_ids(say("Where is 4821?")["messages"])
    assert call["choices"][0]["token_ids"] == ANSWER.ids()
    assert call["choices"][0]["logprobs"] == pytest.approx(ANSWER.logprobs())
    assert call["choices"][0]["trainable"] is True
    assert (call["sampling"]["temperature"], call["version"]) == (0.7, "helpdesk@0")
    assert (call["trajectory_external_id"], call["purpose"], call["turn_kind"]) == ("first", "train", "main")
    assert answer.headers["x-hone-call"] == call["call_id"]
    assert answer.headers["x-hone-trajectory"] == call["trajectory_id"]
    assert answer.headers["x-hone-version"] == "helpdesk@0"


async def test_a_streamed_call_is_served_and_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    events = await proxy.events("Where is 4821?", path="/t/one")
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == "It arrives on Monday"
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    call = await proxy.call()
    assert (call["status"], call["choices"][0]["token_ids"]) == ("complete", ANSWER.ids())
    assert call["timings"]["first_token_s"] is not None


async def test_nothing_of_the_engine_shows(proxy: Proxy, engine: FakeEngine) -> None:
    for answer in (await proxy.chat(), await proxy.chat(stream=True)):
        assert BASE not in answer.text
        assert "server" not in answer.headers


async def test_bytes_may_come_in_any_pieces(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([words("Größe 🚚 über")], cut_bytes=7)
    events = await proxy.events()
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == "Größe 🚚 über"


async def test_several_choices_are_all_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([words("Yes"), words("No it is not"), words("Perhaps")])
    events = await proxy.events(n=3)
    assert [event["choices"][0]["index"] for event in events if event["choices"][0]["finish_reason"]] == [0, 2, 1]
    assert (await proxy.chat(n=3)).json()["choices"][2]["message"]["content"] == "Perhaps"
    for call in await proxy.calls():
        assert [len(choice["token_ids"]) for choice in call["choices"]] == [2, 5, 2]


async def test_tool_calls_and_structured_outputs_pass(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([tool_call("find_order", {"order_id": 4821}, "chatcmpl-tool-abcdef")])
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    events = await proxy.events(tools=[FIND], response_format=form)
    calls = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert "".join(call["function"].get("arguments", "") for call in calls) == '{"order_id": 4821}'
    assert len(events) == 4  # role, two parts of the call, the finish: what carried tokens alone is not shown
    assert (engine.requests[0]["tools"], engine.requests[0]["response_format"]) == ([FIND], form)
    call = await proxy.call()
    assert (call["request"]["tools"], call["choices"][0]["trainable"]) == ([FIND], False)
    assert len(call["choices"][0]["token_ids"]) == len(call["choices"][0]["logprobs"]) > 0


async def test_the_same_conversation_twice_is_recorded_twice(proxy: Proxy) -> None:
    await proxy.chat("Where is 4821?", path="/g/a/t/1")
    await proxy.chat("Where is 4821?", path="/g/a/t/2")
    await proxy.chat("Where is 4821?", path="/g/b/t/1")
    calls = await proxy.calls()
    assert len({call["trajectory_id"] for call in calls}) == 3
    assert len({call["group_id"] for call in calls}) == 2


async def test_unknown_fields_reach_the_engine_and_client_headers_do_not(proxy: Proxy, engine: FakeEngine) -> None:
    headers = {"x-request-id": "mine", "x-data-parallel-rank": "3", "cookie": "a=b", "authorization": "Bearer sk-none"}
    await proxy.chat(user="u", metadata={"a": "b"}, some_new_field=[1], headers=headers)
    assert engine.requests[0].items() >= {"user": "u", "metadata": {"a": "b"}, "some_new_field": [1]}.items()
    head = engine.heads[0].lower()
    assert not [name for name in ("x-request-id", "x-data-parallel-rank", "cookie", "authorization") if name in head]


async def test_a_version_can_be_asked_for_by_name(proxy: Proxy) -> None:
    answer = await proxy.chat(model="helpdesk@0")
    assert (answer.json()["model"], answer.headers["x-hone-version"]) == ("helpdesk@0", "helpdesk@0")
    assert (await proxy.call())["model"] == "helpdesk@0"


# --- the end of an answer waits for its turn


class Held:
    """Keeps the lock that every turn needs, so that none can be committed: SQLite's one, PostgreSQL's of `calls`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(self) -> None:
        self._writing = self._store.write()
        conn = await self._writing.__aenter__()
        if not self._store.is_sqlite:
            await conn.exec_driver_sql("LOCK TABLE calls IN EXCLUSIVE MODE")

    async def release(self) -> None:
        await self._writing.__aexit__(None, None, None)

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        await self.release()


async def test_the_last_event_waits_for_the_commit_and_the_others_do_not(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES, recording=RecorderSettings(commit_timeout_s=30)) as proxy:
        await proxy.chat(path="/t/warm")  # so that placing the next call writes nothing
        held = Held(store)
        await held.take()
        async with proxy.http.stream("POST", "/t/warm/v1/chat/completions", json=say(stream=True)) as answer:
            seen: list[str] = []
            reading = asyncio.ensure_future(_read(answer, seen))
            await engine_done(proxy)
            assert any('" Monday"' in line for line in seen)
            assert not any('"finish_reason":"stop"' in line for line in seen)
            assert len(await proxy.calls()) == 1
            await held.release()
            await reading
        assert any('"finish_reason":"stop"' in line for line in seen)
        assert len(await proxy.calls()) == 2


async def engine_done(proxy: Proxy) -> None:
    """Wait until the engine's part of every call is over, and what was sent to clients by then has arrived."""
    async with asyncio.timeout(10):
        while any(proxy.versions.holding().values()):
            await asyncio.sleep(0)
    for _ in range(3):  # a round trip brings whatever was sent before
        await proxy.http.get("/healthz")


async def _read(answer: httpx.Response, seen: list[str]) -> None:
    async for line in answer.aiter_lines():
        seen.append(line)


async def test_a_plain_answer_waits_for_the_commit(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES, recording=RecorderSettings(commit_timeout_s=30)) as proxy:
        await proxy.chat(path="/t/warm")
        held = Held(store)
        await held.take()
        asking = asyncio.ensure_future(proxy.chat(path="/t/warm"))
        await engine.until(lambda e: len(e.requests) == 2)
        await engine_done(proxy)
        assert not asking.done()
        await held.release()
        assert (await asking).status_code == 200


async def test_a_store_that_can_not_commit_in_time_is_not_waited_for(store: Store, engine: FakeEngine) -> None:
    recording = RecorderSettings(commit_timeout_s=1.0)
    async with serving(store, engine, settings=WITHOUT_PAGES, recording=recording) as proxy:
        await proxy.chat(path="/t/warm")
        async with Held(store):
            assert (await proxy.chat(path="/t/warm")).status_code == 200
            events = await proxy.events(path="/t/warm")
            assert events[-1]["choices"][0]["finish_reason"] == "stop"
            assert await proxy.metric("hone_late_calls_total") == 2
        await until(lambda: _recorded(proxy, 3))
        assert await proxy.metric("hone_unrecorded_calls_total") == 0, "they were late, and are recorded"


async def _recorded(proxy: Proxy, count: int) -> bool:
    return len(await proxy.calls()) == count


@pytest.mark.sqlite_only("its file")
async def test_a_late_call_that_is_never_recorded_is_counted_when_that_is_known(
    store: Store, engine: FakeEngine
) -> None:
    file = Path(store.url.database or "")
    async with serving(
        store, engine, settings=WITHOUT_PAGES, recording=RecorderSettings(commit_timeout_s=0.1)
    ) as proxy:
        await proxy.chat(path="/t/warm")
        async with Held(store):
            assert (await proxy.chat(path="/t/warm")).status_code == 200
            assert await proxy.metric("hone_unrecorded_calls_total") == 0
            file.rename(file.with_name("elsewhere.db"))
        await until(lambda: _unrecorded(proxy))


async def _unrecorded(proxy: Proxy) -> bool:
    return await proxy.metric("hone_unrecorded_calls_total") == 1


async def test_a_call_that_can_not_be_recorded_is_refused_where_the_user_wants_that(
    store: Store, engine: FakeEngine
) -> None:
    recording = RecorderSettings(commit_timeout_s=0.1, on_failure="refuse")
    async with serving(store, engine, settings=WITHOUT_PAGES, recording=recording) as proxy:
        await proxy.chat(path="/t/warm")
        async with Held(store):
            refused = await proxy.chat(path="/t/warm")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unrecorded")
            assert refused.headers["retry-after"] == "1"
            streamed = (await proxy.chat(path="/t/warm", stream=True)).text
            assert '"finish_reason":"stop"' not in streamed
            assert '"code":"unrecorded"' in streamed
            new = await proxy.chat(path="/t/new")
            assert (new.status_code, new.json()["error"]["code"]) == (503, "unrecorded")


async def refuse_inserts(store: Store, *tables: str) -> None:
    """Let every later insert fail, for whatever reason."""
    says = "BEGIN SELECT RAISE(ABORT, 'refused'); END" if store.is_sqlite else "EXECUTE FUNCTION refuse()"
    async with store.write() as conn:
        if not store.is_sqlite:
            await conn.exec_driver_sql(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$"
            )
        for table in tables:
            await conn.exec_driver_sql(f"CREATE TRIGGER refuse_{table} BEFORE INSERT ON {table} {says}")


async def test_a_store_that_can_not_be_written_never_reaches_the_agent(
    store: Store, engine: FakeEngine, tmp_path: Path
) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        await refuse_inserts(store, "calls", "trajectories")
        for path in ("", "/t/named", "/g/a/t/b"):
            answer = await proxy.chat(path=path)
            assert (answer.status_code, answer.json()["choices"][0]["finish_reason"]) == (200, "stop")
            assert (await proxy.events(path=path))[-1]["choices"][0]["finish_reason"] == "stop"
        assert await proxy.metric("hone_unrecorded_calls_total") == 6
        assert await proxy.calls() == []


# --- clients that hang up


async def test_the_engine_is_told_when_a_plain_client_hangs_up(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script(gate=asyncio.Event())
    asking = asyncio.ensure_future(proxy.chat(path="/t/gone"))
    await engine.until(lambda e: len(e.requests) == 1)
    asking.cancel()
    await engine.until(lambda e: e.aborted == [0])
    call = await recorded(proxy)
    assert (call["status"], call["choices"]) == ("aborted", [])


async def test_the_engine_is_told_when_a_streaming_client_hangs_up(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([ANSWER], after_events=3, then="hang")
    async with proxy.http.stream("POST", "/t/gone/v1/chat/completions", json=say(stream=True)) as answer:
        lines = answer.aiter_lines()
        while "arrives" not in await anext(lines):
            pass
    await engine.until(lambda e: e.aborted == [0])
    call = await recorded(proxy)
    assert call["status"] == "aborted"
    assert call["choices"][0]["token_ids"] == ANSWER.ids()[:2]
    assert (call["choices"][0]["trainable"], call["choices"][0]["finish_reason"]) == (False, None)


async def test_a_call_that_the_engine_finished_is_complete_whoever_hung_up(proxy: Proxy) -> None:
    await proxy.chat(path="/t/warm")
    async with (
        Held(proxy.store),
        proxy.http.stream("POST", "/t/warm/v1/chat/completions", json=say(stream=True)) as answer,
    ):
        lines = answer.aiter_lines()
        while "Monday" not in await anext(lines):
            pass
    call = await recorded(proxy, count=2)
    assert (call["status"], call["choices"][0]["trainable"]) == ("complete", True)


async def recorded(proxy: Proxy, count: int = 1) -> dict[str, Any]:
    """The last call, when there are so many that have ended."""
    async with asyncio.timeout(10):
        while len(calls := [call for call in await proxy.calls() if call["status"] != "open"]) < count:
            await asyncio.sleep(0)
    return calls[-1]


# --- faults of our own


async def test_a_fault_of_our_own_ends_the_call_and_is_told(
    proxy: Proxy, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Any, data: bytes) -> bytes:
        raise RuntimeError("a bug")

    monkeypatch.setattr("proxy.dialects.chat.ChatAnswer.body", broken)
    answer = await proxy.chat()
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "a bug" in caplog.text
    assert (await proxy.call())["status"] == "errored"
