"""An MCP server in raw HTTP, which answers what no SDK would send; and a caller that reads what no SDK would read."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx
import mcp_types as types

MODERN, LEGACY = "2026-07-28", "2025-11-25"
_ACCEPT = {"accept": "application/json, text/event-stream"}
_DECLARED: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
_LISTS: dict[str, dict[str, Any]] = {
    "tools/list": {
        "tools": [{"name": "run", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
    },
    "prompts/list": {"prompts": [{"name": "ask"}]},
    "resources/list": {"resources": [{"uri": "raw://one", "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": []},
}


class RawServer:
    """The server of one era. `answers`: JSON by method, of the result or, if `fails`, of the error."""

    def __init__(self, era: str = LEGACY) -> None:
        self.era = era
        self.answers: dict[str, str] = {}
        self.fails = False
        self.streams = False  # answers are events of a stream
        self.encoding: str | None = None
        self.encode: Callable[[bytes], bytes] | None = None  # for the answers of `answers`
        self.encoded: bytes | None = None  # a body in place of the answer's own

    def _answer(self, asked: dict[str, Any]) -> str:
        method = asked["method"]
        own = self.answers.get(method)
        if own is not None:
            return f'"{"error" if self.fails else "result"}":{own}'
        if method == "server/discover":
            if self.era != MODERN:
                return '"error":{"code":-32601,"message":"Method not found"}'
            return '"result":' + json.dumps({"supportedVersions": [MODERN], "capabilities": _DECLARED})
        if method == "initialize":
            if self.era != LEGACY:
                return '"error":{"code":-32601,"message":"Method not found"}'
            info = {"name": "raw", "version": "1"}
            return '"result":' + json.dumps({"protocolVersion": LEGACY, "capabilities": _DECLARED, "serverInfo": info})
        return '"result":' + json.dumps(_LISTS.get(method, {}))

    def _response(self, asked: dict[str, Any]) -> bytes:
        if "id" not in asked:
            return b"HTTP/1.1 202 X\r\ncontent-length: 0\r\n\r\n"
        body = f'{{"jsonrpc":"2.0","id":{json.dumps(asked["id"])},{self._answer(asked)}}}'.encode(
            "utf-8", "surrogatepass"
        )
        about = "content-type: application/json\r\n"
        if self.streams:
            about, body = "content-type: text/event-stream\r\n", b"event: message\ndata: " + body + b"\n\n"
        if asked["method"] in self.answers and self.encoding is not None:
            about += f"content-encoding: {self.encoding}\r\n"
            body = self.encode(body) if self.encode is not None else self.encoded or body
        return f"HTTP/1.1 200 OK\r\n{about}content-length: {len(body)}\r\n\r\n".encode() + body

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                if head.startswith("post"):
                    writer.write(self._response(json.loads(body)))
                else:
                    writer.write(b"HTTP/1.1 405 X\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
        writer.close()

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """The URL of the server while it runs."""
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
            server.close()


class RawCaller:
    """A caller of one era at a gateway."""

    def __init__(self, http: httpx.AsyncClient, era: str) -> None:
        self._http = http
        self._era = era
        self._session: dict[str, str] | None = None
        self.text = ""  # of the last answer
        self._headers: Mapping[str, str] = {}

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The JSON-RPC answer."""
        headers = {"mcp-protocol-version": self._era}
        if self._era == MODERN:
            headers |= {"mcp-method": method, "mcp-name": str(params.get("name", params.get("uri")))}
            meta = {types.PROTOCOL_VERSION_META_KEY: MODERN, types.CLIENT_CAPABILITIES_META_KEY: {}}
            params = {**params, "_meta": meta | {types.CLIENT_INFO_META_KEY: {"name": "raw", "version": "1"}}}
        else:
            headers |= await self._begun()
        return await self._post({"id": 7, "method": method, "params": params}, headers)

    async def _begun(self) -> dict[str, str]:
        if self._session is None:
            info = {"name": "raw", "version": "1"}
            params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
            await self._post({"id": 1, "method": "initialize", "params": params}, {})
            self._session = {"mcp-session-id": self._headers["mcp-session-id"]}
            await self._post({"method": "notifications/initialized"}, self._session)
        return self._session

    async def _post(self, message: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        answer = await self._http.post("/mcp", json={"jsonrpc": "2.0", **message}, headers=_ACCEPT | headers)
        self._headers, self.text = answer.headers, answer.text
        if not answer.content:
            return {}
        if answer.headers["content-type"].startswith("text/event-stream"):
            self.text = next(line[6:] for line in answer.text.splitlines() if line.startswith("data: {"))
        parsed: dict[str, Any] = json.loads(self.text)
        return parsed
