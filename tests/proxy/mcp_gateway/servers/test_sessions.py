"""What a server keeps for one caller is not another's, and is there for as long as the caller is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from proxy.settings.mcp import McpServerSettings
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import PROJECT, WITHOUT_PAGES, Proxy, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
MODERN = "2026-07-28"
FOR_EVER_S = 1000.0  # longer than a test may take


@contextlib.asynccontextmanager
async def gateway(store: Store, server: McpServerSettings, idle_s: float = FOR_EVER_S) -> AsyncIterator[Proxy]:
    async with (
        FakeEngine() as engine,
        serving(
            store, engine, settings=WITHOUT_PAGES, mcp={"s": server}, recording=RecorderSettings(idle_timeout_s=idle_s)
        ) as proxy,
    ):
        yield proxy


@contextlib.asynccontextmanager
async def before(store: Store, everything: Everything, *, era: str = "handshake", **more: Any) -> AsyncIterator[Proxy]:
    """A gateway before a server that has sessions."""
    idle_s = more.pop("idle_s", FOR_EVER_S)
    async with served(everything, era=era) as url, gateway(store, McpServerSettings(url=url, **more), idle_s) as proxy:
        yield proxy


def caller(proxy: Proxy, mode: str, address: str = "", **more: Any) -> Client:
    return Client(f"{proxy.url}{address}/mcp", mode=mode, **more)


async def note(client: Client, text: str) -> dict[str, Any]:
    """Leave a note, and see all that were left in this session."""
    result = await client.call_tool("s__note", {"text": text})
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def notes(client: Client, text: str) -> list[str]:
    kept: list[str] = (await note(client, text))["notes"]
    return kept


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_two_runs_do_not_meet_at_a_server(store: Store, mode: str) -> None:
    async with (
        before(store, Everything()) as proxy,
        caller(proxy, mode, "/t/one") as one,
        caller(proxy, mode, "/t/two") as two,
    ):
        assert await notes(one, "a") == ["a"]
        assert await notes(two, "b") == ["b"]
        assert await notes(one, "c") == ["a", "c"]


async def test_callers_of_equal_address_meet_in_the_current_era_alone(store: Store) -> None:
    async with before(store, Everything()) as proxy:
        for mode, together in ((MODERN, ["a", "b"]), ("legacy", ["b"])):
            async with caller(proxy, mode, f"/g/x/t/{mode}") as one, caller(proxy, mode, f"/g/x/t/{mode}") as two:
                await note(one, "a")
                assert await notes(two, "b") == together


async def test_without_an_address_the_key_says_who_a_caller_is(store: Store) -> None:
    minted = [(await keys.create_key(Project(store, PROJECT), name, [Scope.INFER]))[1] for name in ("one", "two")]
    async with before(store, Everything()) as proxy:
        for key in minted:
            async with httpx2.AsyncClient(headers={"authorization": f"Bearer {key}"}) as http:
                for at in range(2):  # two clients of one key
                    async with Client(streamable_http_client(f"{proxy.url}/mcp", http_client=http), mode=MODERN) as c:
                        assert len(await notes(c, "a")) == at + 1


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_many_calls_at_once_open_one_session(store: Store, mode: str) -> None:
    everything = Everything()
    async with before(store, everything, max_sessions=1) as proxy, caller(proxy, mode, "/t/one") as client:
        await asyncio.gather(*(note(client, str(n)) for n in range(8)))
        assert len(await notes(client, "last")) == 9
        assert len(everything.sessions) == 2  # the other one is Hone's own, for the lists
        assert await proxy.metric("hone_mcp_sessions") == 1


async def test_a_session_ends_with_its_caller(store: Store) -> None:
    everything = Everything()
    async with before(store, everything) as proxy:
        async with caller(proxy, "legacy") as client:
            await note(client, "a")
            assert len(everything.sessions) == 2
        await until(lambda: len(everything.sessions) == 1)
        assert await proxy.metric("hone_mcp_sessions") == 0


async def test_the_session_of_a_caller_without_one_ends_when_nothing_is_asked_for_long(store: Store) -> None:
    everything = Everything()
    async with (
        before(store, everything, idle_s=0.2) as proxy,
        caller(proxy, MODERN, "/t/run") as client,
    ):
        working = asyncio.ensure_future(client.call_tool("s__slow"))
        await everything.entered.wait()
        async with caller(proxy, MODERN, "/t/other") as other:
            await note(other, "a")
        await until(lambda: len(everything.sessions) == 2)  # the other's has ended, and not the one that works
        everything.gate.set()
        await working
        await until(lambda: len(everything.sessions) == 1)
        assert await notes(client, "b") == ["b"]


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_one_caller_too_many_is_told_so(store: Store, mode: str) -> None:
    async with before(store, Everything(), max_sessions=1) as proxy:
        async with caller(proxy, "legacy") as first, caller(proxy, mode, "/t/more") as second:
            await note(first, "a")
            told = await second.call_tool("s__note", {"text": "b"})
            assert told.is_error
            assert "the limit of `max_sessions` in [mcp.s]" in str(told.content)
            assert await notes(first, "c") == ["a", "c"]
            assert (await second.list_tools()).tools  # the lists need no session
        async with caller(proxy, mode, "/t/more") as second:
            await until(lambda: _has_room(second))


async def _has_room(client: Client) -> bool:
    return not (await client.call_tool("s__note", {"text": "x"})).is_error


async def test_a_run_that_has_ended_makes_room(store: Store) -> None:
    async with (
        before(store, Everything(), max_sessions=1) as proxy,
        caller(proxy, MODERN, "/t/one") as one,
        caller(proxy, MODERN, "/t/two") as two,
    ):
        await note(one, "a")
        assert (await two.call_tool("s__note", {"text": "b"})).is_error
        (await proxy.http.post("/t/one/hone/v1/done", json={})).raise_for_status()
        assert await notes(two, "b") == ["b"]


async def test_a_list_is_as_the_callers_own_session_has_it(store: Store) -> None:
    everything = Everything()
    changed = asyncio.Event()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    async with (
        before(store, everything) as proxy,
        caller(proxy, "legacy", message_handler=on_message) as one,
        caller(proxy, "legacy") as two,
    ):
        await note(two, "a")
        await one.call_tool("s__unlock")
        await changed.wait()
        assert "s__unlocked" in {tool.name for tool in (await one.list_tools(cache_mode="bypass")).tools}
        assert "s__unlocked" not in {tool.name for tool in (await two.list_tools(cache_mode="bypass")).tools}


async def test_a_resource_of_a_session_changes_for_its_caller_alone(store: Store) -> None:
    heard: dict[str, list[str]] = {"one": [], "two": []}

    def listener(name: str) -> Any:
        async def on_message(message: Any) -> None:
            if isinstance(message, types.ResourceUpdatedNotification):
                heard[name].append(str(message.params.uri))

        return on_message

    uri = "test://watched-resource"
    async with (
        before(store, Everything()) as proxy,
        caller(proxy, "legacy", message_handler=listener("one")) as one,
        caller(proxy, "legacy", message_handler=listener("two")) as two,
    ):
        for client in (one, two):
            request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            await client.session.send_request(request, types.EmptyResult)
        await two.call_tool("s__touch", {"uri": uri})
        await one.call_tool("s__touch", {"uri": uri})
        await until(lambda: heard["one"] == [uri])
        await until(lambda: heard["two"] == [uri])


async def set_level(client: Client, level: types.LoggingLevel) -> None:
    request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
    await client.session.send_request(request, types.EmptyResult)


async def test_a_session_is_told_what_its_caller_wants_logged(store: Store) -> None:
    everything = Everything()
    async with before(store, everything) as proxy, caller(proxy, "legacy") as one, caller(proxy, "legacy") as two:
        await two.call_tool("s__note", {"text": "a"})
        await set_level(one, "error")  # it has no session there yet
        assert everything.levels == []
        await one.call_tool("s__note", {"text": "a"})
        assert everything.levels == ["error"]
        await set_level(one, "info")
        assert everything.levels == ["error", "info"]


async def rooted(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada")])


async def _is_rooted(client: Client) -> bool:
    return "file:///home/ada" in str((await note(client, "b"))["roots"])


async def test_a_server_may_turn_to_a_caller_that_asks_nothing_now(store: Store) -> None:
    everything, logged = Everything(), list[Any]()

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async with (
        before(store, everything) as proxy,
        caller(proxy, "legacy", list_roots_callback=rooted, logging_callback=on_log) as one,
        caller(proxy, "legacy", list_roots_callback=rooted) as two,
    ):
        for client in (one, two):
            await note(client, "a")
        await one.session.send_notification(types.RootsListChangedNotification())
        await until(lambda: logged == ["moved"])
        await until(lambda: _is_rooted(one))
        assert not await _is_rooted(two)
        assert everything.moved == 1


# --- commands: a process each


def command(**more: Any) -> McpServerSettings:
    program = ["-W", "ignore", "-m", "tests.proxy.mcp_everything"]
    return McpServerSettings(command=sys.executable, args=program, cwd=ROOT, connect_timeout_s=60, **more)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.long), MODERN])
async def test_each_caller_has_a_process_of_its_own(store: Store, mode: str) -> None:
    async with gateway(store, command()) as proxy:
        async with caller(proxy, mode, "/t/one") as one, caller(proxy, mode, "/t/two") as two:
            first, second = await asyncio.gather(note(one, "a"), note(two, "b"))
            assert (first["notes"], second["notes"]) == (["a"], ["b"])
            assert first["pid"] != second["pid"]
            os.kill(first["pid"], 9)
            await until(lambda: is_gone(first["pid"]))
            assert await notes(two, "c") == ["b", "c"]
            anew = await until(lambda: _noted(one, "d"))
            assert anew["notes"] == ["d"]
        if mode == "legacy":
            await until(lambda: is_gone(second["pid"]) and is_gone(anew["pid"]))
    await until(lambda: is_gone(second["pid"]) and is_gone(anew["pid"]))


async def _noted(client: Client, text: str) -> dict[str, Any] | None:
    result = await client.call_tool("s__note", {"text": text})
    return None if result.is_error else result.structured_content


@pytest.mark.slow
async def test_a_shared_process_is_one_for_all(store: Store) -> None:
    async with (
        gateway(store, command(per="shared")) as proxy,
        caller(proxy, "legacy") as one,
        caller(proxy, MODERN, "/t/two") as two,
    ):
        first, second = await note(one, "a"), await note(two, "b")
        assert second["notes"] == ["a", "b"]
        assert first["pid"] == second["pid"]


@pytest.mark.slow
async def test_a_server_may_ask_a_caller_before_it_works_for_it(store: Store) -> None:
    async with gateway(store, command()) as proxy, caller(proxy, "legacy", list_roots_callback=rooted) as client:
        await note(client, "a")
        await until(lambda: _is_rooted(client))
