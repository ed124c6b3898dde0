"""The demo's helpdesk with slow tools and a slow judge: what a campaign waits for outside a benchmark.

    python -m benchmarks.slow_helpdesk tools --database orders.sqlite --port 8100
    python -m benchmarks.slow_helpdesk judge --port 8200

A call of a tool takes 0.5 to 20 s with a long tail. The time depends on what it looks up, so some tasks are long
whenever they are attempted, as real ones are. The judge takes 5 s a group. Owns: these times. Refuses: what tools and
judge answer, which is the demo's.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from examples.helpdesk import scripted_judge
from examples.helpdesk.tools_server import KEEP_ALIVE_S, tools_app

SHORTEST_S, LONGEST_S = 0.5, 20.0
JUDGE_S: Final = 5.0


def tool_seconds(arguments: str) -> float:
    """How long a look-up takes: a bounded Pareto distribution with index 1, drawn by its arguments.

    The median is 0.98 s and the mean 1.9 s; one in twenty takes more than 6.9 s.
    """
    digest = hashlib.blake2b(arguments.encode(), digest_size=8).digest()
    drawn = int.from_bytes(digest) / 2**64
    return SHORTEST_S / (1 - drawn * (1 - SHORTEST_S / LONGEST_S))


def call_seconds(body: bytes) -> float:
    """How long a request to the tools takes; 0: it calls none."""
    try:
        request = json.loads(body)
    except ValueError:
        return 0.0
    if not isinstance(request, dict) or request.get("method") != "tools/call":
        return 0.0
    return tool_seconds(json.dumps(request.get("params", {}).get("arguments"), sort_keys=True))


class SlowCalls:
    """An ASGI application whose calls of tools take their time."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the application does, later."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        messages = [await receive()]
        while messages[-1].get("more_body"):
            messages.append(await receive())
        await asyncio.sleep(call_seconds(b"".join(message.get("body", b"") for message in messages)))

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        await self._app(scope, replay, send)


class SlowJudge(scripted_judge.Handler):
    """The scripted judge, as slow as a model."""

    def answered(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the chat completion that answers a request, after a pause."""
        time.sleep(JUDGE_S)
        return super().answered(request)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="The demo's tools or judge, slowed down.")
    parser.add_argument("serve", choices=("tools", "judge"))
    parser.add_argument("--database", type=Path, help="the orders' SQLite file")
    parser.add_argument("--port", type=int, required=True, help="loopback port")
    given = parser.parse_args()
    if given.serve == "judge":
        with scripted_judge.make_server(given.port, SlowJudge) as server:
            server.serve_forever()
        return
    app = SlowCalls(tools_app(given.database))
    keep_s = KEEP_ALIVE_S
    uvicorn.run(
        app, host="127.0.0.1", port=given.port, timeout_keep_alive=keep_s, log_level="warning", access_log=False
    )


if __name__ == "__main__":
    main()
