"""What holds on every page, found by walking the table of pages: headers, tokens, sign-ins, scopes; and the templates
that they are made of.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from proxy.admission.pages import ALLOWED, COOKIE
from proxy.dashboard import forms
from proxy.dashboard.renderer import HERE
from recorder.registry import keys
from recorder.store.bootstrap import ensure_project
from recorder.store.database import Project, Store
from recorder.store.schema import keys as keys_table
from recorder.store.schema import sign_ins as sign_ins_table
from recorder.store.sql import now
from tests.proxy.dashboard.walking import (
    BY_FEEDBACK,
    FORM,
    Walked,
    browser,
    changes,
    content,
    headers_of,
    sign_in,
    token_of,
    walked,
)
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving

CSP = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
LIVE = Walked("GET", "/hone/live")  # a stream, and no handler of the table
PAGES = HERE.rglob("*.py")
FOR_ADMINS = "/hone/programs"  # a log may hold what agents and judges said
TEMPLATES = sorted((HERE / "templates").rglob("*.html"))
SCRIPTS = sorted((HERE / "static").rglob("*.js"))
STYLES = sorted((HERE / "static").rglob("*.css"))


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[Proxy]:
    """Without keys."""
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


@pytest.fixture
async def admin(store: Store) -> str:
    return (await keys.create_key(Project(store, PROJECT), "an admin", ["admin"]))[1]


@pytest.fixture
async def guarded(store: Store, admin: str) -> AsyncIterator[Proxy]:
    """With a key."""
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


# --- headers


def lacking(answer: httpx.Response) -> dict[str, str | None]:
    return {name: answer.headers.get(name) for name, value in HEADERS.items() if answer.headers.get(name) != value}


@pytest.mark.slow
async def test_every_page_and_every_error_has_the_headers(proxy: Proxy) -> None:
    asked = [*walked("GET"), LIVE, Walked("GET", "/hone"), Walked("GET", "/hone/nothing"), Walked("PUT", "/hone/")]
    assert len(asked) > 5
    for one in (*asked, *changes()):
        answer = await headers_of(proxy.http, one)
        assert not lacking(answer), (one, answer.status_code)
        assert answer.status_code < 500, one


@pytest.mark.slow
async def test_what_shows_anything_recorded_is_kept_by_no_cache(proxy: Proxy) -> None:
    for one in walked("GET"):
        if "/static/" not in one.path:
            assert (await headers_of(proxy.http, one)).headers["cache-control"] == "no-store", one


# --- changes


async def refused(proxy: Proxy, one: Walked, *, data: dict[str, str], **headers: str) -> int:
    """The status of a form that must have changed nothing."""
    before = await content(proxy.store)
    answer = await proxy.http.request(one.method, one.path, data=data, headers=FORM | headers)
    assert not lacking(answer), one
    assert await content(proxy.store) == before, one
    return answer.status_code


@pytest.mark.slow
async def test_a_change_needs_the_token_of_the_browser_that_sends_it(proxy: Proxy) -> None:
    token = await token_of(proxy.http, "/hone/sign-in")
    async with browser(proxy) as another:
        others = await token_of(another, "/hone/sign-in")
    assert others != token
    for one in changes():
        assert await refused(proxy, one, data={}) == 403, one
        assert await refused(proxy, one, data={"csrf": others}) == 403, one
        assert await refused(proxy, one, data={"csrf": token[:-1]}) == 403, one
        assert await refused(proxy, one, data={"csrf": token}, origin="http://evil.example") == 403, one
    proxy.http.cookies.clear()
    for one in changes():
        assert await refused(proxy, one, data={"csrf": token}) == 403, one


@pytest.mark.slow
async def test_a_change_is_a_form_and_nothing_else(proxy: Proxy) -> None:
    token = await token_of(proxy.http, "/hone/sign-in")
    before = await content(proxy.store)
    for one in changes():
        assert one.method == "POST", one
        for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x", ""):
            answer = await proxy.http.post(one.path, content=f'{{"csrf":"{token}"}}', headers={"content-type": kind})
            assert answer.status_code == 415, (one, kind)
    assert await content(proxy.store) == before


@pytest.mark.slow
async def test_looking_changes_nothing(proxy: Proxy) -> None:
    before = await content(proxy.store)
    for one in walked("GET"):
        await headers_of(proxy.http, one)
    assert await content(proxy.store) == before


# --- a proxy without keys


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "hone.evil.example:8700"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "null", "sec-fetch-site": "cross-site"},
        {"x-forwarded-for": "10.0.0.1"},
        {"forwarded": "for=10.0.0.1"},
    ],
)
@pytest.mark.slow
async def test_without_keys_no_page_is_served_to_anywhere_else(proxy: Proxy, headers: dict[str, str]) -> None:
    for one in (*walked("GET"), LIVE, *changes()):
        answer = await headers_of(proxy.http, one, **headers)
        assert answer.status_code == 403, one
        assert not lacking(answer), one


# --- signing in


@pytest.mark.slow
async def test_a_browser_is_led_to_sign_in_and_back_to_its_page(guarded: Proxy, admin: str) -> None:
    for one in walked("GET"):
        if one.opened_by_all:
            continue
        asked = Walked("GET", one.path + "?state=open&tag=a%26b")
        answer = await headers_of(guarded.http, asked, accept="text/html,application/xhtml+xml")
        assert answer.status_code == 303, one
        assert not lacking(answer), one
        to = urlsplit(answer.headers["location"])
        assert (to.scheme, to.netloc, to.path) == ("", "", "/hone/sign-in")
        onward = parse_qs(to.query)["onward"][0]
        assert onward == asked.path
        async with browser(guarded) as http:
            assert (await sign_in(http, admin, onward)).headers["location"] == asked.path


@pytest.mark.slow
async def test_a_sign_in_reads_the_figures_of_charts_and_nothing_else_of_the_api(guarded: Proxy, admin: str) -> None:
    async with browser(guarded, admin) as http:
        assert (await http.get("/hone/v1/charts/steps")).status_code == 200
        assert (await http.get("/hone/v1/steps")).status_code == 401
        assert (await http.post("/hone/v1/charts/steps", json={})).status_code == 401
    async with browser(guarded) as http:
        assert (await http.get("/hone/v1/charts/steps")).status_code == 401


@pytest.mark.slow
async def test_who_is_no_browser_is_told_that_a_key_is_needed(guarded: Proxy) -> None:
    for one in (*walked("GET"), LIVE, *changes()):
        if not one.opened_by_all:
            answer = await headers_of(guarded.http, one, accept="*/*")
            assert answer.status_code == 401, one
            assert not lacking(answer), one


@pytest.mark.slow
async def test_the_cookie_of_a_sign_in_is_for_no_script_and_no_other_site(guarded: Proxy, admin: str) -> None:
    answer = await sign_in(guarded.http, admin)
    name, *flags = answer.headers["set-cookie"].split("; ")
    assert name.startswith(COOKIE + "=")
    assert {"HttpOnly", "SameSite=strict", "Path=/hone", "Max-Age=43200"} <= set(flags)
    assert admin not in answer.headers["set-cookie"]


@pytest.mark.slow
async def test_a_revoked_key_ends_its_sign_ins_at_once(guarded: Proxy, store: Store) -> None:
    key, secret = await keys.create_key(Project(store, PROJECT), "reader", ["read"])
    async with browser(guarded, secret) as http:
        assert (await http.get("/hone/")).status_code == 200
        await keys.revoke_key(Project(store, PROJECT), key.id)
        assert (await http.get("/hone/")).status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize("table", [keys_table, sign_ins_table])
async def test_a_sign_in_ends_with_its_time_and_with_its_keys(guarded: Proxy, store: Store, table: object) -> None:
    _, secret = await keys.create_key(Project(store, PROJECT), "reader", ["read"])
    async with browser(guarded, secret) as http:
        assert (await http.get("/hone/")).status_code == 200
        async with store.write() as conn:
            past = now() - 1
            await conn.execute(update(keys_table if table is keys_table else sign_ins_table).values(expires_at=past))
        assert (await http.get("/hone/")).status_code == 401


@pytest.mark.slow
async def test_signing_out_ends_it_also_for_who_kept_the_cookie(guarded: Proxy, admin: str) -> None:
    async with browser(guarded, admin) as http:
        kept = http.cookies[COOKIE]
        token = await token_of(http, "/hone/")
        assert (await http.post("/hone/sign-out", data={"csrf": token})).status_code == 303
        answer = await guarded.http.get("/hone/", headers={"cookie": f"{COOKIE}={kept}"})
        assert answer.status_code == 401


@pytest.mark.slow
async def test_other_keys_open_nothing(guarded: Proxy, store: Store) -> None:
    await ensure_project(Project(store, "another"))
    _, others = await keys.create_key(Project(store, "another"), "their admin", ["admin"])
    _, no_reader = await keys.create_key(Project(store, PROJECT), "an agent", ["infer", "feedback"])
    _, of_a_run = await keys.create_key(Project(store, PROJECT), "a run's", ["read", "infer"], trajectory_id="run-1")
    for secret in (others, no_reader, of_a_run, "hone_nobody", ""):
        async with browser(guarded) as http:
            answer = await sign_in(http, secret)
            assert answer.status_code == 403
            assert COOKIE not in http.cookies
            if secret:
                page = await http.get("/hone/", headers={"authorization": f"Bearer {secret}"})
                assert page.status_code in (401, 403)


@pytest.mark.slow
async def test_wrong_keys_are_slowed_and_the_page_says_for_how_long(guarded: Proxy, admin: str) -> None:
    async with browser(guarded) as http:
        for _ in range(ALLOWED):
            assert (await sign_in(http, "hone_wrong")).status_code == 403
        answer = await sign_in(http, admin)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert not lacking(answer)
        assert "try again in" in answer.text


@pytest.mark.slow
async def test_no_secret_is_logged_or_shown_again(
    guarded: Proxy, admin: str, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "aiosqlite")  # which a program that another test started here keeps quiet
    wrong = "hone_a-wrong-one-that-somebody-mistyped"
    answers = [await sign_in(guarded.http, wrong), await sign_in(guarded.http, admin)]
    answers += [await guarded.http.get("/hone/"), await guarded.http.get("/hone/nothing")]
    browsers = ("httpx", "httpcore")  # ours, which logs what it was sent
    logged = "\n".join(each.getMessage() for each in caplog.records if not each.name.startswith(browsers))
    assert not store.is_sqlite or "keys.revoked_at" in logged  # its driver's lines are among them; asyncpg writes none
    for secret in (admin, wrong, guarded.http.cookies[COOKIE]):
        assert secret not in logged
        assert not any(secret in answer.text for answer in answers)


# --- scopes


@pytest.mark.slow
async def test_who_may_read_sees_every_page_and_changes_nothing(guarded: Proxy, store: Store) -> None:
    _, secret = await keys.create_key(Project(store, PROJECT), "reader", ["read"])
    async with browser(guarded, secret) as http:
        token = await token_of(http, "/hone/")
        asks_first = {one.path for one in changes()}  # a page that asks whether one is sure
        for one in walked("GET"):
            refused = (await headers_of(http, one)).status_code in (401, 403)
            assert refused is one.path.startswith(FOR_ADMINS) or one.path in asks_first, one
        before = await content(store)
        for one in changes():
            answer = await http.post(one.path, data={"csrf": token})
            assert answer.status_code == 403, one
            assert "needs a key with the scope" in answer.text
        assert await content(store) == before


@pytest.mark.slow
async def test_who_may_give_feedback_does_that_alone(guarded: Proxy, store: Store) -> None:
    _, secret = await keys.create_key(Project(store, PROJECT), "a user", ["read", "feedback-all"])
    async with browser(guarded, secret) as http:
        token = await token_of(http, "/hone/")
        for one in changes():
            answer = await http.post(one.path, data={"csrf": token})
            scope_is_missing = answer.status_code == 403 and "needs a key with the scope" in answer.text
            assert scope_is_missing is not one.path.endswith(BY_FEEDBACK), one


@pytest.mark.slow
async def test_an_admin_is_refused_nothing_and_an_empty_form_is_no_fault_of_ours(guarded: Proxy, admin: str) -> None:
    async with browser(guarded, admin) as http:
        token = await token_of(http, "/hone/")
        for one in changes():
            answer = await http.post(one.path, data={"csrf": token})
            assert answer.status_code not in (401, 403), one
            assert answer.status_code < 500, (one, answer.text)
            assert not lacking(answer), one
        assert not lacking(await http.post("/hone/sign-out", data={"csrf": token}))


@pytest.mark.slow
async def test_a_key_in_a_header_opens_pages_as_a_sign_in_does(guarded: Proxy, store: Store) -> None:
    _, secret = await keys.create_key(Project(store, PROJECT), "a script", ["read"])
    asks_first = {one.path for one in changes()}
    for one in walked("GET"):
        answer = await headers_of(guarded.http, one, authorization=f"Bearer {secret}")
        refused = answer.status_code in (401, 403)
        assert refused is one.path.startswith(FOR_ADMINS) or one.path in asks_first, one


# --- where one goes on to

OTHERS = st.sampled_from(
    ["//", "/\\", "\\\\", "http:", "https://", "javascript:", "data:", "@", "?", "#", "/hone", "/"]
)
NASTY = st.lists(st.one_of(OTHERS, st.text(max_size=8)), max_size=6).map("".join)


@given(NASTY)
def test_onward_leads_to_no_other_host(said: str) -> None:
    to = forms.local_path(said)
    resolved = urlsplit(to)
    assert (resolved.scheme, resolved.netloc) == ("", "")
    assert to == "/hone" or to.startswith("/hone/")
    assert not to.startswith("//")
    assert "\\" not in to
    assert to.isprintable()


# --- what pages are made of

UNESCAPED = r"\|\s*safe\b|Markup|autoescape\s+false"
OF_JINJA = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", re.DOTALL)
FORBIDDEN = {
    "a script in the page": r"<script(?![^>]*\ssrc=)",
    "a style in the page": r"<style",
    "a style attribute": r"\sstyle\s*=",
    "a handler in an attribute": r"\son[a-z]+\s*=",
    "an address elsewhere": r"""(?:src|href|action|poster|data|srcset)\s*=\s*["']?\s*(?:[a-z]+:)?//""",
    "a javascript: link": r"javascript:",
    "an element that loads or runs others' content": r"<(?:iframe|object|embed|base)\b",
}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.name))
def test_a_template_escapes_all_and_brings_nothing_in(template: Path) -> None:
    written = template.read_text()
    assert not re.search(UNESCAPED, written)
    markup = OF_JINJA.sub("x", written)
    found = {what: re.search(pattern, markup, re.IGNORECASE) for what, pattern in FORBIDDEN.items()}
    assert not {what: match[0] for what, match in found.items() if match}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.name))
def test_every_form_that_changes_something_carries_the_token(template: Path) -> None:
    for form in re.findall(r"<form\b[^>]*method=.?post.*?</form>", template.read_text(), re.IGNORECASE | re.DOTALL):
        assert "parts.hidden(csrf)" in form or 'name="csrf"' in form, form[:200]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.name))
def test_a_script_makes_no_code_and_no_markup_of_text(script: Path) -> None:
    made = r"\beval\b|new Function|innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment"
    assert not re.findall(made, script.read_text())


@pytest.mark.parametrize("style", STYLES, ids=lambda path: str(path.name))
def test_a_stylesheet_loads_nothing(style: Path) -> None:
    assert not re.search(r"@import|url\(", style.read_text())


def test_stylesheets_and_scripts_are_small() -> None:
    assert sum(path.stat().st_size for path in (*SCRIPTS, *STYLES)) < 60_000
    assert (HERE / "static" / "charts.js").stat().st_size < 22_000


def test_no_handler_marks_text_as_markup() -> None:
    assert not [path for path in PAGES if re.search(r"\bMarkup\b|autoescape=False", path.read_text())]
