"""Settings and keys: what is in force and from where, a key made and shown once, asked twice before it is revoked."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from proxy.api.status import Setting
from proxy.dashboard.pages.settings import group_by_section
from proxy.settings.hone import HoneSettings
from proxy.supervision.serve import settings_view
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.setting_changes.follower import SettingsFollower
from recorder.store.database import Project, Store
from tests.proxy.dashboard.reading import Page, opened
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import NO_TLS, PROJECT, Proxy, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow

PATH = "/hone/settings"


async def post(proxy: Proxy, page: Page, path: str, **fields: object) -> httpx.Response:
    """A form of a page, sent."""
    return await proxy.http.post(path, data={"csrf": csrf(page), **fields})


def csrf(page: Page) -> str:
    """The token that a page's forms carry."""
    return next(form.fields["csrf"] for form in page.forms if "csrf" in form.fields)


@asynccontextmanager
async def signed_in(proxy: Proxy, secret: str) -> AsyncIterator[httpx.AsyncClient]:
    """Another browser, which signs in."""
    async with httpx.AsyncClient(base_url=proxy.url, timeout=20, verify=NO_TLS) as http:
        form = await opened(http, "/hone/sign-in")
        answer = await http.post("/hone/sign-in", data={"csrf": csrf(form), "key": secret, "onward": PATH})
        assert answer.status_code == 303, answer.text
        yield http


async def test_the_first_key_is_shown_once_and_the_next_page_asks_for_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        page = await opened(proxy.http, PATH)
        made = await post(proxy, page, f"{PATH}/keys", name="me <i>", scope=["admin", "infer"], days="30")
        told = Page(made.text)
        assert "every request to this proxy needs a key" in told.text
        [secret] = {word.removeprefix("OPENAI_API_KEY=") for word in told.text.split() if keys.PREFIX in word}
        assert secret not in str(made.url)
        assert secret not in caplog.text
        assert made.headers["cache-control"] == "no-store"
        [key] = await keys.list_keys(Project(store, PROJECT))
        assert (key.name, key.scopes, key.expires_at is not None) == (
            "me <i>",
            frozenset({Scope.ADMIN, Scope.INFER}),
            True,
        )

        async def closed() -> bool:  # the absence of keys is believed for a second
            return (await proxy.http.get(PATH)).status_code == 401

        await until(closed)
        async with signed_in(proxy, secret) as me:
            listed = await me.get(PATH)
            assert secret not in listed.text
            assert "me <i>" in Page(listed.text).text


async def test_a_form_that_is_sent_twice_makes_one_key_and_shows_it_again(store: Store) -> None:
    _, mine = await keys.create_key(Project(store, PROJECT), "mine", ["admin"])
    async with FakeEngine() as engine, serving(store, engine) as proxy, signed_in(proxy, mine) as me:

        async def sent(fields: dict[str, str]) -> str:
            [secret] = {
                w for w in Page((await me.post(f"{PATH}/keys", data=fields)).text).text.split() if keys.PREFIX in w
            }
            return secret

        wanted = (await opened(me, PATH)).form(f"{PATH}/keys").fields | {"name": "an agent", "scope": "read"}
        assert await sent(wanted) == await sent(wanted)
        assert len(await keys.list_keys(Project(store, PROJECT))) == 2
        fresh = (await opened(me, PATH)).form(f"{PATH}/keys").fields
        assert await sent(wanted | {"once": fresh["once"]}) != await sent(wanted)
        assert len(await keys.list_keys(Project(store, PROJECT))) == 3


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "", "scope": "read"}, "needs a name"),
        ({"name": "x" * 101, "scope": "read"}, "needs a name"),
        ({"name": "x"}, "Choose at least one scope"),
        ({"name": "x", "scope": ["read", "root"]}, "Choose at least one scope"),
        ({"name": "x", "scope": "read", "days": "soon"}, "days"),
        ({"name": "x", "scope": "read", "days": "nan"}, "days"),
        ({"name": "x", "scope": "read", "days": "-1"}, "days"),
    ],
)
async def test_a_form_that_cannot_be_is_told_on_the_page(store: Store, fields: dict[str, object], why: str) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        answer = await post(proxy, await opened(proxy.http, PATH), f"{PATH}/keys", **fields)
        assert answer.status_code == 400
        assert why in Page(answer.text).text
        assert await keys.list_keys(Project(store, PROJECT)) == []


