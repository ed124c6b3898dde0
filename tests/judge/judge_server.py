"""A small judge behind real HTTP that speaks OpenAI's protocol, and misbehaves as it is told.

`server.behave(…)` says how the next requests are answered, one behaviour each; the last one stays.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

DATA = re.compile(r"^<<<HONE-DATA ([0-9a-f]+)>>>\n(.*?)\n<<<END-HONE-DATA \1>>>$", re.DOTALL | re.MULTILINE)

Json = dict[str, Any]
Behaviour = Callable[[Json], Awaitable[web.StreamResponse]]


def documents(body: Json) -> list[Json]:
    """The fenced documents of the prompt in a request."""
    asked = next(m["content"] for m in body["messages"] if m["role"] == "user")
    ((_, data),) = DATA.findall(asked)
    return [json.loads(line) for line in data.splitlines()]


def last_text(document: Json) -> str:
    """The text of a trajectory's last message."""
    return str(document["messages"][-1]["content"])


def entries(body: Json, score: Callable[[Json], Any]) -> list[Json]:
    """One entry for each trajectory in a request."""
    return [{"id": d["id"], "explanation": f"said {last_text(d)[:20]}", "score": score(d)} for d in documents(body)[1:]]


def completion(content: str | None, finish_reason: str = "stop", refusal: str | None = None) -> web.Response:
    """An answer in OpenAI's form."""
    return web.json_response(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "judge-2026-11-01",
            "system_fingerprint": "fp_7",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": finish_reason,
                    "message": {"role": "assistant", "content": content, "refusal": refusal},
                }
            ],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "total_tokens": 120,
                "prompt_tokens_details": {"cached_tokens": 64},
            },
        }
    )


def by_worth(document: Json) -> float:
    """The number that the trajectory's last message ends with."""
    found = re.search(r"([\d.]+)\D*$", last_text(document))
    return float(found[1]) if found else 0.0


def verdicts(score: Callable[[Json], Any] = by_worth, change: Callable[[list[Json]], Any] = lambda e: e) -> Behaviour:
    """Score every trajectory; `change` may spoil the entries."""

    async def behave(body: Json) -> web.StreamResponse:
        return completion(json.dumps({"trajectories": change(entries(body, score))}))

    return behave


def says(text: str | None, finish_reason: str = "stop") -> Behaviour:
    """Always the same text."""

    async def behave(body: Json) -> web.StreamResponse:
        return completion(text, finish_reason)

    return behave


def declines(why: str) -> Behaviour:
    """A model that declines, in the field that OpenAI has for it."""

    async def behave(body: Json) -> web.StreamResponse:
        return completion(None, refusal=why)

    return behave


def fails(status: int, message: str = "overloaded", retry_after: str | None = None) -> Behaviour:
    """An error in OpenAI's form."""

    async def behave(body: Json) -> web.StreamResponse:
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        return web.json_response({"error": {"message": message, "type": "error"}}, status=status, headers=headers)

    return behave


def page(text: str) -> Behaviour:
    """A 200 that is no JSON."""

    async def behave(body: Json) -> web.StreamResponse:
        return web.Response(text=text, content_type="text/html")

    return behave


def without_formats(then: Behaviour) -> Behaviour:
    """A server that knows no structured output."""

    async def behave(body: Json) -> web.StreamResponse:
        if "response_format" in body:
            return await fails(400, "unknown field response_format")(body)
        return await then(body)

    return behave


class JudgeServer:
    """Counts and keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self.arrived = asyncio.Event()
        self.release = asyncio.Event()
        self._behaviours: list[Behaviour] = [verdicts()]

    def behave(self, *behaviours: Behaviour) -> None:
        """Answer the next requests so; the last behaviour stays."""
        self._behaviours = list(behaviours)

    async def hang(self, body: Json) -> web.StreamResponse:
        """Answer when released, which may be never."""
        await self.release.wait()
        return completion("late")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The route."""
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        self.arrived.set()
        behaviour = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
        return await behaviour(body)


@asynccontextmanager
async def serve() -> AsyncIterator[JudgeServer]:
    """A judge server on a free loopback port."""
    server = JudgeServer()
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        server.release.set()
        await runner.cleanup()
