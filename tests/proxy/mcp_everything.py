"""A full-featured MCP server to stand behind the gateway, with what the official conformance suite asks of a server.

Run: `python -m tests.proxy.mcp_everything` on standard input and output, or with a port over HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import PromptsListChanged, ResourceUpdated, ToolsListChanged
from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict

from tests.proxy.mcp_tools import PROMPTS, TOOLS, Tool
from tests.proxy.mcp_words import NO_ARGUMENTS, PNG, TEXT, Context, Result, asks_name, session


class _Any(BaseModel):
    model_config = ConfigDict(extra="allow")


def _finished(handler: Callable[[Context, Any], Awaitable[Result]]) -> Callable[[Context, Any], Awaitable[Result]]:
    """The result says that it is one, where the protocol wants that."""

    async def handle(ctx: Context, params: Any) -> Result:
        result = await handler(ctx, params)
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        return {"resultType": "complete", **result} if modern else result

    return handle


class Everything:
    """The server. What tests look at and turn: `seen`, `gate`, `tools`."""

    def __init__(
        self,
        name: str = "everything",
        *,
        instructions: str | None = "Be kind.",
        listens: bool = True,
        asks_today: bool = True,
        without: Collection[str] = (),
    ) -> None:
        """Without `listens` and `asks_today`: as written for the handshake era, on an SDK that serves both.

        `without`: the methods that it does not have.
        """
        self.name = name
        self.asks_today = asks_today
        self.refused = 0  # requests of an era that is not spoken
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()  # what every request over HTTP waits for
        self.answers.set()
        self.seen: list[Mapping[str, Any]] = []  # params of tools/call as they came
        self.headers: list[Mapping[str, str]] = []
        self.cancelled: list[str] = []
        self.gate = asyncio.Event()  # what `slow` waits for
        self.entered = asyncio.Event()
        self.tools: dict[str, tuple[dict[str, Any], Tool]] = dict(TOOLS)
        self.prompts: dict[str, dict[str, Any]] = dict(PROMPTS)
        self.subscribed: list[str] = []
        self._key = secrets.token_bytes(16)
        self._bus = InMemorySubscriptionBus()
        self.sessions: list[Any] = []  # of the handshake era
        self.levels: list[str] = []  # that sessions wanted to have logged
        self.moved = 0  # how often a client's roots were said to have changed
        self.kept: dict[str, Any] = {}  # of callers without a session
        server: Any = Server(
            name,
            version="1",
            instructions=instructions,
            on_list_tools=_finished(self._list_tools),  # type: ignore[arg-type]
            on_call_tool=_finished(self._call_tool),  # type: ignore[arg-type]
            on_list_resources=_finished(self._list_resources),  # type: ignore[arg-type]
            on_list_resource_templates=_finished(self._list_templates),  # type: ignore[arg-type]
            on_read_resource=_finished(self._read),  # type: ignore[arg-type]
            on_subscribe_resource=_finished(self._subscribe),  # type: ignore[arg-type]
            on_unsubscribe_resource=_finished(self._unsubscribe),  # type: ignore[arg-type]
            on_subscriptions_listen=ListenHandler(self._bus) if listens else None,
            on_list_prompts=_finished(self._list_prompts),  # type: ignore[arg-type]
            on_get_prompt=_finished(self._get_prompt),  # type: ignore[arg-type]
            on_completion=_finished(self._complete),  # type: ignore[arg-type]
        )
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        for method in without:
            del server._request_handlers[method]
        server.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)
        server.add_notification_handler("notifications/roots/list_changed", types.NotificationParams, self._moved)
        plain = server.create_initialization_options
        server.create_initialization_options = lambda *_, **__: plain(NotificationOptions(True, True, True))
        self.server: Server[Any] = server

    # --- lists

    async def _list_tools(self, ctx: Context, params: Any) -> Result:
        tools = [{"name": name, **shown} for name, (shown, _) in self.tools.items()]
        if "unlocked" in self.state(ctx):
            tools.append({"name": "unlocked", "inputSchema": NO_ARGUMENTS, "annotations": {"title": "Of one alone"}})
        return self._hinted(ctx, {"tools": tools})

    async def _list_prompts(self, ctx: Context, params: Any) -> Result:
        return self._hinted(ctx, {"prompts": [{"name": name, **shown} for name, shown in self.prompts.items()]})

    async def _list_resources(self, ctx: Context, params: Any) -> Result:
        shown = [
            ("test://static-text", "text/plain"),
            ("test://static-binary", "image/png"),
            ("test://watched-resource", "text/plain"),
            (f"test://{self.name}/own", "text/plain"),
        ]
        resources = [{"uri": uri, "name": uri, "description": "A resource.", "mimeType": mime} for uri, mime in shown]
        # in two pages, for whoever lists it
        if (ctx.params or {}).get("cursor") == "more":
            return self._hinted(ctx, {"resources": resources[2:]})
        return self._hinted(ctx, {"resources": resources[:2], "nextCursor": "more"})

    async def _list_templates(self, ctx: Context, params: Any) -> Result:
        shown = {"uriTemplate": "test://template/{id}/data", "name": "data", "mimeType": "application/json"}
        return self._hinted(ctx, {"resourceTemplates": [{**shown, "description": "Data by id."}]})

    def _hinted(self, ctx: Context, result: Result) -> Result:
        modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        return result | {"ttlMs": 1000, "cacheScope": "public"} if modern else result

    # --- tools

    async def _call_tool(self, ctx: Context, params: Any) -> Result:
        sent = dict(ctx.params or {})
        self.seen.append(sent)
        self.headers.append(dict(ctx.request.headers) if ctx.request is not None else {})
        found = self.tools.get(params.name)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        return await found[1](self, ctx, sent)

    def state(self, ctx: Context) -> dict[str, Any]:
        """What is kept for a session; without one, for all."""
        return self.kept if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else session(ctx).state

    async def ask(self, ctx: Context, sent: Mapping[str, Any], questions: dict[str, Result]) -> Result | None:
        """The answers by key; None where the caller has to come again with them."""
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or not self.asks_today:
            answers = {}
            for key, question in questions.items():
                request: Any = methods.parse_server_request(
                    question["method"], LATEST_HANDSHAKE_VERSION, question["params"]
                )
                metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
                answers[key] = (await ctx.session.send_request(request, _Any, metadata=metadata)).model_dump()
            return answers
        given = sent.get("inputResponses")
        return given if isinstance(given, dict) and all(isinstance(given.get(k), dict) for k in questions) else None

    async def log(self, ctx: Context, level: Any, said: str) -> None:
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            wanted = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
            if wanted is None:
                return
        note = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams(level=level, data=said))
        await ctx.session.send_notification(note, related_request_id=ctx.request_id)

    def sealed(self, state: str) -> str:
        return f"{state}.{hmac.new(self._key, state.encode(), hashlib.sha256).hexdigest()}"

    def opened(self, sent: Mapping[str, Any]) -> str:
        state, _, seal = str(sent.get("requestState")).rpartition(".")
        if not hmac.compare_digest(seal, self.sealed(state).rpartition(".")[2]):
            raise MCPError(types.INVALID_PARAMS, "requestState was tampered with")
        return state

    # --- resources, prompts, completion

    async def _read(self, ctx: Context, params: Any) -> Result:
        uri = str(params.uri)
        if uri in ("test://static-text", "test://watched-resource"):
            found = {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
        elif uri == "test://static-binary":
            found = {"mimeType": "image/png", "blob": PNG}
        elif uri.startswith("test://template/") and uri.endswith("/data"):
            id_ = uri.removeprefix("test://template/").removesuffix("/data")
            data = {"id": id_, "templateTest": True, "data": f"Data for ID: {id_}"}
            found = {"mimeType": "application/json", "text": json.dumps(data)}
        elif uri == f"test://{self.name}/own":
            found = {"mimeType": "text/plain", "text": f"only {self.name} has it"}
        else:
            modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
            raise MCPError(types.INVALID_PARAMS if modern else -32002, "Resource not found", {"uri": uri})
        return self._hinted(ctx, {"contents": [{"uri": uri, **found}]})

    async def _get_prompt(self, ctx: Context, params: Any) -> Result:
        arguments = params.arguments or {}
        said: list[Result] = [{"type": "text", "text": "This is a simple prompt for testing."}]
        if params.name == "test_prompt_with_arguments":
            values = ", ".join(f"{k}='{arguments[k]}'" for k in ("arg1", "arg2"))
            said = [{"type": "text", "text": f"Prompt with arguments: {values}"}]
        elif params.name == "test_prompt_with_embedded_resource":
            embedded = {"uri": arguments["resourceUri"], "mimeType": "text/plain"}
            said = [
                {"type": "resource", "resource": {**embedded, "text": "Embedded resource content for testing."}},
                {"type": "text", "text": "Please process the embedded resource above."},
            ]
        elif params.name == "test_prompt_with_image":
            said = [
                {"type": "image", "data": PNG, "mimeType": "image/png"},
                {"type": "text", "text": "Please analyze the image above."},
            ]
        elif params.name == "test_input_required_result_prompt":
            question = asks_name("What context should the prompt use?", context=TEXT)
            answers = await self.ask(ctx, ctx.params or {}, {"user_context": question})
            if answers is None:
                return {"resultType": "input_required", "inputRequests": {"user_context": question}}
            said = [{"type": "text", "text": f"With {answers['user_context'].get('content')}"}]
        elif params.name not in self.prompts:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        return {"messages": [{"role": "user", "content": content} for content in said]}

    async def _complete(self, ctx: Context, params: Any) -> Result:
        begun = params.argument.value
        known = ["paris", "park", "party"] if params.ref.type == "ref/prompt" else ["123", "124"]
        return {"completion": {"values": [v for v in known if v.startswith(begun)], "hasMore": False}}

    # --- changes

    async def _initialized(self, ctx: Context, params: Any) -> None:
        self.sessions.append(ctx.session)
        session(ctx).exit_stack.callback(self.sessions.remove, ctx.session)
        able = ctx.session.client_capabilities
        if ctx.request is None and able is not None and able.roots is not None:  # as servers of files do
            told = await ctx.session.send_request(types.ListRootsRequest(), _Any)
            self.state(ctx)["roots"] = told.model_dump()["roots"]

    async def _moved(self, ctx: Context, params: Any) -> None:
        self.moved += 1
        data = types.LoggingMessageNotificationParams(level="info", data="moved")
        await ctx.session.send_notification(types.LoggingMessageNotification(params=data))
        told = await ctx.session.send_request(types.ListRootsRequest(), _Any)
        self.state(ctx)["roots"] = told.model_dump()["roots"]

    async def _subscribe(self, ctx: Context, params: Any) -> Result:
        self.subscribed.append(str(params.uri))
        session(ctx).exit_stack.callback(self._forget, str(params.uri))
        return {}

    async def _unsubscribe(self, ctx: Context, params: Any) -> Result:
        self._forget(str(params.uri))
        return {}

    def _forget(self, uri: str) -> None:
        with contextlib.suppress(ValueError):
            self.subscribed.remove(uri)

    async def _set_level(self, ctx: Context, params: Any) -> Result:
        self.levels.append(params.level)
        return {}

    async def tools_changed(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for one in self.sessions:
            await one.send_tool_list_changed()

    async def prompts_changed(self) -> None:
        await self._bus.publish(PromptsListChanged())
        for one in self.sessions:
            await one.send_prompt_list_changed()

    async def updated(self, uri: str) -> None:
        await self._bus.publish(ResourceUpdated(uri))
        for one in self.sessions if uri in self.subscribed else ():
            await one.send_resource_updated(uri)


# --- serving


class Kept(EventStore):
    """What was sent, for those who come back. For one session: requests of several have the same numbers."""

    def __init__(self) -> None:
        self._events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        stream = self._events[int(last_event_id) - 1][0]
        for at, (of, message) in enumerate(self._events[int(last_event_id) :], int(last_event_id) + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(at)))
        return stream


class App:
    """The server over HTTP. `era`: both, handshake, modern. `polls`: its streams can be closed and come back to."""

    def __init__(self, everything: Everything, era: str = "both", *, polls: bool = False) -> None:
        security = TransportSecuritySettings(
            allowed_hosts=["127.0.0.1:*", "localhost:*"], allowed_origins=["http://127.0.0.1:*", "http://localhost:*"]
        )
        polling: dict[str, Any] = {"event_store": Kept(), "retry_interval": 100} if polls else {}
        self.manager = StreamableHTTPSessionManager(everything.server, security_settings=security, **polling)
        self._everything = everything
        self._era = era

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._everything.asked.set()
        await self._everything.answers.wait()
        version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
        if self._era not in ("both", "modern" if version in MODERN_PROTOCOL_VERSIONS else "handshake"):
            self._everything.refused += 1
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"Bad Request: Unsupported protocol version"})
            return
        await self.manager.handle_request(scope, receive, send)


@contextlib.asynccontextmanager
async def served(
    everything: Everything,
    *,
    era: str = "both",
    port: int = 0,
    polls: bool = False,
    around: Callable[[Any], Any] = lambda app: app,
) -> AsyncIterator[str]:
    """The URL of the server while it runs. `around`: what stands before its app."""
    app = App(everything, era, polls=polls)
    config = uvicorn.Config(around(app), port=port, lifespan="off", log_level="warning", ws="none")
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment,method-assign]
    sock = config.bind_socket()

    async def run() -> None:
        async with app.manager.run():  # in one task with its end, which a fixture's may not be
            await server.serve(sockets=[sock])

    running = asyncio.ensure_future(run())
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"
    finally:
        server.should_exit = server.force_exit = True
        await running


async def _stdio(everything: Everything) -> None:
    async with stdio_server() as (read, write):
        await everything.server.run(read, write, everything.server.create_initialization_options())


async def _http(everything: Everything, port: int) -> None:
    async with served(everything, port=port) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    made = Everything(sys.argv[2] if len(sys.argv) > 2 else "everything")
    asyncio.run(_http(made, int(sys.argv[1])) if len(sys.argv) > 1 else _stdio(made))
