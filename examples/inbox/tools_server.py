"""The mailbox's two tools, served over MCP (streamable HTTP) on loopback from the mails' SQLite file.

    python -m examples.inbox.tools_server --database mails.sqlite --port 8100

Owns the tools' names and descriptions. The server is stateless, and answers in plain JSON. It opens the file read-only,
and marks both tools read-only (`readOnlyHint`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations
from starlette.applications import Starlette

from examples.helpdesk.tools_server import KEEP_ALIVE_S
from examples.inbox.mails import MailDatabase
from examples.inbox.wording import hits, shown


def tools_app(database: Path) -> Starlette:
    """Return the ASGI application; tools are at ``/mcp``. Raises FileNotFoundError if the database does not exist."""
    mails = MailDatabase(database)
    server = MCPServer("inbox", log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True)

    # async, so that the SDK runs no thread for a look-up of microseconds
    @server.tool(structured_output=False, annotations=reads)
    async def search(query: str) -> str:
        """The newest mails that have every word: id, sender and subject of each."""
        return hits(mails.search(query))

    @server.tool(structured_output=False, annotations=reads)
    async def read(mail_id: str) -> str:
        """One mail: who sent it, when, and what it says."""
        return shown(mails.read(mail_id))

    return server.streamable_http_app(json_response=True, stateless_http=True)


def call_tool(mails: MailDatabase, name: str, arguments: Any) -> str:
    """Return a tool's result without a server, or an error text for an invalid call."""
    try:
        if name == "search":
            return hits(mails.search(str(arguments["query"])))
        if name == "read":
            return shown(mails.read(str(arguments["mail_id"])))
    except (LookupError, TypeError):
        return json.dumps({"error": f"not what {name} takes"})
    return json.dumps({"error": f"no such tool: {name}"})


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="The mailbox's tools over MCP.")
    parser.add_argument("--database", type=Path, required=True, help="the mails' SQLite file")
    parser.add_argument("--port", type=int, default=8100, help="loopback port (8100)")
    given = parser.parse_args()
    app = tools_app(given.database)
    uvicorn.run(
        app, host="127.0.0.1", port=given.port, timeout_keep_alive=KEEP_ALIVE_S, log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main()
