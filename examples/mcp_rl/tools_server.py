"""A small MCP server (streamable HTTP on loopback): a warehouse's items. The example treats it as an unknown server.

    python -m examples.mcp_rl.tools_server --database warehouse.sqlite --port 8100

Owns: four tools and their descriptions. Three are marked read-only; `reserve` writes. The server is stateless, and
answers in plain JSON.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations
from starlette.applications import Starlette

from examples.mcp_rl import warehouse, wording

KEEP_ALIVE_S = 3600  # clients pause while a step trains, and a closed connection would end their session


def tools_app(database: Path) -> Starlette:
    """Return the ASGI application; tools are at ``/mcp``.

    Raises:
        FileNotFoundError: the database does not exist.
    """
    if not database.is_file():
        raise FileNotFoundError(f"there is no warehouse {database}: examples.mcp_rl.warehouse.write_database makes one")
    items = warehouse.read_items(database)
    by_name = {item.name: item for item in items}
    by_number = {item.number: item for item in items}
    server = MCPServer("warehouse", log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True)
    catalogue = f"The number and the shelf of an item, by its name. Items: {', '.join(sorted(by_name))}."

    # async, so that the SDK runs no thread for a look-up of microseconds
    @server.tool(structured_output=False, annotations=reads, description=catalogue)
    async def find_item(name: str) -> str:
        return wording.found(by_name.get(name))

    @server.tool(structured_output=False, annotations=reads)
    async def stock(item: str) -> str:
        """How many pieces of an item are left, by its number."""
        return wording.stocked(by_number.get(item))

    @server.tool(structured_output=False, annotations=reads)
    async def price(item: str) -> str:
        """What an item costs, in euros, by its number."""
        return wording.priced(by_number.get(item))

    @server.tool(structured_output=False)
    async def reserve(item: str, count: int) -> str:
        """Keep so many pieces of an item for the user, by its number."""
        warehouse.reserve(database, item, count)
        return f'{{"reserved": {count}}}'

    return server.streamable_http_app(json_response=True, stateless_http=True)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A warehouse's tools over MCP.")
    parser.add_argument("--database", type=Path, required=True, help="the warehouse's SQLite file")
    parser.add_argument("--port", type=int, default=8100, help="loopback port (8100)")
    given = parser.parse_args()
    uvicorn.run(
        tools_app(given.database),
        host="127.0.0.1",
        port=given.port,
        timeout_keep_alive=KEEP_ALIVE_S,
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