async def test_a_key_is_revoked_when_it_was_asked_for_twice(store: Store) -> None:
    mine, secret = await keys.create_key(Project(store, PROJECT), "mine", ["admin"])
    other, _ = await keys.create_key(Project(store, PROJECT), "other", ["infer"])
    async with FakeEngine() as engine, serving(store, engine) as proxy, signed_in(proxy, secret) as me:
        page = await opened(me, PATH)
        assert f"{PATH}?revoke={other.id}" in page.links
        asked = await opened(me, f"{PATH}?revoke={other.id}")
        assert "Revoke this key?" in asked.text
        assert "last active key" not in asked.text
        assert (await keys.verify_secret(store, secret)) is not None
        answer = await me.post(f"{PATH}/keys/{other.id}/revoke", data={"csrf": csrf(asked)})
        assert (answer.status_code, answer.headers["location"]) == (303, f"{PATH}#keys")
        by_id = {one.id: one.revoked_by for one in await keys.list_keys(Project(store, PROJECT))}
        assert by_id == {other.id: mine.id, mine.id: None}
        assert "by mine" in (await opened(me, PATH)).text
        last = await opened(me, f"{PATH}?revoke={mine.id}")
        assert "last active key" in last.text
        assert "signed in with this key" in last.text
        assert (await me.get(f"{PATH}?revoke={other.id}")).status_code == 404


async def test_who_only_reads_sees_settings_and_no_key(store: Store) -> None:
    other, _ = await keys.create_key(Project(store, PROJECT), "other one", ["admin"])
    _, secret = await keys.create_key(Project(store, PROJECT), "reader", ["read"])
    async with FakeEngine() as engine, serving(store, engine) as proxy, signed_in(proxy, secret) as me:
        page = await opened(me, PATH)
        assert "other one" not in page.text
        assert {form.action for form in page.forms} == {
            "/hone/search",
            "/hone/sign-out",
            "",
        }  # and the list of keys closed
        assert (await me.get(f"{PATH}?revoke={other.id}")).status_code == 403
        form = {"csrf": csrf(page), "name": "x", "scope": "admin"}
        assert (await me.post(f"{PATH}/keys", data=form)).status_code == 403
        assert (await me.post(f"{PATH}/keys/{other.id}/revoke", data=form)).status_code == 403
        assert len(await keys.list_keys(Project(store, PROJECT))) == 2


async def test_a_change_without_the_forms_token_is_refused(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        await opened(proxy.http, PATH)
        answer = await proxy.http.post(f"{PATH}/keys", data={"csrf": "guessed", "name": "x", "scope": "admin"})
        assert answer.status_code == 403
        assert await keys.list_keys(Project(store, PROJECT)) == []


async def test_settings_say_where_they_came_from_and_hide_what_is_secret(store: Store) -> None:
    settings = HoneSettings.model_validate({"engine": {"api_key": "very-secret"}, "proxy": {"port": 9}})
    shown = {
        one.key: one
        for one in settings_view(SettingsFollower(Project(store, PROJECT), settings), {"proxy.port": "hone.toml"})
    }
    assert (shown["proxy.port"].value, shown["proxy.port"].origin) == (9, "hone.toml")
    assert shown["proxy.host"].origin == "default"
    assert shown["engine.api_key"].value == "********"
    assert all(one.about or "." not in one.key or one.key.count(".") > 1 for one in shown.values())


def test_settings_stand_in_sections() -> None:
    ones = [Setting(key, 1, "default", "") for key in ("project", "proxy.port", "data", "proxy.host")]
    told = [(name, [one.key for one in of]) for name, of in group_by_section(ones)]
    assert told == [("", ["project", "data"]), ("proxy", ["proxy.port", "proxy.host"])]
