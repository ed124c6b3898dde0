"""Forms: every change is a POST with a token that only Hone's own pages can know.

Owns: the token, its check before the handler of a POST runs, reading fields, and recognising a form that is sent twice.
Refuses: what a change does.

The token is a hash of a cookie (SameSite=Strict, HttpOnly): of the sign-in where there are keys, else of a random
value. A page of another site can neither read the cookie nor cause it to be sent.
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
VISITOR: Final = "hone_visitor"  # the cookie where no keys exist
MAX_CHARS: Final = 100_000
MAX_FIELDS: Final = 5_000  # parsed in a few milliseconds


def set_cookie(request: AnyRequest, name: str, value: str, lasts_s: int) -> Cookie:
    """A cookie for `/hone` that scripts cannot read and other sites cannot send. `lasts_s`: seconds."""
    secure = request.url.scheme == "https"
    return Cookie(key=name, value=value, path="/hone", max_age=lasts_s, httponly=True, samesite="strict", secure=secure)


def token_for(request: AnyRequest) -> tuple[str, Cookie | None]:
    """The token of this browser's forms, and the cookie to set if the browser has none yet."""
    own_cookie = _kept(request)
    if own_cookie is not None:
        return _token(own_cookie), None
    visitor = secrets.token_urlsafe(32)
    return _token(visitor), set_cookie(request, VISITOR, visitor, 30 * 86400)


def form_nonce() -> str:
    """A value for the field `ONCE` of a form that must take effect once, however often it is sent."""
    return secrets.token_urlsafe(16)


def secret_of(request: AnyRequest, *values: str) -> bytes:
    """32 secret bytes, the same whenever this browser sends the same values."""
    parts = "".join(f"{len(part)}:{part}" for part in values)
    return hmac.digest((_kept(request) or secrets.token_urlsafe(32)).encode(), parts.encode(), "sha256")


async def check_form(request: AnyRequest) -> None:
    """Refuse a POST without this browser's token. Raises Forbidden, WrongMediaType, BadRequest."""
    if request.method != "POST":
        return
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/x-www-form-urlencoded":
        raise WrongMediaType(f"the content type is {sent[:80]!r}: send the form as application/x-www-form-urlencoded.")
    cookie, fields = _kept(request), await read_fields(request)
    if cookie is None or not hmac.compare_digest(_token(cookie), field_text(fields, FIELD)):
        raise Forbidden(
            "the form is from an earlier sign-in or another browser: open its page again and send it from there."
        )


async def read_fields(request: AnyRequest) -> FormMultiDict:
    """The fields of a form. Raises BadRequest."""
    if (await request.body()).count(b"&") > MAX_FIELDS:
        raise BadRequest(f"the form has more than {MAX_FIELDS} fields.")
    try:
        return await request.form()
    except (ClientException, ValueError) as e:
        raise BadRequest(f"the form cannot be read: {e}") from e


def field_text(fields: FormMultiDict, name: str) -> str:
    """A field's text, stripped, with `\\n` as the line end; "" if the field is missing. Raises BadRequest."""
    value = fields.get(name, "")
    if not isinstance(value, str) or len(value) > MAX_CHARS:
        raise BadRequest(f"the field {name!r} must be a text of at most {MAX_CHARS} characters.", param=name)
    return value.replace("\r\n", "\n").strip()


def back_to(path: str) -> Response[None]:
    """A 303 redirect after a change, to the page that shows it."""
    return Response(None, status_code=HTTP_303_SEE_OTHER, headers={"location": path})


def local_path(path: str) -> str:
    """The path if it is one of Hone's pages, else `/hone/`: a form can never redirect to another site."""
    ours = path == "/hone" or path.startswith("/hone/")
    return path if ours and "\\" not in path and path.isprintable() else "/hone/"


def _kept(request: AnyRequest) -> str | None:
    headers: dict[bytes, bytes] = request.scope["hone.headers"]  # type: ignore[typeddict-item]  # put there by the gate
    return cookie_value(headers, COOKIE) or cookie_value(headers, VISITOR)


def _token(cookie: str) -> str:
    return hashlib.sha256(b"hone form\0" + cookie.encode()).hexdigest()
