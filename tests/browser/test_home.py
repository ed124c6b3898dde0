"""Home answers its three questions at the widths of a telephone, a tablet and a desk, above what comes below."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.looking import legible, sound
from tests.browser.visiting import Visitor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

QUESTIONS = ("Is it learning?", "Is it healthy?", "What needs me?")


@pytest.mark.parametrize("width", [390, 1024, 1440])
async def test_the_answers_and_the_curve_stand(full_tab: Visitor, width: int) -> None:
    page = full_tab.page
    async with full_tab.watched():
        await page.set_viewport_size({"width": width, "height": 900})
        await full_tab.goto("/hone/")
        for question in QUESTIONS:
            await expect(page.get_by_role("heading", name=question)).to_be_visible()
        await expect(page.get_by_text("helpdesk@2 has the success rate 94 %")).to_be_visible()
        curve = page.get_by_role("img", name="held-out success: helpdesk@0 34%")
        await expect(curve).to_be_visible()
        box = await curve.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert await (sound if scheme == "light" else legible)(page) == []
        await page.emulate_media(color_scheme="light")


async def test_on_a_desk_all_three_begin_without_scrolling(full_tab: Visitor) -> None:
    page = full_tab.page
    async with full_tab.watched():
        await page.set_viewport_size({"width": 1440, "height": 900})
        await full_tab.goto("/hone/")
        for question in QUESTIONS:
            await expect(page.get_by_role("heading", name=question)).to_be_in_viewport()


async def test_the_answers_are_updated_without_a_reload(full_tab: Visitor) -> None:
    page = full_tab.page
    async with full_tab.watched():
        await full_tab.goto("/hone/")
        await page.evaluate("() => document.getElementById('live-answers').replaceChildren()")
        await expect(page.get_by_role("heading", name="Is it learning?")).to_be_visible()
