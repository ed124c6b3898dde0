"""The stand-in engine, a process of its own: vLLM's routes and shapes, and an answer that nobody else gets.

Its tokens and logprobs follow from the text (`tests.proxy.fake_engine`), so a client that saw the text knows both.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from typing import Final

from aiohttp import web

from tests.proxy.fake_engine import completion_of, events_of, words
from tests.proxy.scripted_engine import ScriptedEngine

EVENT_S: Final = 0.01  # between two events of a stream: kills meet answers in the middle


async def serve(port: int) -> None:
    """Serve until killed."""
    numbers, mark = itertools.count(1), os.urandom(3).hex()

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        said = [words(f"Order {mark} {next(numbers)} arrives on Monday before noon")]
        if not body.get("stream"):
            await asyncio.sleep(len(said[0].steps) * EVENT_S)
            return web.json_response(completion_of(body, said))
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):  # the proxy was killed
            for event in events_of(body, said):
                await response.write(event)
                await asyncio.sleep(EVENT_S)
            await response.write_eof()
        return response

    engine = ScriptedEngine()
    engine.port = port
    engine.more = {"/v1/chat/completions": answer}
    await engine.start()
    await asyncio.Event().wait()


def run(port: int) -> None:
    """Serve until killed (the target of a process)."""
    asyncio.run(serve(port))
