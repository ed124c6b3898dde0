"""Attempts of a campaign at the gateway: what is not marked read-only is neither offered to them nor called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from proxy.settings.mcp import McpServerSettings
from recorder.errors import StoreUnavailable
from recorder.maintenance.export import tool_lines
from recorder.queue import campaigns
from recorder.queue.campaigns import GroupBinding, NewScenario
from recorder.registry import keys, tool_permissions
from recorder.registry.keys import Scope
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import PROJECT, WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow  # two servers each

READS, WRITES = "desk__find_order", "desk__slow"
MODES = ["legacy", "auto"]


@asynccontextmanager
async def desk(store: Store) -> AsyncIterator[tuple[Proxy, Everything]]:
    everything = Everything("desk")
    everything.gate.set()
    async with (
        served(everything) as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"desk": McpServerSettings(url=url)}) as proxy,
    ):
        yield proxy, everything


async def begun(proxy: Proxy, *, allow_writes: bool = False) -> str:
    """A campaign with a group `g`."""
    settings = {"allow_writes": allow_writes}
    campaign = await campaigns.create_campaign(Project(proxy.store, PROJECT), proxy.alias.id, "mine", settings)
    await campaigns.add_scenarios(proxy.store, campaign.id, "train", [NewScenario("s", 1)])
    [scenario] = await campaigns.list_scenarios(proxy.store, campaign.id, "train")
    await campaigns.bind_groups(
        Project(proxy.store, PROJECT), campaign.id, proxy.alias.id, [GroupBinding("g", scenario.id, 2)]
    )
    return campaign.id


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}


def result_text(result: types.CallToolResult) -> str:
    content = result.content[0]
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.mark.parametrize("mode", MODES)
async def test_an_attempt_is_offered_what_only_reads_and_everybody_else_all(store: Store, mode: str) -> None:
    async with desk(store) as (proxy, everything):
        campaign = await begun(proxy)
        async with Client(f"{proxy.url}/g/g/t/0/mcp", mode=mode) as attempt, Client(f"{proxy.url}/mcp") as live:
            offered = await names(attempt)
            assert READS in offered
            assert WRITES not in offered
            assert WRITES in await names(live)
            assert result_text(await attempt.call_tool(READS, {"order_id": "1"})) == "order 1 is on its way"
            refused = await attempt.call_tool(WRITES, {})
        assert refused.is_error
        assert result_text(refused).startswith("write_not_allowed: desk__slow is not marked read-only")
        assert [sent["name"] for sent in everything.seen] == ["find_order"]
        assert WRITES in await tool_permissions.list_withheld_tools(proxy.store, campaign)
        assert READS not in await tool_permissions.list_withheld_tools(proxy.store, campaign)
        [line] = [line async for line in tool_lines(Project(proxy.store, PROJECT)) if line["name"] == WRITES]
        assert line["status"] == "errored"


@pytest.mark.parametrize("made_up", [f"{READS} ", f"{READS}s", f"{WRITES}\u200b"])
async def test_a_name_that_a_model_made_up_is_refused_and_is_no_tool_that_was_left_out(
    store: Store, made_up: str
) -> None:
    async with desk(store) as (proxy, everything):
        campaign = await begun(proxy)
        async with Client(f"{proxy.url}/g/g/t/0/mcp") as attempt:
            refused = await attempt.call_tool(made_up, {})
        assert refused.is_error
        assert result_text(refused).startswith(f"Unknown tool: {made_up}")
        assert everything.seen == []
        assert made_up not in await tool_permissions.list_withheld_tools(proxy.store, campaign)
        assert await tool_permissions.count_refused_calls(proxy.store, campaign) == 0


async def test_a_campaign_that_allows_writes_has_all_tools(store: Store) -> None:
    async with desk(store) as (proxy, everything):
        campaign = await begun(proxy, allow_writes=True)
        async with Client(f"{proxy.url}/g/g/t/0/mcp") as attempt:
            assert WRITES in await names(attempt)
            await attempt.call_tool(WRITES, {})
        assert [sent["name"] for sent in everything.seen] == ["slow"]
        assert await tool_permissions.list_withheld_tools(proxy.store, campaign) == []


async def test_a_campaigns_key_is_known_without_its_address(store: Store) -> None:
    await keys.create_key(Project(store, PROJECT), "owner", [Scope.ADMIN])  # the proxy has keys
    async with desk(store) as (proxy, everything):
        campaign = await begun(proxy)
        _, secret = await keys.create_key(Project(proxy.store, PROJECT), "attempts", [Scope.INFER], family=campaign)
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {secret}"}) as http,
            Client(streamable_http_client(f"{proxy.url}/mcp", http_client=http)) as attempt,
        ):
            assert WRITES not in await names(attempt)
            assert (await attempt.call_tool(WRITES, {})).is_error
        assert everything.seen == []


async def test_while_the_store_cannot_say_who_named_a_group_may_not_write_and_others_may(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> str | None:
        raise StoreUnavailable("it is away")

    async with desk(store) as (proxy, everything):
        monkeypatch.setattr(tool_permissions, "find_barred_campaign", away)
        async with Client(f"{proxy.url}/g/any/t/0/mcp") as attempt, Client(f"{proxy.url}/t/live/mcp") as live:
            assert (await attempt.call_tool(WRITES, {})).is_error
            assert not (await live.call_tool(WRITES, {})).is_error
        assert len(everything.seen) == 1
