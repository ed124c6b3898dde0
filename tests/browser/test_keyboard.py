"""What is reached without a mouse: lines of a list, search, pages by two letters, the list of keys."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.visiting import Visitor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]


async def test_lines_are_walked_and_opened(reader: Visitor) -> None:
    page = reader.page
    await reader.goto("/hone/trajectories")
    lines, chosen = page.locator("[data-line]"), page.locator("[data-line].chosen")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    assert await chosen.inner_text() == await lines.nth(1).inner_text()
    await page.keyboard.press("k")
    assert await chosen.inner_text() == await lines.nth(0).inner_text()
    goal = await chosen.locator("a").first.get_attribute("href")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{goal}")


async def test_two_letters_go_to_a_page(reader: Visitor) -> None:
    await reader.goto("/hone/")
    await reader.page.keyboard.press("g")
    await reader.page.keyboard.press("r")
    await reader.page.wait_for_url("**/hone/trajectories")


async def test_a_slash_goes_to_the_search(reader: Visitor) -> None:
    await reader.goto("/hone/trajectories")
    await reader.page.keyboard.press("/")
    await expect(reader.page.locator("input[type=search]")).to_be_focused()
    await reader.page.keyboard.type("depot/")
    await expect(reader.page.locator("input[type=search]")).to_have_value("depot/")


async def test_the_keys_are_listed(reader: Visitor) -> None:
    await reader.goto("/hone/")
    await reader.page.keyboard.press("?")
    keys = reader.page.get_by_role("dialog")
    await expect(keys).to_contain_text("next and previous row")
    await keys.get_by_role("button", name="Close").click()
    await expect(keys).to_be_hidden()


async def test_the_first_thing_that_tab_reaches_leads_to_the_content(reader: Visitor) -> None:
    await reader.goto("/hone/")
    await reader.page.keyboard.press("Tab")
    await expect(reader.page.get_by_role("link", name="Skip to content")).to_be_focused()
