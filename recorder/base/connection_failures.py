"""Why a request to another program failed, as a sentence in the words of this project.

Owns: finding the cause below an error of an HTTP library or SDK, and removing the names of their classes from its text.
Refuses: importing those libraries, and what to do about it (the caller knows which setting has the address).
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Final

MAX_CHARS: Final = 500
_MOST_CAUSES: Final = 20
_CLASS: Final = r"(?:[a-z_][\w]*\.)*_?(?:[A-Z]\w*)?(?:Error|Exception|Timeout|Disconnected)\b"
# What SDKs put before and after the text itself.
_PREFIX: Final = re.compile(rf"^(?:{_CLASS}(?: Error)?(?:\s*(?::|-)\s+|\s+(?={_CLASS})))+")
_ADVICE: Final = re.compile(
    r"[.,;]?\s*(?:Handle with `[^`]*`\.?|Traceback \(most recent call last\).*|To drop these.*|File an issue.*)",
    re.DOTALL,
)
_QUALIFIED: Final = re.compile(r"\b(?:litellm|openai|anthropic|httpx2?|httpcore2?|aiohttp|mcp)\.[\w.]+")
_OBJECT: Final = re.compile(r" ?\b\w+:<[\w.]+ object at 0x[0-9a-f]+>|<[\w.]+ object at 0x[0-9a-f]+>")

# By the names of classes, because their libraries are not imported here.
_CLOSED: Final = frozenset(
    {
        "ServerDisconnectedError", "ServerDisconnected", "RemoteProtocolError", "ReadError", "WriteError", "CloseError",
        "ClientPayloadError", "ClientConnectionResetError", "ClosedResourceError", "BrokenResourceError", "StreamError",
    }
)  # fmt: skip
_NO_HTTP: Final = frozenset({"BadStatusLine", "BadHttpMessage", "HttpProcessingError", "LocalProtocolError"})
_NO_URL: Final = frozenset({"InvalidURL", "InvalidUrlClientError", "UnsupportedProtocol", "NonHttpUrlClientError"})
_UNREACHABLE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


def describe_failure(error: BaseException) -> str:
    """Return why a request failed: the first cause that is known, else the error's own text, without class names.

    It has no full stop, at most 500 characters, and the other program's own words unchanged where it answered.
    """
    causes = list(_causes(error))
    for cause in causes:
        if sentence := _sentence(cause):
            return sentence
    texts = (without_class_names(str(cause)) for cause in causes)
    return next(filter(None, texts), "no reason given")


def without_class_names(text: str) -> str:
    """Return an error's text without the names of an SDK's classes, and without its advice and traceback."""
    text = _PREFIX.sub("", _ADVICE.sub("", text.strip()))
    text = _QUALIFIED.sub("", _OBJECT.sub("", text)).strip().rstrip(".")
    return "" if re.fullmatch(_CLASS, text) else text[:MAX_CHARS]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what caused it, outermost first; of a group, its first error."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen and len(seen) < _MOST_CAUSES:
        seen.add(id(at))
        if not isinstance(at, BaseExceptionGroup):
            yield at
        beside = getattr(at, "certificate_error", None) or getattr(at, "os_error", None)
        if isinstance(at, BaseExceptionGroup):
            at = at.exceptions[0]
        else:
            at = at.__cause__ or (beside if isinstance(beside, BaseException) else None) or at.__context__


def _sentence(cause: BaseException) -> str | None:
    """The sentence for a cause that says itself what happened."""
    name = type(cause).__name__
    if isinstance(cause, ssl.SSLError):  # aiohttp's subclasses have no reason of their own, and what caused them has
        why = getattr(cause, "verify_message", None)
        reason = (getattr(cause, "reason", None) or "").replace("_", " ").lower()
        plain = f"TLS failed ({reason}): does it speak HTTPS?" if reason else None
        return f"its TLS certificate is not valid ({why})" if why else _deeper(cause) or plain
    if isinstance(cause, socket.gaierror):
        return "its host name cannot be resolved"
    if isinstance(cause, ConnectionRefusedError):
        return "nothing listens at its address (connection refused)"
    if isinstance(cause, TimeoutError) or name.endswith("Timeout") or name == "APITimeoutError":
        return "it did not answer in time"
    if isinstance(cause, json.JSONDecodeError):
        return "it sent something that is not JSON"
    if isinstance(cause, ConnectionResetError | BrokenPipeError | ConnectionAbortedError) or name in _CLOSED:
        return _deeper(cause) or "it closed the connection before its answer was complete"
    if name in _NO_HTTP:
        return "it sent something that is not HTTP"
    if name in _NO_URL:
        return "its address is not a valid URL"
    if isinstance(cause, OSError) and cause.errno in _UNREACHABLE:
        return f"its network cannot be reached ({os.strerror(cause.errno).lower()})"
    return None


def _deeper(cause: BaseException) -> str | None:
    """The sentence of what caused a lost connection, such as a bad certificate."""
    below = list(_causes(cause))[1:]
    return next((sentence for one in below if (sentence := _sentence(one))), None)
