"""Forms: a change is a POST with a token that only a page of ours can know.

Owns: the token, its check before any handler of a POST runs, reading fields, and what makes a form that is sent twice
known. Refuses: what a change does.

The token is a hash of what the browser keeps in a cookie of ours (SameSite=Strict, HttpOnly): of the sign-in where
there are keys, else of a random value. A page from elsewhere can neither read the cookie nor have it sent along.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from litestar import Response
from litestar.datastructures import Cookie, FormMultiDict
from litestar.exceptions import ClientException
from litestar.status_codes import HTTP_303_SEE_OTHER

from proxy.admission.pages import COOKIE, cookie_value
from proxy.api.route_parts import AnyRequest
from proxy.errors import BadRequest, Forbidden, WrongMediaType

FIELD: Final = "csrf"
ONCE: Final = "once"
VISITOR: Final = "hone_visitor"  # where nobody signs in
MAX_CHARS: Final = 100_000


def set_cookie(request: AnyRequest, name: str, value: str, lasts_s: int) -> Cookie:
    """A cookie that no script reads and no other site sends."""
    secure = request.url.scheme == "https"
    return Cookie(key=name, value=value, path="/hone", max_age=lasts_s, httponly=True, samesite="strict", secure=secure)


def token_for(request: AnyRequest) -> tuple[str, Cookie | None]:
    """The token of this browser's forms, and the cookie to send with them where it has none yet."""
    kept = _kept(request)
    if kept is not None:
        return _token(kept), None
    visitor = secrets.token_urlsafe(32)
    return _token(visitor), set_cookie(request, VISITOR, visitor, 30 * 86400)


def form_nonce() -> str:
    """For a form whose deed is to be done once, however often it is sent: the value of its field `ONCE`."""
    return secrets.token_urlsafe(16)


def secret_of(request: AnyRequest, *said: str) -> bytes:
    """32 bytes that nobody else can know, the same whenever this browser sends the same."""
    parts = "".join(f"{len(part)}:{part}" for part in said)
    return hmac.digest((_kept(request) or secrets.token_urlsafe(32)).encode(), parts.encode(), "sha256")


async def check_form(request: AnyRequest) -> None:
    """Before a request: refuse a change whose form carries no token of this browser. Raises Forbidden."""
    if request.method != "POST":
        return
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/x-www-form-urlencoded":
        raise WrongMediaType(f"the content type is {sent[:80]!r}: the pages' forms are urlencoded.")
    kept, told = _kept(request), await read_fields(request)
    if kept is None or not hmac.compare_digest(_token(kept), field_text(told, FIELD)):
        raise Forbidden("the form is too old, or of another sign-in: open its page again, and send it from there.")


async def read_fields(request: AnyRequest) -> FormMultiDict:
    """What a form says. Raises BadRequest."""
    try:
        return await request.form()
    except (ClientException, ValueError) as e:
        raise BadRequest(f"the form cannot be read: {e}") from e


def field_text(told: FormMultiDict, name: str) -> str:
    """A field's text, stripped, its lines ended as elsewhere; "" where it is not there. Raises BadRequest."""
    value = told.get(name, "")
    if not isinstance(value, str) or len(value) > MAX_CHARS:
        raise BadRequest(f"the field {name!r} is no text of at most {MAX_CHARS} characters.", param=name)
    return value.replace("\r\n", "\n").strip()


def back_to(path: str) -> Response[None]:
    """After a change: the page that shows it."""
    return Response(None, status_code=HTTP_303_SEE_OTHER, headers={"location": path})


def local_path(path: str) -> str:
    """A path of ours to go on to, or home: never another site, whatever a form says."""
    ours = path == "/hone" or path.startswith("/hone/")
    return path if ours and "\\" not in path and path.isprintable() else "/hone/"


def _kept(request: AnyRequest) -> str | None:
    headers: dict[bytes, bytes] = request.scope["hone.headers"]  # type: ignore[typeddict-item]  # put there by the gate
    return cookie_value(headers, COOKIE) or cookie_value(headers, VISITOR)


def _token(kept: str) -> str:
    return hashlib.sha256(b"hone form\0" + kept.encode()).hexdigest()
