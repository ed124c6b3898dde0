"""The caller's errors for an unknown model, for a model without an engine, and for refusals of an engine.

Owns: translating an engine's refusal: its status and message, with the model's name as the client knows it. Refuses:
formats, and retries.
"""

from __future__ import annotations

from typing import Final

import orjson

from proxy.errors import BadGateway, CallerError, EngineRefused, NoReplica, Unavailable, UnknownObject
from proxy.versions.routing import Route, ServiceRouter

MAX_MESSAGE_CHARS: Final = 2000  # of an engine's error message
_NOT_READY: Final = (502, 503, 504)


def unknown_model_error(model: str, versions: ServiceRouter) -> UnknownObject:
    """Return the error for an unknown model name, with the names that are known."""
    known = ", ".join(str(card["id"]) for card in versions.models()) or "none yet"
    return UnknownObject(
        f"the model {model!r:.200} is unknown, or that version is not in service. Known: {known}.",
        param="model",
        code="model_not_found",
    )


def no_engine_error(why: NoReplica) -> Unavailable:
    """Return the error for a model that no engine can serve now."""
    return Unavailable(str(why), code="engine_unavailable")


def engine_refusal(status: int, body: bytes, route: Route, client_model: str) -> CallerError:
    """Return the caller's error for an engine's refusal, with the model's name as the client knows it."""
    message, kind, param = _fault(body)
    message = message.replace(route.engine_model, client_model)
    if not (400 <= status < 500 or status == 500 or status in _NOT_READY):  # a redirect, no content, no HTTP at all
        return BadGateway(f"the engine at {route.replica_url} answered {status}, which Hone does not expect: {message}")
    if status in (401, 403):
        return BadGateway(f"the engine at {route.replica_url} refused Hone's key: set `api_key` in [engine].")
    if status == 404:
        return Unavailable(f"the engine does not hold {route.version.name} now ({message}): retry in a moment.")
    if status in _NOT_READY:
        return Unavailable(f"the engine is not ready: {message}", code="engine_unavailable")
    return EngineRefused(message, status=status, kind=kind, param=param, code="engine_error" if status >= 500 else None)


def stream_error(message: str, route: Route | None, client_model: str) -> CallerError:
    """Return the caller's error for an error inside a stream that had begun."""
    text = message.replace(route.engine_model, client_model) if route is not None else message
    return BadGateway(text[:MAX_MESSAGE_CHARS], code="engine_error")


def _fault(body: bytes) -> tuple[str, str, str | None]:
    """Message, type and param of an engine's error body."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:500].decode(errors="replace") or "no reason given", "server_error", None
    fault = reply.get("error", reply) if isinstance(reply, dict) else {}
    if not isinstance(fault, dict):
        fault = {"message": fault}
    message = str(fault.get("message") or fault.get("detail") or body[:500].decode(errors="replace"))
    kind, param = fault.get("type"), fault.get("param")
    return (
        message[:MAX_MESSAGE_CHARS],
        kind[:100] if isinstance(kind, str) and kind else "invalid_request_error",
        param[:100] if isinstance(param, str) else None,
    )
