"""Settings: what is in force and where it came from; keys made, shown once, and revoked.

Owns: these pages, and what a form for a key may say. Refuses: what a key is (`recorder.registry.keys`), and changing
settings, which stand in hone.toml. A key's secret stands on the answer to its form alone: in no address, in no log.
"""

from __future__ import annotations

import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from litestar import Response, get, post
from litestar.datastructures import FormMultiDict
from litestar.params import FromPath, FromQuery

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.api.status import Setting
from proxy.dashboard import forms
from proxy.dashboard.page_context import ForPages, PageContext
from proxy.dashboard.renderer import render_page
from proxy.errors import BadRequest, UnknownObject
from recorder.registry import keys
from recorder.registry.keys import KeyView, Scope

PATH: Final = "/hone/settings"
MOST_NAME: Final = 100
MOST_DAYS: Final = 3650.0
# What each scope is for, as the form says it.
SCOPES: Final = (
    (Scope.INFER, "call models"),
    (Scope.FEEDBACK, "end runs and say how they went"),
    (Scope.READ, "read runs, exports, the ledger and these pages"),
    (Scope.EVAL, "ask for a version by name, mark runs as val or eval"),
    (Scope.ADMIN, "everything, and change versions and keys"),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewKey:
    """What a form asks for. `days` None: for ever."""

    name: str
    scopes: tuple[str, ...]
    days: float | None


@get("/settings", include_in_schema=False)
async def settings_page(shown: ForPages, request: AnyRequest, revoke: FromQuery[str | None] = None) -> Response[str]:
    """The page; with `revoke`, the question whether that key is to be revoked."""
    return await _page(shown, request) if revoke is None else await _ask_revoke(shown, request, revoke)


@post("/settings/keys", include_in_schema=False)
async def make_key(shown: ForPages, request: AnyRequest) -> Response[str]:
    """Make a key, and show its secret this once."""
    told = await forms.read_fields(request)
    try:
        asked = read_new_key(told)
    except BadRequest as e:
        return await _page(shown, request, wrong=str(e))
    expires_at = None if asked.days is None else time.time() + asked.days * 86400.0
    by = caller_id(caller_of(request))
    secret = _secret(request, forms.field_text(told, forms.ONCE), asked)
    key = await keys.adopt_key(shown.hone.project, asked.name, asked.scopes, secret, expires_at, by)
    first = all(one.id == key.id or one.revoked_at for one in await keys.newest_keys(shown.hone.project))
    log.info("the key %s was made on the page of settings by %s", key.id, by)
    return render_page(request, "key_made.html", key=key, secret=secret, first=first)


def _secret(request: AnyRequest, once: str, asked: NewKey) -> str:
    """Of the form that was sent: a second click on its button makes no second key, and shows the same."""
    own = forms.secret_of(request, once, asked.name, *sorted(asked.scopes), f"{asked.days}")
    return keys.PREFIX + urlsafe_b64encode(own).decode().rstrip("=")


@post("/settings/keys/{key:str}/revoke", include_in_schema=False)
async def revoke_key(shown: ForPages, request: AnyRequest, key: FromPath[str]) -> Response[None]:
    """Revoke a key, for good."""
    found = _in_force(await keys.newest_keys(shown.hone.project), key)
    by = caller_id(caller_of(request))
    await keys.revoke_key(shown.hone.project, found.id, by)
    log.info("the key %s was revoked on the page of settings by %s", found.id, by)
    return forms.back_to(f"{PATH}#keys")


async def _ask_revoke(shown: PageContext, request: AnyRequest, key: str) -> Response[str]:
    caller = caller_of(request)
    caller.require(Scope.ADMIN, "revoking a key")
    there = await keys.newest_keys(shown.project)
    found = _in_force(there, key)
    others = [one for one in there if one.revoked_at is None and one.id != found.id]
    return render_page(request, "key_revoke.html", key=found, last=not others, own=found.id == caller.key)


async def _page(shown: PageContext, request: AnyRequest, wrong: str | None = None) -> Response[str]:
    caller = caller_of(request)
    there = await keys.newest_keys(shown.project) if caller.may(Scope.ADMIN) else []
    return render_page(
        request,
        "settings.html",
        status=200 if wrong is None else 400,
        sections=group_by_section(shown.stands.settings),
        keys=there,
        names={one.id: one.name for one in there},
        now=time.time(),
        guarded=any(one.revoked_at is None for one in there),
        scopes=SCOPES,
        once=forms.form_nonce(),
        wrong=wrong,
    )


def group_by_section(settings: Sequence[Setting]) -> list[tuple[str, list[Setting]]]:
    """Settings by the first part of their keys, those of no section first."""

    def section(one: Setting) -> str:
        return one.key.partition(".")[0] if "." in one.key else ""

    return [(name, list(ones)) for name, ones in groupby(sorted(settings, key=section), key=section)]


def read_new_key(told: FormMultiDict) -> NewKey:
    """What a form asks for. Raises BadRequest, in words for the page."""
    name = forms.field_text(told, "name")
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise BadRequest(f"A key needs a name of 1 to {MOST_NAME} characters that can be printed.", param="name")
    scopes = tuple(str(scope) for scope in told.getall("scope", []))
    if not scopes or set(scopes) - set(Scope):
        raise BadRequest(f"Choose what the key may do, out of {', '.join(Scope)}.", param="scope")
    days = forms.field_text(told, "days")
    return NewKey(name, scopes, _days(days) if days else None)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days <= MOST_DAYS:
        raise BadRequest(f"A key may last for 1 to {MOST_DAYS:.0f} days, or for ever (leave it empty).", param="days")
    return days


def _in_force(there: Sequence[KeyView], key: str) -> KeyView:
    for one in there:
        if one.id == key and one.revoked_at is None:
            return one
    raise UnknownObject(f"no key {key[:100]!r} is in force: {PATH} lists them.")
