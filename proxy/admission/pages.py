"""Admission of the dashboard's pages: paths and scopes, the sign-in cookie, failed sign-ins, and errors as HTML.

Owns: the scopes of pages, the cookie's name, the headers of every page, the page of an error, and the limit on failed
sign-ins. Refuses: the pages themselves (`proxy.dashboard`).

After `ALLOWED` unknown keys within a minute, a sender has to wait. Failures are counted by the sender's address
(`proxy.admission.sender`), in this process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from html import escape
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote

from proxy.errors import CallerError, TooMany, Unauthorized
from proxy.http.asgi import RawHeaders
from recorder.base.lru import Lru
from recorder.registry.keys import Scope

COOKIE: Final = "hone_signed_in"
SIGN_IN: Final = "/hone/sign-in"
MAX_ONWARD: Final = 2000  # of a page's address with its filters
HTML: Final = b"text/html"  # the page declares its encoding itself
_NO_PAGES: Final = ("/hone/v1", "/hone/mcp")
_FOR_EVERYBODY: Final = (SIGN_IN, "/hone/static/")
# Endings of paths that record feedback, or whose handler checks what else an action needs.
_FEEDBACK: Final = ("/feedback", "/preference", "/selection")
_ASK_AGAIN: Final = "/ask-again"  # the ending of the path that asks a call again, which requires `infer` too
ALLOWED: Final = 10  # failed sign-ins of one sender within `WITHIN_S`
WITHIN_S: Final = 60.0
REMEMBERED: Final = 1000  # senders
# Scripts and styles come from our own files only, never from a page: text of a transcript is never executed.
HEADERS: Final[RawHeaders] = [
    (
        b"content-security-policy",
        b"default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


def is_page(path: str) -> bool:
    """Whether a path is one of the pages, or one of their files."""
    return path == "/hone" or (path.startswith("/hone/") and not path.startswith(_NO_PAGES))


def page_scope(method: str, path: str) -> Scope | None:
    """Return the scope that a page needs; None for the sign-in page and its files, which are open to everybody."""
    if path.startswith(_FOR_EVERYBODY):
        return None
    if method in ("GET", "HEAD") or path == "/hone/sign-out":
        return Scope.READ
    if path.endswith(_ASK_AGAIN):
        return Scope.EVAL
    return Scope.FEEDBACK if path.endswith(_FEEDBACK) else Scope.ADMIN


def sign_in_token(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the token of a browser's sign-in, if any."""
    return cookie_value(headers, COOKIE)


def cookie_value(headers: Mapping[bytes, bytes], name: str) -> str | None:
    """Return a cookie's value; None if it is missing or the header is malformed."""
    try:
        cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(name)
    except CookieError:
        return None
    return cookie.value if cookie is not None else None


def sign_in_for(error: Exception, method: str, requested: bytes, headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the sign-in address for a browser that requested a page, with the way back; None for other callers."""
    browser = b"text/html" in headers.get(b"accept", b"") and b"authorization" not in headers
    if not (isinstance(error, Unauthorized) and browser and method in ("GET", "HEAD")):
        return None
    return f"{SIGN_IN}?onward={quote(requested[:MAX_ONWARD], safe='/')}".encode()


def error_page(error: CallerError, path: str) -> bytes:
    """Return an error as an HTML page, with a link to continue."""
    title = HTTPStatus(error.status).phrase if error.status in HTTPStatus._value2member_map_ else "Error"
    onward = "<a href='/hone/'>Home</a>"
    if error.status == 401:
        onward = f"<a href='{SIGN_IN}?onward={escape(quote(path), quote=True)}'>Sign in</a>"
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{title} · Hone</title><link rel=stylesheet href='/hone/static/hone.css'>"
        "<link rel=icon href='/hone/static/hone.svg' type='image/svg+xml'></head>"
        f"<body class=bare><main><h1>{title}</h1><p role=alert>{escape(str(error))}</p><p>{onward}</p></main>"
        "</body></html>"
    ).encode()


class LoginThrottle:
    """The recent failed sign-ins. One a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: Lru[str, tuple[float, ...]] = Lru(REMEMBERED)

    def require_few(self, sender: str) -> None:
        """Raise TooMany if a sender has to wait."""
        lately = self._lately(sender)
        if len(lately) >= ALLOWED:
            wait_s = max(1, math.ceil(lately[0] + WITHIN_S - self._clock()))
            raise TooMany(
                f"too many unknown keys from {sender[:100]}: try again in {wait_s} s.",
                retry_after_s=wait_s,
            )

    def failed(self, sender: str) -> None:
        """Count a failed sign-in."""
        self._wrong.put(sender, (*self._lately(sender), self._clock())[-ALLOWED:])

    def _lately(self, sender: str) -> tuple[float, ...]:
        since = self._clock() - WITHIN_S
        return tuple(at for at in self._wrong.get(sender) or () if at > since)
