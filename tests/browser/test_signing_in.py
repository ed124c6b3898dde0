"""With keys: who signs in sees and changes what the key may, is told what it may not, and signs out."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from proxy.admission import auth
from recorder.registry import keys
from recorder.store.database import Project
from tests.browser.looking import sound
from tests.browser.rich import Rich
from tests.browser.visiting import Visitor, visiting
from tests.proxy.running import PROJECT, Proxy

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(autouse=True)
def _keys_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "REMEMBER_S", 0.0)


async def sign_in(visitor: Visitor, proxy: Proxy, *scopes: str, asked_for: str = "/hone/") -> None:
    """Go somewhere with a new key."""
    _, secret = await keys.create_key(Project(proxy.store, PROJECT), "anna", scopes)
    await visitor.goto(asked_for)
    await visitor.page.get_by_role("textbox").fill(secret)
    await visitor.page.get_by_role("button", name="Sign in").click()


async def must_sign_in(visitor: Visitor) -> None:
    """Whatever page it asks for, it is led to sign in."""
    await visitor.goto("/hone/trajectories")
    await expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Sign in")


async def test_who_signs_in_comes_to_the_page_that_was_asked_for_and_signs_out(
    browser: Browser, own: Proxy, rich: Rich
) -> None:
    async with visiting(browser, own.url) as visitor:
        await sign_in(visitor, own, "read", asked_for=f"/hone/groups/{rich.group}")
        await expect(visitor.page).to_have_url(f"{own.url}/hone/groups/{rich.group}")
        await visitor.page.get_by_role("button", name="Sign out").click()
        await must_sign_in(visitor)


async def test_a_key_that_nobody_made_opens_nothing(browser: Browser, own: Proxy) -> None:
    await keys.create_key(Project(own.store, PROJECT), "anna", ["read"])
    async with visiting(browser, own.url) as visitor:
        await visitor.goto("/hone/sign-in")
        visitor.watch.refusals.add(403)
        await visitor.page.get_by_role("textbox").fill("hone_nobodys")
        await visitor.page.get_by_role("button", name="Sign in").click()
        await expect(visitor.page.get_by_role("alert")).to_contain_text("unknown")
        assert await sound(visitor.page) == []
        await must_sign_in(visitor)


async def test_who_may_only_read_is_offered_no_change_and_refused_one(browser: Browser, own: Proxy, rich: Rich) -> None:
    async with visiting(browser, own.url) as visitor:
        await sign_in(visitor, own, "read", asked_for=f"/hone/trajectories/{rich.run}")
        page = visitor.page
        assert await page.locator("main form[method=post]").count() == 0
        visitor.watch.refusals.add(403)
        # a form of the page's own, sent elsewhere: as who reads the source would
        await page.evaluate(
            "(path) => { const form = document.querySelector('form[method=post]'); form.action = path; form.submit() }",
            f"/hone/trajectories/{rich.run}/delete",
        )
        await expect(page.get_by_role("alert")).to_contain_text("admin")
        await visitor.goto(f"/hone/trajectories/{rich.run}")


async def test_a_key_is_made_shown_once_and_revoked(browser: Browser, own: Proxy) -> None:
    async with visiting(browser, own.url) as visitor:
        page = visitor.page
        await sign_in(visitor, own, "read", "admin", asked_for="/hone/settings")
        await page.get_by_text("Create a key").click()
        await page.get_by_label("Name", exact=True).fill("bert")
        await page.get_by_role("button", name="Create the key").click()
        secret = await page.get_by_label("The key").inner_text()
        assert await keys.verify_secret(own.store, secret) is not None
        assert await sound(page) == []
        await page.get_by_role("link", name="All keys").click()
        assert secret not in await page.content()
        await page.get_by_role("link", name="Revoke bert").click()
        assert await sound(page) == []
        await page.get_by_role("button", name="Revoke").click()
        await expect(page.get_by_role("row").filter(has_text="bert")).to_contain_text("revoked")
        assert await keys.verify_secret(own.store, secret) is None
