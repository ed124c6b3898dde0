"""Small answers that Hone sends itself, and errors in the caller's format.

Owns: the format of an error by the path of its request: a dialect's on model routes, problem details (RFC 9457) under
`/hone`, JSON-RPC's at the MCP gateway. Refuses: deciding what is an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson
from litestar.exceptions import HTTPException

from proxy.admission.pages import HEADERS as PAGE_HEADERS
from proxy.admission.pages import HTML, error_page, is_page
from proxy.dialects import format_of
from proxy.errors import (
    BadRequest,
    CallerError,
    EngineRefused,
    StateConflict,
    TooLarge,
    Unavailable,
    UnknownCoding,
    UnknownObject,
    WrongMethod,
)
from proxy.http.asgi import JSON, RawHeaders, Send, respond
from proxy.http.content_coding import ACCEPTED
from recorder.errors import Conflict, FilterInvalid, InvalidId, NotFound, SettingInvalid, StoreError, TooSlow

log = logging.getLogger(__name__)

MCP_PATH = "/mcp"
_HOST: Final = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")
PROBLEM = b"application/problem+json"
_LESS = (
    "Request less (a filter, a shorter time), or retry in a moment. Recording, judging and training continue. "
    "`pages_timeout_s` in the [proxy] section of hone.toml is the limit."
)

_TRANSLATED: Mapping[type[Exception], type[CallerError]] = {
    NotFound: UnknownObject,
    Conflict: StateConflict,
    InvalidId: BadRequest,
    StoreError: Unavailable,
}


def error_headers(error: CallerError) -> RawHeaders:
    """Return the headers that belong to an error."""
    if error.retry_after_s is not None:
        return [(b"retry-after", b"%d" % error.retry_after_s)]
    if isinstance(error, UnknownCoding):
        return [(b"accept-encoding", ACCEPTED)]
    return [(b"www-authenticate", b"Bearer")] if error.status == 401 else []


def problem_details(error: CallerError) -> dict[str, Any]:
    """Return an error as problem details (RFC 9457)."""
    title = HTTPStatus(error.status).phrase if error.status in HTTPStatus._value2member_map_ else "Error"
    fields = {"type": "about:blank", "title": title, "status": error.status, "detail": str(error), "code": error.code}
    return fields if error.param is None else fields | {"param": error.param}


def render_error(path: str, error: CallerError) -> tuple[bytes, bytes]:
    """Return an error's body and content type for a caller of `path`."""
    if path == MCP_PATH:  # no request was read, so it has no id
        details = {
            "code": -32600 if error.status < 500 else -32603,
            "message": str(error),
            "data": {"code": error.code},
        }
        return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": details}), JSON
    if is_page(path):
        return error_page(error, path), HTML
    if path.startswith("/hone/"):
        return orjson.dumps(problem_details(error)), PROBLEM
    return format_of(path).error_body(error), JSON


async def send_error(send: Send, path: str, error: CallerError, headers: RawHeaders | None = None) -> None:
    """Send an error to a caller of `path`, in its format."""
    body, content_type = render_error(path, error)
    of_page = PAGE_HEADERS if content_type == HTML else ()
    await respond(send, error.status, body, content_type, [*(headers or ()), *error_headers(error), *of_page])


async def send_json(send: Send, value: object) -> None:
    """Send a JSON answer."""
    await respond(send, 200, orjson.dumps(value))


def translate_error(error: Exception, scope: Mapping[str, Any]) -> CallerError:
    """Return the caller's error for an exception of the web framework or the recorder, or for a bug in Hone."""
    method, path = scope["method"], scope.get("hone.path") or scope["path"]
    if isinstance(error, CallerError):
        return error
    if isinstance(error, FilterInvalid):
        return BadRequest(f"{error}.", param=error.word[:80])
    if isinstance(error, SettingInvalid):
        return BadRequest(f"{error}.", param="value")
    if isinstance(error, TooSlow):
        return Unavailable(f"{method} {path[:200]}: {error}. {_LESS}")
    for kind, translated in _TRANSLATED.items():
        if isinstance(error, kind):
            return translated(str(error))
    if not isinstance(error, HTTPException):
        log.error("%s %s failed by a bug in Hone", method, path[:200], exc_info=error)
        message = f"a bug in Hone: {type(error).__name__}: {error}. The proxy's log has the traceback."
        return EngineRefused(message, status=500, kind="server_error")
    status = error.status_code
    if status == 404:
        return unknown_route(scope)
    if status == 405:
        return WrongMethod(f"{method} {path[:200]} is not served: /schema lists the methods.")
    if status == 413:
        return TooLarge(f"the body is larger than the limit of {path[:200]}: send at most a megabyte.")
    detail = f"{error.detail} {_faults(error.extra)}".strip()
    return BadRequest(detail) if status < 500 else EngineRefused(detail, status=status, kind="server_error")


def _faults(extra: object) -> str:
    """Return the fields at fault, as the validator names them."""
    if not isinstance(extra, list):
        return ""
    return "; ".join(f"{fault.get('key')}: {fault.get('message')}" for fault in extra if isinstance(fault, dict))


def unknown_route(scope: Mapping[str, Any]) -> UnknownObject:
    """Return the error for a route that does not exist, with the base_url that the caller should use."""
    headers: Mapping[bytes, bytes] = scope["hone.headers"]
    scheme = "https" if headers.get(b"x-forwarded-proto") == b"https" else scope.get("scheme", "http")
    host = headers.get(b"host", b"").decode("latin-1")
    base_url = f"{scheme}://{host}" if _HOST.fullmatch(host) else "http://HOST:PORT"
    return UnknownObject(
        f"{scope['method']} {scope['hone.path'][:200]} is not a route of Hone: /schema lists its routes, `GET "
        f"/v1/models` the models. The base_url is {base_url}/v1 for OpenAI's clients, and {base_url} for Anthropic's."
    )
