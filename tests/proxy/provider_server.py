"""A provider behind real HTTP that speaks OpenAI's protocol or Anthropic's, and misbehaves as it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

KEY = "sk-provider-key-4821"
MODEL = "gpt-4o-2024-08-06"  # what the provider calls what it ran

Json = dict[str, Any]

CALL = {"id": "call_provider123", "type": "function", "function": {"name": "find_order", "arguments": '{"id": 1}'}}


class ProviderServer:
    """`mode` says how the next requests are answered: ok, tool, hang, cut, end, fault, or a status."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.arrived = asyncio.Event()
        self.given_up = asyncio.Event()
        self.url = ""

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/chat/completions`."""
        body = await self._note(request)
        if self.mode.isdecimal():
            fault = {"message": f"no, not with {KEY}", "type": "its_type", "param": "temperature", "code": "its_code"}
            headers = {"retry-after": "7"}
            return web.json_response({"error": fault}, status=int(self.mode), headers=headers)
        if body.get("stream"):
            return await self._events(request, _chunks(body, self.mode))
        await self._maybe_hang()
        return web.json_response(_completion(body, self.mode))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/messages`, as Anthropic speaks it."""
        body = await self._note(request)
        if body.get("stream"):
            return await self._events(request, _anthropic_events())
        said = {"type": "message", "id": "msg_1", "role": "assistant", "model": "claude", "stop_reason": "end_turn"}
        usage = {"input_tokens": 9, "output_tokens": 4}
        return web.json_response(said | {"content": [{"type": "text", "text": "It arrives"}], "usage": usage})

    async def _note(self, request: web.Request) -> Json:
        body: Json = await request.json()
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.arrived.set()
        return body

    async def _maybe_hang(self) -> None:
        if self.mode != "hang":
            return
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()

    async def _events(self, request: web.Request, events: list[str]) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        middle = len(events) // 2
        for event in events[:middle]:
            await answer.write(event.encode())
        await self._maybe_hang()
        if self.mode == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif self.mode == "fault":
            await answer.write(b'data: {"error": {"message": "overloaded", "code": 529}}\n\n')
        elif self.mode != "end":
            for event in events[middle:]:
                await answer.write(event.encode())
        return answer


def _message(body: Json, mode: str) -> tuple[Json, str]:
    if mode == "tool":
        return {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None}, "tool_calls"
    return {"role": "assistant", "content": "It arrives on Monday", "refusal": None}, "stop"


def _completion(body: Json, mode: str) -> Json:
    message, finish = _message(body, mode)
    choices = [{"index": at, "message": message, "finish_reason": finish} for at in range(body.get("n") or 1)]
    return _head("chat.completion") | {"choices": choices, "usage": _usage()}


def _chunks(body: Json, mode: str) -> list[str]:
    """Five events or more, whose second half ends the answer."""
    if mode == "tool":
        call = {"index": 0, **CALL, "function": {"name": "find_order", "arguments": ""}}
        rest = {"index": 0, "function": {"arguments": CALL["function"]["arguments"]}}  # type: ignore[index]  # a dict
        said: list[Json] = [{"tool_calls": [call]}, {"tool_calls": [rest]}]
    else:
        said = [{"content": "It arrives"}, {"content": " on Monday"}]
    deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [(delta, None) for delta in said]
    deltas.append(({}, _message(body, mode)[1]))
    head = _head("chat.completion.chunk")
    events = [head | {"choices": [{"index": 0, "delta": d, "finish_reason": f}]} for d, f in deltas]
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append(head | {"choices": [], "usage": _usage()})
    return [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]


def _head(kind: str) -> Json:
    return {"id": "chatcmpl-p1", "object": kind, "created": 5, "model": MODEL, "system_fingerprint": "fp_1"}


def _usage() -> Json:
    return {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}


def _anthropic_events() -> list[str]:
    start = {"id": "msg_1", "role": "assistant", "model": "claude", "content": [], "usage": {"input_tokens": 9}}
    events: list[Json] = [
        {"type": "message_start", "message": {"type": "message", **start}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "It arrives"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]


@asynccontextmanager
async def provider_server() -> AsyncIterator[ProviderServer]:
    """A provider on a free loopback port."""
    server = ProviderServer()
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_post("/v1/messages", server.messages)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
