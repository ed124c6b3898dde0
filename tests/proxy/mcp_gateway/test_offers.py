"""What the gateway offers is what the servers behind it can, together, and nothing beside."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import mcp_types as types
import pytest
from mcp.client import Client

from proxy.settings.mcp import McpServerSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import WITHOUT_PAGES, serving

pytestmark = pytest.mark.slow

MODES = ["legacy", "auto"]
PROMPTS = ("prompts/list", "prompts/get")
RESOURCES = ("resources/list", "resources/templates/list", "resources/read")
TELLING = ("resources/subscribe", "resources/unsubscribe", "subscriptions/listen")


@contextlib.asynccontextmanager
async def gateway(store: Store, *servers: Everything, gone: bool = False) -> AsyncIterator[str]:
    """The address of a gateway before these servers, and before one that does not answer."""
    async with contextlib.AsyncExitStack() as stack:
        mcp = {e.name: McpServerSettings(url=await stack.enter_async_context(served(e))) for e in servers}
        if gone:
            mcp["gone"] = McpServerSettings(url="http://127.0.0.1:9/mcp")
        engine = await stack.enter_async_context(FakeEngine())
        yield (await stack.enter_async_context(serving(store, engine, settings=WITHOUT_PAGES, mcp=mcp))).url + "/mcp"


async def offered(url: str, mode: str) -> set[str]:
    """The names of what a caller is told that it may use."""
    async with Client(url, mode=mode) as client:
        told = client.server_capabilities
    assert told is not None
    names = {name for name, value in told.model_dump(exclude_none=True).items() if name != "extensions"}
    return names | ({"subscribe"} if told.resources is not None and told.resources.subscribe else set())


@pytest.mark.parametrize("mode", MODES)
async def test_what_a_server_lacks_is_not_offered(store: Store, mode: str) -> None:
    bare = Everything("bare", without=[*PROMPTS, *RESOURCES, *TELLING, "completion/complete", "logging/setLevel"])
    async with gateway(store, bare) as url:
        assert await offered(url, mode) == {"tools"}


@pytest.mark.parametrize("mode", MODES)
async def test_what_one_of_them_can_is_offered(store: Store, mode: str) -> None:
    prompts = Everything("prompts", without=[*RESOURCES, *TELLING, "logging/setLevel", "completion/complete"])
    resources = Everything("resources", without=[*PROMPTS, "tools/list", "tools/call", "logging/setLevel"])
    async with gateway(store, prompts, resources) as url:
        assert await offered(url, mode) == {"tools", "prompts", "resources", "completions", "subscribe"}


async def test_what_a_server_can_in_one_era_is_offered_in_that(store: Store) -> None:
    async with gateway(store, Everything("before", listens=False, asks_today=False)) as url:
        assert "subscribe" in await offered(url, "legacy")
        assert "subscribe" not in await offered(url, "auto")


@pytest.mark.parametrize("mode", MODES)
async def test_of_a_server_that_never_answered_everything_may_be_hoped_for(store: Store, mode: str) -> None:
    bare = Everything("bare", without=PROMPTS)
    async with gateway(store, bare, gone=True) as url:
        everything = {"tools", "prompts", "resources", "completions", "logging", "subscribe"}
        assert await offered(url, mode) == everything


@pytest.mark.parametrize("mode", MODES)
async def test_a_caller_that_comes_while_a_server_begins_is_told_what_it_can(store: Store, mode: str) -> None:
    slow = Everything("slow", without=PROMPTS)
    slow.answers.clear()
    async with gateway(store, slow) as url:
        asking = asyncio.ensure_future(offered(url, mode))
        await slow.asked.wait()
        slow.answers.set()
        assert "prompts" not in await asking


@pytest.mark.parametrize("mode", MODES)
async def test_a_server_that_completes_nothing_is_not_asked_to(store: Store, mode: str) -> None:
    well, mute = Everything("well"), Everything("mute", without=["completion/complete"])
    async with gateway(store, well, mute) as url, Client(url, mode=mode) as client:
        for server, values in (("well", ["paris", "park", "party"]), ("mute", [])):
            ref = types.PromptReference(type="ref/prompt", name=f"{server}__test_prompt_with_arguments")
            completed = await client.complete(ref, {"name": "arg1", "value": "par"})
            assert completed.completion.values == values
