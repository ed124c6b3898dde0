"""Changes at servers that tell of them in one era, in the other, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

from proxy.settings.mcp import McpServerSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import NO_TLS, WITHOUT_PAGES, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow

WATCHED = "test://watched-resource"
ACCEPTS = {"accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
FOR_EVER_S = 1000.0  # longer than a test may take: what waits for it fails


@contextlib.asynccontextmanager
async def gateway(store: Store, *servers: tuple[Everything, str], stop_timeout_s: float = 1) -> AsyncIterator[str]:
    """The address of a gateway before these servers, each with the eras that it speaks."""
    async with contextlib.AsyncExitStack() as stack:
        mcp = {}
        for everything, era in servers:
            url = await stack.enter_async_context(served(everything, era=era))
            mcp[everything.name] = McpServerSettings(url=url, connect_timeout_s=FOR_EVER_S)
        engine = await stack.enter_async_context(FakeEngine())
        proxy = await stack.enter_async_context(
            serving(store, engine, settings=WITHOUT_PAGES, mcp=mcp, stop_timeout_s=stop_timeout_s)
        )
        yield f"{proxy.url}/mcp"


async def subscribe(client: Client, uri: str) -> None:
    request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
    await client.session.send_request(request, types.EmptyResult)


async def test_a_server_that_tells_nobody_is_not_waited_for(store: Store) -> None:
    mute = Everything("mute", listens=False)
    async with gateway(store, (mute, "modern")) as url:
        async with Client(url, mode="legacy") as client:
            with pytest.raises(MCPError, match="'mute' does not notify of changes of test://watched-resource"):
                await subscribe(client, WATCHED)
        async with Client(url, mode="2026-07-28") as client:
            with pytest.raises(MCPError, match="'mute' does not notify of changes of test://watched-resource"):
                async with client.listen(resource_subscriptions=[WATCHED]):
                    pass


async def test_what_one_server_does_not_tell_leaves_the_rest_to_be_heard(store: Store) -> None:
    mute, well = Everything("mute", listens=False), Everything("well")
    async with gateway(store, (mute, "modern"), (well, "both")) as url, Client(url, mode="2026-07-28") as client:
        uris = ["test://mute/own", "test://well/own"]
        async with client.listen(tools_list_changed=True, resource_subscriptions=uris) as changes:
            await well.updated("test://well/own")
            await well.tools_changed()
            wanted = {ToolsListChanged(), ResourceUpdated("test://well/own")}
            async for change in changes:
                wanted.discard(change)
                if not wanted:
                    break


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_of_equal_uris_each_is_heard_by_its_own_name(store: Store, mode: str) -> None:
    one, two = Everything("one"), Everything("two")
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async with gateway(store, (one, "both"), (two, "both")) as url:
        client = Client(url, mode=mode, message_handler=on_message if mode == "legacy" else None)
        async with client:
            uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
            theirs = next(uri for uri in uris if uri.endswith(f"+{WATCHED}"))
            server = {"one": one, "two": two}[theirs.partition("+")[0]]
            if mode == "legacy":
                await subscribe(client, theirs)
                await server.updated(WATCHED)
                await until(lambda: heard == [theirs])
            else:
                async with client.listen(resource_subscriptions=[theirs]) as changes:
                    await server.updated(WATCHED)
                    async for change in changes:
                        assert change == ResourceUpdated(theirs)
                        break


async def test_a_stop_does_not_wait_for_those_who_listen(store: Store) -> None:
    """Were their streams waited for, the test would not end in its time."""
    async with contextlib.AsyncExitStack() as callers:
        async with gateway(store, (Everything("one"), "both"), stop_timeout_s=FOR_EVER_S) as url:
            old = await callers.enter_async_context(httpx.AsyncClient(timeout=FOR_EVER_S, verify=NO_TLS))
            opened = await old.post(url, json=HELLO, headers=ACCEPTS)
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            stream = await callers.enter_async_context(old.stream("GET", url, headers=ACCEPTS | session))
            assert stream.status_code == 200
            client = await callers.enter_async_context(Client(url, mode="2026-07-28"))
            heard = await callers.enter_async_context(client.listen(tools_list_changed=True))
        assert b"".join([chunk async for chunk in stream.aiter_bytes()]) == b"", "it ends in order"
        with pytest.raises(SubscriptionLost, match="re-listen"):
            await anext(aiter(heard))
