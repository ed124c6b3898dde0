"""The outermost layer: pure ASGI that every request passes before it is routed.

Owns: taking the address off the path, admission (`proxy.admission.auth`), and answering errors of both in the caller's
format. It leaves its results in the scope: `hone.headers`, `hone.caller`, `hone.stated`, and the requested path in
`hone.asked`. Refuses: routes.
"""

from __future__ import annotations

from typing import Final

from proxy.admission import pages
from proxy.admission.address import combine_addresses, split_path
from proxy.admission.auth import Guard
from proxy.admission.replies import MCP_PATH, send_error, translate_error
from proxy.errors import BadRequest
from proxy.http.asgi import App, Receive, Scope, Send, respond
from recorder.registry.keys import Scope as KeyScope


class AdmissionMiddleware:
    """Wraps the routed app."""

    def __init__(self, app: App, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request, or answer with the error."""
        if scope["type"] == "http":
            try:
                await self._enter(scope)
            except Exception as e:  # noqa: BLE001 - a boundary: the caller receives any error in its own format
                path = scope.get("hone.path") or scope["path"]
                if await _sent_to_sign_in(e, scope, send, path):
                    return
                await send_error(send, path, translate_error(e, scope["method"], path))
                return
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        await self._app(scope, receive, send)

    async def _enter(self, scope: Scope) -> None:
        headers = scope["hone.headers"] = dict(scope["headers"])
        raw_path = scope["hone.asked"] = scope.get("raw_path") or scope["path"].encode()
        scope["hone.path"] = strip_address(raw_path)
        _refuse_doubled(scope)
        named, rest = split_path(raw_path)
        scope["hone.path"] = rest.decode("latin-1")
        if named is not None:
            scope["path"], scope["raw_path"] = scope["hone.path"], rest
        path: str = scope["path"]
        peer = scope["client"][0] if scope.get("client") else None
        caller = await self._guard.admit(scope["method"], path, headers, peer)
        run = combine_addresses(named, caller.run, headers, caller.whose)
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
