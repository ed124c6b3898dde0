"""The model routes that Hone does not record: lists of models, and the routes that are passed through to the engine.

Owns: the allow-list. Other paths do not exist, so that the engine's own controls (loading adapters, sleeping, resetting
caches) cannot be reached through Hone. Refuses: recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import orjson

from proxy.admission.auth import Caller
from proxy.admission.replies import send_error, send_json, unknown_route
from proxy.dialects import engine_fields, format_of
from proxy.dialects.engine_fields import is_writable
from proxy.dialects.messages.fields import count_tokens_body
from proxy.engine.client import Client, EngineReply
from proxy.engine.context_lengths import ContextLengths
from proxy.errors import (
    BadGateway,
    BadRequest,
    CallerError,
    ClientDisconnected,
    EngineFailed,
    EngineUnreachable,
    NoReplica,
    Unavailable,
    UnrecordedRoute,
    WrongMethod,
)
from proxy.http.asgi import App, DisconnectWatch, Receive, Scope, Send, begin_stream, read_body
from proxy.http.shutdown import Shutdown, ShuttingDown
from proxy.http.sse import KeepAliveStream
from proxy.serving.body_reading import dialect_rules, work_beside_loop
from proxy.serving.model_requests import engine_refusal, unknown_model_error
from proxy.settings.sections import ProxySettings
from proxy.versions.routing import Route, ServiceRouter, Target

_COUNTED: Final = "/v1/messages/count_tokens"
# Route → its method. They generate nothing that could be trained on.
PASSED: Final[Mapping[str, str]] = {
    "/v1/embeddings": "POST",
    _COUNTED: "POST",
    "/tokenize": "POST",
    "/detokenize": "POST",
    "/version": "GET",
}
# They generate, and are not recorded: they are passed through only if `proxy.unrecorded` is true.
GENERATING: Final = ("/v1/chat/completions/batch",)


@dataclass(frozen=True, slots=True)
class ModelRoutes:
    """Raw ASGI apps for these routes."""

    settings: ProxySettings
    versions: ServiceRouter
    client: Client
    stop: Shutdown
    lengths: ContextLengths

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /v1/models` and `/v1/models/<id>`."""
        path: str = scope["hone.path"]
        name = unquote(path.removeprefix("/v1/models").strip("/"))
        cards = await self._cards()
        if scope["method"] not in ("GET", "HEAD"):
            await send_error(send, path, WrongMethod(f"{scope['method']} {path} is not served: use GET."))
        elif path != "/v1/models" and not path.startswith("/v1/models/"):
            await send_error(send, path, unknown_route(scope))
        elif not name:
            await send_json(send, {"object": "list", "data": cards})
        elif card := next((card for card in cards if card["id"] == name), None):
            await send_json(send, card)
        else:
            await send_error(send, path, unknown_model_error(name, self.versions))

    async def _cards(self) -> list[dict[str, Any]]:
        """The model objects, with the context length of the engines that serve an alias."""
        up = self.versions.snapshot.up()
        length = await self.lengths.least((one.url for one in up), self.versions.engine_key)
        others = {model.name for model in self.settings.models}
        has_length = {} if length is None else {"max_model_len": length}
        return [card if card["id"] in others else card | has_length for card in self.versions.models()]

    def passed(self, path: str) -> App:
        """Return the app of a route of `PASSED` or `GENERATING`. The engine gets exactly this path."""

        async def route(scope: Scope, receive: Receive, send: Send) -> None:
            await self._serve(scope, receive, send, path)

        return route

    async def _serve(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        try:
            self._allow(scope["method"], path)
            await self._pass(scope, receive, send, path)
        except CallerError as e:
            await send_error(send, path, e)
        except (EngineUnreachable, NoReplica) as e:
            await send_error(send, path, Unavailable(f"{e} Retry in a moment.", code="engine_unavailable"))
        except EngineFailed as e:
            await send_error(send, path, BadGateway(str(e)))
        except ClientDisconnected:
            return

    def _allow(self, method: str, path: str) -> None:
        if path in GENERATING and not self.settings.unrecorded:
            raise UnrecordedRoute(
                f"{path} cannot be recorded, so it is not served: use /v1/chat/completions, or set `unrecorded = "
                "true` in the [proxy] section of hone.toml to pass it through unrecorded."
            )
        if method != PASSED.get(path, "POST"):
            raise WrongMethod(f"{method} {path} is not served: use {PASSED.get(path, 'POST')}.")

    async def _pass(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        fields, size_bytes = await self._read(scope, receive, path)
        target = self._target(fields, scope["hone.caller"])
        route = self.versions.route(target.alias, None, target.version)
        body = await self._engine_body(fields, route, size_bytes) if scope["method"] == "POST" else None
        with self.versions.hold(route):
            async with DisconnectWatch(receive, self.stop):
                reply = await self.client.send(
                    route.replica_url, path, body, key=route.engine_key, method=scope["method"]
                )
                async with reply:
                    answer = await self._answer(reply, route, fields, path, send)
        if answer is not None:
            await send_json(send, answer)

    async def _read(self, scope: Scope, receive: Receive, path: str) -> tuple[dict[str, Any], int]:
        """The fields of the request, and the size of its body in bytes."""
        if scope["method"] != "POST":
            return {}, 0
        body = await read_body(scope["hone.headers"], receive, self.settings.max_body_bytes)
        return await work_beside_loop(len(body), lambda: self._checked(body, path)), len(body)

    @staticmethod
    async def _engine_body(fields: dict[str, Any], route: Route, size_bytes: int) -> bytes:
        body = fields | {"model": route.engine_model}
        return await work_beside_loop(size_bytes, lambda: engine_fields.dump_body(body, size_bytes))

    def _checked(self, body: bytes, path: str) -> dict[str, Any]:
        rules = dialect_rules(self.settings)
        fields = engine_fields.load_body(body, rules)
        engine_fields.refuse_fields(fields)
        engine_fields.check_bounds(fields)
        try:
            for name in ("messages", "input"):
                engine_fields.check_media(fields.get(name), rules, name)
        except RecursionError as e:
            raise engine_fields.too_deep_error() from e
        return count_tokens_body(fields) if path == _COUNTED else fields

    def _target(self, fields: dict[str, Any], caller: Caller) -> Target:
        """The requested model; with a single alias the field may be missing."""
        model = fields.get("model")
        if model is None:
            aliases = list(self.versions.snapshot.aliases.values())
            if not aliases:
                for name in self.versions.declared:
                    self.versions.resolve(name)  # raises NoReplica
                raise unknown_model_error("", self.versions)
            if len(aliases) > 1 and fields:
                raise BadRequest("the field 'model' is missing: `GET /v1/models` lists the names.", param="model")
            return Target(aliases[0])
        target = self.versions.resolve(model) if isinstance(model, str) else None
        if target is None:
            raise unknown_model_error(str(model), self.versions)
        if target.version is not None:
            caller.require_version(str(model))
        return target

    async def _answer(self, reply: EngineReply, route: Route, fields: dict[str, Any], path: str, send: Send) -> Any:
        """The engine's answer with the model's name as requested; None if it was streamed already."""
        requested = fields.get("model")
        if reply.status != 200:
            raise engine_refusal(reply.status, await reply.body(), route, str(requested or route.version.name))
        if reply.headers.get("content-type", "").startswith("text/event-stream"):
            await self._stream(reply, path, send)
            return None
        data = await reply.body()
        try:
            answer = orjson.loads(data)
        except orjson.JSONDecodeError as e:
            raise EngineFailed(f"the engine at {route.replica_url} sent an answer that is not JSON: {e}") from e
        if not isinstance(answer, dict | list) or not is_writable(answer, data):
            raise EngineFailed(
                f"the engine at {route.replica_url} sent something that is not an answer: {data[:200]!r}"
            )
        if isinstance(answer, dict) and "model" in answer and requested is not None:
            answer["model"] = requested
        return answer

    async def _stream(self, reply: EngineReply, path: str, send: Send) -> None:
        """Relay an event stream; a broken one ends with an error in the format of its route."""
        await begin_stream(send)
        try:
            await _relay(reply, send)
        except EngineFailed as e:
            end = format_of(path).error_events(BadGateway(str(e)))
        except asyncio.CancelledError:
            if not self.stop.over:
                raise
            cut = format_of(path).error_events(
                ShuttingDown("this proxy is stopping and ended the stream: send the request again.")
            )
            await send({"type": "http.response.body", "body": cut})
            raise ClientDisconnected("the client has received the end of its stream") from None
        else:
            end = b""
        await send({"type": "http.response.body", "body": end})


async def _relay(reply: EngineReply, send: Send) -> None:
    """Send the chunks as they come, with comments during silence between two events."""
    with KeepAliveStream(send) as stream:
        while chunk := await reply.chunk():
            await stream.send(chunk)
