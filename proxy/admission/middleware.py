"""The outermost layer: pure ASGI that every request passes before it is routed.

Owns: taking the address off the path, admission (`proxy.admission.auth`), pages of other origins, compressed bodies,
the way from `/` to the pages, and answering errors of these in the caller's format. It leaves its results in the scope:
`hone.headers`, `hone.caller`, `hone.stated`, the requested path in `hone.asked`, in `hone.sender` the address to count
failed sign-ins by, and in `hone.waited_s` how long admission waited for the store. Refuses: routes.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote

from proxy.admission import pages
from proxy.admission.address import combine_addresses, complete_path, split_path
from proxy.admission.auth import Guard
from proxy.admission.cors import CrossOrigin, preflight_headers, with_cors
from proxy.admission.replies import MCP_PATH, send_error, translate_error
from proxy.admission.sender import sender_address
from proxy.errors import BadRequest, ClientDisconnected, TooLarge
from proxy.http.asgi import App, Message, Receive, Scope, Send, read_body, respond
from proxy.http.content_coding import decode_request
from proxy.http.shutdown import REQUEST
from proxy.settings.sections import ProxySettings
from recorder.base.json_limits import count_values
from recorder.registry.keys import Scope as KeyScope

_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*\Z")  # of others, the routed app refuses requests
_MCP_PATHS: Final = frozenset({MCP_PATH, "/hone/mcp"})


class AdmissionMiddleware:
    """Wraps the routed app. `routes`: the paths of the model routes, from `/v1/` on.

    `direct`: apps at exact paths that requests reach without the routed app, which has them too. It costs 40 function
    calls for each request, because a call suspends three times in each of its layers.
    """

    def __init__(
        self,
        app: App,
        guard: Guard,
        settings: ProxySettings,
        routes: Iterable[str],
        direct: Mapping[str, App] | None = None,
    ) -> None:
        self._app = app
        self._direct = direct or {}
        self._guard = guard
        self._settings = settings
        self._origins = CrossOrigin(settings.cors_origins)
        self._routes = frozenset(path.split("/")[2].encode() for path in routes if path.startswith("/v1/"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request, or answer with the error."""
        if scope["type"] == "http":
            headers = scope["hone.headers"] = dict(scope["headers"])
            raw_path = scope["hone.asked"] = scope.get("raw_path") or scope["path"].encode()
            if b"origin" in headers and (origin := self._origins.allowed(raw_path, headers)) is not None:
                if (preflight := preflight_headers(scope, headers, origin)) is not None:
                    await send({"type": "http.response.start", "status": 204, "headers": preflight})
                    await send({"type": "http.response.body"})
                    return
                send = with_cors(send, origin)
            if raw_path == b"/" and self._settings.pages and scope["method"] in ("GET", "HEAD"):
                await respond(send, 303, b"", pages.HTML, [(b"location", b"/hone/"), *pages.HEADERS])
                return
            try:
                await self._enter(scope)
                receive = decode_request(scope, headers, receive, self._settings.max_body_bytes)
                if scope["hone.path"] in _MCP_PATHS and scope["method"] == "POST":
                    receive = await self._read_message(headers, receive)
            except ClientDisconnected:
                return
            except Exception as e:  # noqa: BLE001 - a boundary: the caller receives any error in its own format
                path = scope.get("hone.path") or scope["path"]
                if await _sent_to_sign_in(e, scope, send, path):
                    return
                await send_error(send, path, translate_error(e, scope))
                return
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        app = self._direct.get(scope["path"]) if scope["type"] == "http" else None
        if app is None or not _HOST.match(scope["hone.headers"].get(b"host", b"")):
            await self._app(scope, receive, send)
            return
        try:
            await app(scope, receive, send)
        except Exception as e:
            running = scope.get(REQUEST)
            if running is not None and running.answered:
                raise
            await send_error(send, scope["hone.path"], translate_error(e, scope))

    async def _read_message(self, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Read an MCP message, whose parser is not ours, and return a `receive` with it. Raises TooLarge."""
        body = await read_body(headers, receive, self._settings.max_body_bytes)
        most = self._settings.max_body_values
        values = await asyncio.to_thread(count_values, body, most) if len(body) > most else 0
        if values > most:
            raise TooLarge(
                f"the message has {values} values (texts, lists, objects); the limit is {most}: send a smaller one, "
                "or raise `max_body_values` in the [proxy] section of hone.toml."
            )
        read = False

        async def receive_read() -> Message:
            nonlocal read
            if read:
                return await receive()
            read = True
            return {"type": "http.request", "body": body, "more_body": False}

        return receive_read

    async def _enter(self, scope: Scope) -> None:
        headers, raw_path = scope["hone.headers"], scope["hone.asked"]
        scope["hone.path"] = strip_address(raw_path)
        _refuse_doubled(scope)
        named, rest = split_path(raw_path)
        meant = complete_path(rest, self._routes)
        scope["hone.path"] = meant.decode("latin-1")
        if named is not None:
            scope["path"], scope["raw_path"] = scope["hone.path"], meant
        elif meant != rest:
            scope["path"], scope["raw_path"] = unquote(scope["hone.path"]), meant
        path: str = scope["path"]
        peer = scope["client"][0] if scope.get("client") else None
        scope["hone.sender"] = sender_address(peer, scope["headers"], self._settings.trusted_proxies)
        page_allowed = self._origins.allowed(raw_path, headers, guarded=False) is not None
        began = time.monotonic()
        caller = await self._guard.admit(scope["method"], path, headers, peer, page_allowed=page_allowed)
        scope["hone.waited_s"] = time.monotonic() - began
        run = combine_addresses(named, caller.run, headers, caller.access)
        if run.address.purpose in ("val", "eval"):
            caller.require(KeyScope.EVAL, f"the purpose {run.address.purpose.value!r}")
        scope["hone.caller"], scope["hone.stated"] = caller, run


async def _sent_to_sign_in(error: Exception, scope: Scope, send: Send, path: str) -> bool:
    """Redirect a browser to the sign-in page. Return whether that was done."""
    if not pages.is_page(path):
        return False
    query: bytes = scope.get("query_string", b"")
    requested = path.encode("latin-1") + (b"?" + query if query else b"")
    to = pages.sign_in_for(error, scope["method"], requested, scope.get("hone.headers") or {})
    if to is None:
        return False
    await respond(send, 303, b"", pages.HTML, [(b"location", to), *pages.HEADERS])
    return True


_SINGLE: Final = frozenset({b"host", b"origin", b"authorization", b"x-api-key"})


def _refuse_doubled(scope: Scope) -> None:
    """Refuse a repeated Host, Origin or key: another proxy may use the other one of the two."""
    if len(scope["hone.headers"]) == len(scope["headers"]):  # the table has each name once
        return
    names = [name for name, _ in scope["headers"] if name in _SINGLE]
    for name in set(names):
        if names.count(name) > 1:
            raise BadRequest(f"the header {name.decode()} is repeated: send it once.")


def strip_address(raw_path: bytes) -> str:
    """Return the path behind an address that may be malformed; only to choose the format of an error."""
    if raw_path.endswith(b"/mcp"):
        return MCP_PATH
    at = max(raw_path.find(b"/hone/v1/"), 0) or max(raw_path.find(b"/v1/"), 0)
    return raw_path[at:].decode("latin-1")
