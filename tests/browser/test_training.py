"""The page of training while something trains: it goes on by itself, and what a person opened or chose stays."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.async_api import Page, expect

from recorder.queue import leases
from recorder.store.database import Project
from recorder.views.status.training import TRAINER
from tests.browser.visiting import Visitor
from tests.proxy.running import ALIAS, PROJECT, Proxy

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

_MS = 10_000  # between two looks of the page
LEARNER: Final = "#overview dl.facts dt:text-is('learner') + dd"


async def trains(proxy: Proxy, alias: str) -> None:
    """Some process trains an alias from now on."""
    assert await leases.acquire_lease(Project(proxy.store, PROJECT), TRAINER + alias, "a test", 600)


async def nobody_trains(proxy: Proxy) -> None:
    """From now on."""
    for one in await leases.list_holders(Project(proxy.store, PROJECT), TRAINER):
        await leases.release_lease(proxy.store, one)


async def opened(visitor: Visitor) -> Page:
    """The page, whose clock the test moves."""
    await visitor.page.clock.install()
    await visitor.goto("/hone/training")
    return visitor.page


async def test_the_page_goes_on_while_somebody_trains_and_stands_when_nobody_does(editor: Visitor, own: Proxy) -> None:
    await nobody_trains(own)
    await trains(own, ALIAS)
    page = await opened(editor)
    learner = page.locator(LEARNER)
    await expect(learner).to_have_text(f"trains {ALIAS}")
    table = page.locator("#overview details[id]").first
    await table.locator("summary").click()
    await trains(own, "other")
    await page.clock.run_for(_MS)
    await expect(learner).to_have_text(f"trains {ALIAS}, other")
    await expect(table).to_have_attribute("open", "")
    await nobody_trains(own)
    await page.clock.run_for(_MS)
    await expect(learner).to_contain_text("not running")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.clock.run_for(5 * _MS)
    assert asked == []


async def test_what_a_person_is_about_to_choose_is_not_taken_away(editor: Visitor, own: Proxy) -> None:
    await nobody_trains(own)
    await trains(own, ALIAS)
    page = await opened(editor)
    chosen = page.locator("#alias")
    await chosen.select_option(ALIAS)
    await trains(own, "other")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.clock.run_for(3 * _MS)
    assert asked == []
    assert await chosen.input_value() == ALIAS
    await chosen.select_option("")
    await page.clock.run_for(_MS)
    await expect(page.locator(LEARNER)).to_have_text(f"trains {ALIAS}, other")
