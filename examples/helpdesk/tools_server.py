"""The helpdesk's two tools, served over MCP (streamable HTTP) on loopback from the orders' SQLite file.

    python -m examples.helpdesk.tools_server --database orders.sqlite --port 8100

Owns the tools' names, descriptions and look-ups. The server is stateless, and answers in plain JSON instead of an event
stream, which is faster. It opens the file read-only.
"""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path

import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations
from starlette.applications import Starlette

from examples.helpdesk.orders import Order
from examples.helpdesk.wording import found, tracked

# A closed connection ends an MCP client's session, and agents pause while a step trains. So idle connections stay open
# for longer than any pause.
KEEP_ALIVE_S = 3600
_SELECT = "SELECT order_id, status, tracking, day FROM orders WHERE {column} = ?"


def tools_app(database: Path) -> Starlette:
    """Return the ASGI application; tools are at ``/mcp``.

    Raises:
        FileNotFoundError: the database does not exist.
    """
    if not database.is_file():
        raise FileNotFoundError(f"orders database {database} does not exist: write it with examples.helpdesk.scenarios")
    server = MCPServer("helpdesk", log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True)

    def look_up(column: str, value: str) -> Order | None:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            row = connection.execute(_SELECT.format(column=column), (value,)).fetchone()
        return Order(*row) if row else None

    # async, so that the SDK runs no thread for a look-up of microseconds
    @server.tool(structured_output=False, annotations=reads)
    async def find_order(order_id: str) -> str:
        """Status and tracking number of an order."""
        return found(look_up("order_id", order_id))

    @server.tool(structured_output=False, annotations=reads)
    async def track_parcel(tracking: str) -> str:
        """The day on which a parcel arrives."""
        return tracked(look_up("tracking", tracking))

    return server.streamable_http_app(json_response=True, stateless_http=True)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="The helpdesk's tools over MCP.")
    parser.add_argument("--database", type=Path, required=True, help="the orders' SQLite file")
    parser.add_argument("--port", type=int, default=8100, help="loopback port (8100)")
    given = parser.parse_args()
    app = tools_app(given.database)
    uvicorn.run(
        app, host="127.0.0.1", port=given.port, timeout_keep_alive=KEEP_ALIVE_S, log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main()
