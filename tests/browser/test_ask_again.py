"""From any page to a call by its id, its request copied, and the call asked again; with scripts, and without them."""

from __future__ import annotations

import json
import shlex

import pytest
from playwright.async_api import Browser, expect

from tests.browser.visiting import NARROW, Visitor, visiting
from tests.proxy.running import ALIAS, Proxy

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

VERSION = f"{ALIAS}@0"


async def asked(proxy: Proxy) -> tuple[str, str]:
    """A trajectory of one call, and the call."""
    answer = await proxy.chat('Where\'s "it"?', model=VERSION)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-hone-trajectory"], answer.headers["x-hone-call"]


async def test_a_call_is_found_by_its_id_copied_and_asked_again(editor: Visitor, own: Proxy) -> None:
    run, call = await asked(own)
    page = editor.page
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await editor.goto("/hone/settings")
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search words or an id")).to_be_focused()
    await page.keyboard.type(call)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/hone/trajectories/{run}/calls/{call}")

    await page.get_by_role("button", name="Copy as curl").click()
    copied = await page.evaluate("navigator.clipboard.readText()")
    arguments = shlex.split(copied.replace(" \\\n", " "))
    assert arguments[1] == f"{own.url}/v1/chat/completions"
    assert json.loads(arguments[-1])["messages"] == [{"role": "user", "content": 'Where\'s "it"?'}]
    await page.get_by_role("button", name="Copy as Python").click()
    compile(await page.evaluate("navigator.clipboard.readText()"), "copied.py", "exec")

    await page.get_by_role("link", name="Ask again").click()
    await page.get_by_text("Change messages").click()
    await page.get_by_label("1 user").fill("Where is it now?")
    await page.get_by_label("Answers").fill("1")
    await page.get_by_role("button", name="Ask", exact=True).click()
    await expect(page.get_by_role("heading", name="1 new answer beside the recorded one")).to_be_visible()
    await expect(page.get_by_text("other messages")).to_be_visible()
    await page.get_by_role("link", name="the new call").click()
    await expect(page.get_by_text("Where is it now?").first).to_be_visible()
    await page.locator("dd", has=page.locator(f"a[href='/hone/trajectories/{call}']")).get_by_role("link").click()
    await page.wait_for_url(f"**/hone/trajectories/{run}/calls/{call}")


async def test_all_of_it_works_on_a_telephone_without_scripts(browser: Browser, own: Proxy) -> None:
    run, call = await asked(own)
    async with visiting(browser, own.url, "dark", viewport=NARROW, java_script_enabled=False) as visitor:
        page = visitor.page
        await visitor.goto("/hone/")
        await page.get_by_label("Search words or an id").fill(run)
        await page.get_by_role("button", name="Find").click()
        await page.wait_for_url(f"**/hone/trajectories/{run}")
        await page.get_by_label("message 1", exact=True).click()
        await page.wait_for_url(f"**/hone/trajectories/{run}#turn-1")
        await visitor.goto(f"/hone/trajectories/{run}/calls/{call}")
        await expect(page.get_by_role("button", name="Copy as curl")).to_be_hidden()
        await page.get_by_text("As curl", exact=True).click()
        await expect(page.locator("#as-curl")).to_be_visible()
        await visitor.goto(f"/hone/trajectories/{run}/calls/{call}/ask-again")
        await page.get_by_label("Answers").fill("1")
        await page.get_by_role("button", name="Ask", exact=True).click()
        await expect(page.get_by_text("1 new answer beside the recorded one")).to_be_visible()
