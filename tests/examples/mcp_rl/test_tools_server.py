"""The committed MCP server, for real: what it lists, what it says, and which tool writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent

from examples.mcp_rl.tools_server import tools_app
from examples.mcp_rl.warehouse import reservations, warehouse
from tests.examples.mcp_rl.conftest import SEED


def _said(result: CallToolResult) -> object:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return json.loads(part.text)


async def test_three_tools_say_that_they_only_read_and_one_does_not(mcp_url: str) -> None:
    async with Client(mcp_url) as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    reads = {name for name, hints in tools.items() if hints is not None and hints.read_only_hint}
    assert list(tools) == ["find_item", "stock", "price", "reserve"]
    assert reads == {"find_item", "stock", "price"}


async def test_an_item_is_found_and_its_stock_and_price_are_told(mcp_url: str) -> None:
    item = warehouse(SEED)[5]
    async with Client(mcp_url) as client:
        found = _said(await client.call_tool("find_item", {"name": item.name}))
        stock = _said(await client.call_tool("stock", {"item": item.number}))
        price = _said(await client.call_tool("price", {"item": item.number}))
    assert (found, stock, price) == (
        {"item": item.number, "shelf": item.shelf}, {"left": item.left}, {"euros": item.euros},
    )  # fmt: skip


@pytest.mark.parametrize(("tool", "key"), [("find_item", "name"), ("stock", "item"), ("price", "item")])
async def test_what_is_not_there_is_said_to_be_not_there(mcp_url: str, tool: str, key: str) -> None:
    async with Client(mcp_url) as client:
        assert _said(await client.call_tool(tool, {key: "' OR 1=1 --"})) == {"error": "no such item"}


async def test_a_reservation_leaves_a_trace(mcp_url: str, database: Path) -> None:
    assert reservations(database) == 0
    async with Client(mcp_url) as client:
        await client.call_tool("reserve", {"item": "417", "count": 2})
    assert reservations(database) == 1


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.sqlite"):
        tools_app(tmp_path / "nowhere.sqlite")
