"""The tools' server, for real: MCP over HTTP on loopback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent

from examples.helpdesk.orders import read_database
from examples.helpdesk.scenarios import DemoFiles
from examples.helpdesk.tools_server import tools_app


def _said(result: CallToolResult) -> object:
    (part,) = result.content
    assert isinstance(part, TextContent)
    return json.loads(part.text)


async def test_it_lists_two_tools_with_one_argument_each(mcp_url: str) -> None:
    async with Client(mcp_url) as client:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
    assert {name: list(schema["properties"]) for name, schema in tools.items()} == {
        "find_order": ["order_id"],
        "track_parcel": ["tracking"],
    }


async def test_an_order_is_found_and_its_parcel_tracked(mcp_url: str, files: DemoFiles) -> None:
    order = read_database(files.database).heldout[0]
    async with Client(mcp_url) as client:
        found = _said(await client.call_tool("find_order", {"order_id": order.order_id}))
        tracked = _said(await client.call_tool("track_parcel", {"tracking": order.tracking}))
    assert found == {"status": order.status, "tracking": order.tracking}
    assert tracked == {"arrives": order.day}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("find_order", {"order_id": "0001"}), ("track_parcel", {"tracking": "' OR 1=1 --"})],
)
async def test_what_is_not_there_is_said_to_be_not_there(mcp_url: str, tool: str, arguments: dict[str, str]) -> None:
    async with Client(mcp_url) as client:
        said = _said(await client.call_tool(tool, arguments))
    assert isinstance(said, dict)
    assert said["error"].startswith("no such")


async def test_a_missing_argument_is_an_error_result(mcp_url: str) -> None:
    async with Client(mcp_url) as client:
        assert (await client.call_tool("find_order", {"id": "1"})).is_error


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.sqlite does not exist"):
        tools_app(tmp_path / "nowhere.sqlite")
