"""A log in a browser: new lines arrive by themselves, as text, and stay away while it is paused."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.looking import sound
from tests.browser.served import LOG, served
from tests.browser.visiting import NARROW, visiting

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_new_lines_of_a_log_arrive_as_text_until_it_is_paused(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path / "data") as proxy, visiting(browser, proxy.url) as visitor:
        log = tmp_path / "data" / "logs" / "proxy.log"
        page = visitor.page
        await page.goto(f"{proxy.url}/hone/programs/proxy")
        await expect(page.locator("#log")).to_contain_text(LOG[1])
        with log.open("a") as file:
            file.write("<img src=x onerror=window.__xss=1>\nOPENAI_API_KEY=abcdefgh12345\n")
        await expect(page.locator("#log")).to_contain_text("<img src=x onerror=window.__xss=1>\nOPENAI_API_KEY=***\n")
        assert await page.evaluate("() => document.querySelectorAll('#log *').length") == 0
        assert await page.evaluate("() => !('__xss' in window)")
        await expect(page.locator("#log-status")).to_have_text("live")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator("#log-status")).to_have_text("paused")
        with log.open("a") as file:
            file.write("".join(f"line {number}\n" for number in range(1200)))
        await page.get_by_role("button", name="Continue").click()
        await expect(page.locator("#log")).to_contain_text("line 1199")
        lines = (await page.locator("#log").text_content() or "").splitlines()
        assert (len(lines), lines[0]) == (1000, "line 200")
        await page.set_viewport_size(NARROW)
        assert await sound(page) == []


async def test_a_log_is_read_without_scripts(browser: Browser, tmp_path: Path) -> None:
    async with served(tmp_path / "data") as proxy:
        context = await browser.new_context(java_script_enabled=False)
        page = await context.new_page()
        await page.goto(f"{proxy.url}/hone/programs")
        await page.get_by_role("link", name="Log of proxy").click()
        await expect(page.locator("#log")).to_contain_text(LOG[0])
        await expect(page.get_by_role("button", name="Pause")).to_be_hidden()
        await context.close()
