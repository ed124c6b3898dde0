"""The page Settings: settings with their origin and their changes, keys, shown once and revoked, and notifications.

Owns: these pages and the fields of their forms. Refuses: keys (`recorder.registry.keys`), and what a change is
(`recorder.setting_changes`). A key's secret is in the answer to its form only, never in an address or a log.
"""

from __future__ import annotations

import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from litestar import Response, get, post
from litestar.datastructures import FormMultiDict
from litestar.params import FromPath, FromQuery

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.api.status import Setting
from proxy.dashboard import forms
from proxy.dashboard.renderer import ForPages, PageContext, render_page
from proxy.errors import BadRequest, UnknownObject
from proxy.notifications.trial import send_trial
from recorder.errors import SettingInvalid
from recorder.queue.notifications import list_notifications
from recorder.registry import keys
from recorder.registry.keys import KeyView, Scope
from recorder.setting_changes import actions as setting_actions
from recorder.setting_changes.change_rows import list_changes
from recorder.setting_changes.changeable_settings import allowed_values

PATH: Final = "/hone/settings"
MAX_NAME_CHARS: Final = 100
MAX_DAYS: Final = 3650.0
NOTIFICATIONS: Final = 20  # the newest that the page lists
CHANGES: Final = 20  # the newest changes of settings that the page lists
# What each scope allows, as the form shows it.
SCOPES: Final = (
    (Scope.INFER, "call models"),
    (Scope.FEEDBACK, "close its own trajectories and give feedback on them (with infer)"),
    (Scope.FEEDBACK_ALL, "close all trajectories and give feedback on them"),
    (Scope.READ, "read trajectories, exports, the ledger and these pages"),
    (Scope.EVAL, "request a version by name, mark trajectories as val or eval"),
    (Scope.ADMIN, "everything, including changes of versions, keys and settings"),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewKey:
    """The key that a form requests. `days` None: it does not expire."""

    name: str
    scopes: tuple[str, ...]
    days: float | None


@get("/settings", include_in_schema=False)
async def settings_page(
    context: ForPages,
    request: AnyRequest,
    revoke: FromQuery[str | None] = None,
    change: FromQuery[str | None] = None,
) -> Response[str]:
    """The page; with `revoke`, the confirmation page for revoking that key; with `change`, the form for a setting."""
    if change is not None:
        caller_of(request).require(Scope.ADMIN, "changing a setting")
        await context.hone.follower.refresh()
        return _change_page(context, request, change)
    return await _page(context, request) if revoke is None else await _ask_revoke(context, request, revoke)


def _change_page(
    context: PageContext, request: AnyRequest, key: str, given: str | None = None, wrong: str | None = None
) -> Response[str]:
    """The form for a setting. `given`, `wrong`: a value that it did not accept, and why. Raises NotFound."""
    choices = allowed_values(key)
    setting = next((one for one in context.status_service.settings if one.key == key), None)
    if setting is None:
        raise UnknownObject(f"there is no setting {key[:200]!r}: {PATH} lists them.")
    if given is None:
        given = "" if setting.value is None else str(setting.value).lower() if choices else str(setting.value)
    status = 200 if wrong is None else 400
    facts = {"setting": setting, "choices": choices, "given": given, "wrong": wrong}
    return render_page(request, "setting_change.html", status=status, **facts)


@post("/settings/change", include_in_schema=False)
async def change_setting(context: ForPages, request: AnyRequest) -> Response[Any]:
    """Change a setting at run time. Raises NotFound, Conflict."""
    form = await forms.read_fields(request)
    key, value = forms.field_text(form, "key"), forms.field_text(form, "value")
    try:
        await setting_actions.set_value(context.hone.follower, key, value, caller_id(caller_of(request)))
    except SettingInvalid as e:
        return _change_page(context, request, key, value, str(e))
    return forms.back_to(f"{PATH}#changes")


@post("/settings/undo", include_in_schema=False)
async def undo_setting(context: ForPages, request: AnyRequest) -> Response[None]:
    """Undo the change of a setting. Raises NotFound, Conflict."""
    key = forms.field_text(await forms.read_fields(request), "key")
    await setting_actions.undo(context.hone.follower, key, caller_id(caller_of(request)))
    return forms.back_to(f"{PATH}#changes")


@post("/settings/pause", include_in_schema=False)
async def pause_learning(context: ForPages, request: AnyRequest) -> Response[None]:
    """Pause learning, or let it go on. Raises Conflict."""
    paused = forms.field_text(await forms.read_fields(request), "paused") == "true"
    await setting_actions.set_paused(context.hone.follower, paused=paused, who=caller_id(caller_of(request)))
    return forms.back_to("/hone/training")


@post("/settings/keys", include_in_schema=False)
async def make_key(context: ForPages, request: AnyRequest) -> Response[str]:
    """Create a key, and show its secret once. Raises BadRequest."""
    form = await forms.read_fields(request)
    try:
        requested = read_new_key(form)
    except BadRequest as e:
        return await _page(context, request, wrong=str(e))
    expires_at = None if requested.days is None else time.time() + requested.days * 86400.0
    by = caller_id(caller_of(request))
    secret = _secret(request, forms.field_text(form, forms.ONCE), requested)
    key = await keys.adopt_key(context.hone.project, requested.name, requested.scopes, secret, expires_at, by)
    first = all(one.id == key.id or one.revoked_at for one in await keys.newest_keys(context.hone.project))
    log.info("key %s was created on the page Settings by %s", key.id, by)
    return render_page(request, "key_made.html", key=key, secret=secret, first=first)


def _secret(request: AnyRequest, once: str, requested: NewKey) -> str:
    """The secret, derived from the form: a second click on its button shows the same key and creates no other."""
    own = forms.secret_of(request, once, requested.name, *sorted(requested.scopes), f"{requested.days}")
    return keys.PREFIX + urlsafe_b64encode(own).decode().rstrip("=")


@post("/settings/keys/{key:str}/revoke", include_in_schema=False)
async def revoke_key(context: ForPages, request: AnyRequest, key: FromPath[str]) -> Response[None]:
    """Revoke a key for good. Raises UnknownObject."""
    key_view = _find_active(await keys.newest_keys(context.hone.project), key)
    by = caller_id(caller_of(request))
    await keys.revoke_key(context.hone.project, key_view.id, by)
    log.info("key %s was revoked on the page Settings by %s", key_view.id, by)
    return forms.back_to(f"{PATH}#keys")


@post("/settings/notify", include_in_schema=False)
async def send_test(context: ForPages, request: AnyRequest) -> Response[None]:
    """Send a test to the address of `[notify]`; the list shows its outcome. Raises StateConflict."""
    by = caller_id(caller_of(request))
    await send_trial(context.hone.project, context.hone.target, by)
    log.info("a test of notifications was sent from the page Settings by %s", by)
    return forms.back_to(f"{PATH}#notifications")


async def _ask_revoke(context: PageContext, request: AnyRequest, key: str) -> Response[str]:
    caller = caller_of(request)
    caller.require(Scope.ADMIN, "revoking a key")
    keys_now = await keys.newest_keys(context.project)
    key_view = _find_active(keys_now, key)
    others = [one for one in keys_now if one.revoked_at is None and one.id != key_view.id]
    return render_page(request, "key_revoke.html", key=key_view, last=not others, own=key_view.id == caller.key)


async def _page(context: PageContext, request: AnyRequest, wrong: str | None = None) -> Response[str]:
    caller = caller_of(request)
    keys_now = await keys.newest_keys(context.project) if caller.may(Scope.ADMIN) else []
    follower = context.hone.settings
    if follower is not None:
        await follower.refresh()
    settings = context.status_service.settings
    return render_page(
        request,
        "settings.html",
        status=200 if wrong is None else 400,
        sections=group_by_section(settings),
        changed=[one for one in settings if one.change is not None],
        refused={} if follower is None else follower.refused,
        history=await list_changes(context.project, CHANGES),
        keys=keys_now,
        names={one.id: one.name for one in keys_now},
        now=time.time(),
        guarded=any(one.revoked_at is None for one in keys_now),
        scopes=SCOPES,
        target=context.hone.target,
        notifications=await list_notifications(context.project, NOTIFICATIONS),
        once=forms.form_nonce(),
        wrong=wrong,
    )


def group_by_section(settings: Sequence[Setting]) -> list[tuple[str, list[Setting]]]:
    """Settings by the first part of their keys; those without a section come first. What several aliases have is
    explained once.
    """
    explained: set[str] = set()

    def section(one: Setting) -> str:
        return one.key.partition(".")[0] if "." in one.key else ""

    def once(one: Setting) -> Setting:
        repeats = section(one) == "aliases" and one.about in explained
        explained.add(one.about)
        return replace(one, about="") if repeats else one

    return [(name, [*map(once, ones)]) for name, ones in groupby(sorted(settings, key=section), key=section)]


def read_new_key(form: FormMultiDict) -> NewKey:
    """The key that a form requests. Raises BadRequest with a message for the page."""
    name = forms.field_text(form, "name")
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise BadRequest(f"A key needs a name of 1 to {MAX_NAME_CHARS} printable characters.", param="name")
    scopes = tuple(str(scope) for scope in form.getall("scope", []))
    if not scopes or set(scopes) - set(Scope):
        raise BadRequest(f"Choose at least one scope of the key: {', '.join(Scope)}.", param="scope")
    days = forms.field_text(form, "days")
    return NewKey(name, scopes, _days(days) if days else None)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 0 < days <= MAX_DAYS:
        raise BadRequest(
            f"A key may last for up to {MAX_DAYS:.0f} days; leave the field empty for a key that does not expire.",
            param="days",
        )
    return days


def _find_active(keys_now: Sequence[KeyView], key: str) -> KeyView:
    for one in keys_now:
        if one.id == key and one.revoked_at is None:
            return one
    raise UnknownObject(f"there is no active key {key[:100]!r}: {PATH} lists the keys.")
