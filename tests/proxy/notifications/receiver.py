"""A receiver of notifications behind real HTTP, which answers as it is told, and what it received."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SECRET = "a secret of thirty-two characters"


@dataclass
class Receiver:
    """`answers`: the statuses of the next POSTs, of which the last one stays; `hangs`: none is answered."""

    url: str = ""
    answers: list[int] = field(default_factory=lambda: [200])
    hangs: bool = False
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The bodies, oldest first."""
        return [json.loads(body) for _, _, body in self.requests]

    async def take(self, request: web.Request) -> web.StreamResponse:
        """Note a request, and answer it."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.path_qs, headers, await request.read()))
        if self.hangs:
            await self.over.wait()
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        headers_of = {"location": "/elsewhere"} if 300 <= status < 400 else {}
        return web.Response(status=status, text="<no_service> & more", headers=headers_of)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver that runs until left."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}/services/T0/private-path"
    try:
        yield receiver
    finally:
        receiver.over.set()
        await runner.cleanup()
