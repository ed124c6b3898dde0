"""Pages of other origins that call Hone from a browser: CORS (the Fetch standard), for the origins in settings only.

Owns: which requests it applies to, the answer to a preflight, and the headers of an answer. Refuses: admission. A page
needs a key as every other caller does: credentials, which a browser adds by itself, are never allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from proxy.http.asgi import Message, RawHeaders, Scope, Send

_PATHS: Final = (b"/v1/", b"/t/", b"/g/", b"/hone/v1/")
_METHODS: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_PREFLIGHT_S: Final = b"600"  # how long a browser remembers a preflight
_EXPOSED: Final = (b"retry-after", b"request-id", b"x-request-id")  # besides x-hone-*
_VARY: Final = (b"vary", b"Origin")
ANY: Final = "*"


class CrossOrigin:
    """The origins that settings allow."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._exact = frozenset(origin.encode() for origin in origins if origin != ANY)
        self._any = ANY in origins

    def allowed(self, path: bytes, headers: Mapping[bytes, bytes], *, guarded: bool = True) -> bytes | None:
        """Return the origin of a request if its page may send it. `guarded`: whether the proxy has keys."""
        origin = headers.get(b"origin")
        if origin is None or not (path.startswith(_PATHS) or path == b"/v1"):
            return None
        return origin if origin.lower() in self._exact or (self._any and guarded) else None


def preflight_headers(scope: Scope, headers: Mapping[bytes, bytes], origin: bytes) -> RawHeaders | None:
    """Return the headers that answer a preflight; None for a request that is none."""
    if scope["method"] != "OPTIONS" or b"access-control-request-method" not in headers:
        return None
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", headers.get(b"access-control-request-headers", b"*")),
        (b"access-control-max-age", _PREFLIGHT_S),
        _VARY,
    ]


def with_cors(send: Send, origin: bytes) -> Send:
    """Return a `send` whose answers the page of `origin` may read."""

    async def send_allowed(message: Message) -> None:
        if message["type"] == "http.response.start":
            sent: RawHeaders = list(message.get("headers", ()))
            exposed = sorted({name for name, _ in sent if name.startswith(b"x-hone-") or name in _EXPOSED})
            sent += [(b"access-control-allow-origin", origin), _VARY]
            if exposed:
                sent.append((b"access-control-expose-headers", b", ".join(exposed)))
            message = {**message, "headers": sent}
        await send(message)

    return send_allowed
