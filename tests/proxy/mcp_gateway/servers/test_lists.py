"""A server's list ends, whatever cursors the server gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from proxy.mcp_gateway.names import NameFilter
from proxy.mcp_gateway.servers.handshake import AgreedProtocol
from proxy.mcp_gateway.servers.lists import MOST_PAGES, ServerLists


class Pages:
    """A link to a server with pages. `following`: the next cursor, by that of a page."""

    name = "s"

    def __init__(self, following: Callable[[str | None], Any]) -> None:
        self.following = following
        self.asked: list[str | None] = []

    async def ready(self) -> AgreedProtocol:
        return AgreedProtocol("2025-11-25", False, {"tools": {}}, None)

    async def request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        cursor = (params or {}).get("cursor")
        self.asked.append(cursor)
        tool = {"name": f"tool-{cursor}", "inputSchema": {"type": "object"}}
        following = self.following(cursor)
        return {"tools": [tool]} | ({"nextCursor": following} if following is not None else {})


@pytest.mark.parametrize(
    ("following", "asked"),
    [
        ({None: "a", "a": "b"}, [None, "a", "b"]),
        ({None: "a", "a": "a"}, [None, "a"]),
        ({None: "a", "a": "b", "b": "a"}, [None, "a", "b"]),
        ({None: "a", "a": "b", "b": "c", "c": "b"}, [None, "a", "b", "c"]),
        ({None: "", "": ""}, [None, ""]),
        ({None: 7}, [None]),
    ],
)
async def test_a_cursor_that_repeats_ends_a_listing(following: dict[str | None, Any], asked: list[str | None]) -> None:
    pages = Pages(following.get)
    listing = await ServerLists(cast(Any, pages), NameFilter(["*"], [])).listing("tools")
    assert pages.asked == asked
    assert list(listing.items) == [f"tool-{cursor}" for cursor in asked]


async def test_a_listing_without_end_is_cut() -> None:
    pages = Pages(lambda cursor: f"{cursor}x")
    listing = await ServerLists(cast(Any, pages), NameFilter(["*"], [])).listing("tools")
    assert len(listing.items) == len(pages.asked) == MOST_PAGES
