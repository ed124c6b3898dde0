"""Every page, on the rich store and on an empty one, at two widths, light and dark: it stands, axe finds nothing."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser

from tests.browser import pages
from tests.browser.looking import sound
from tests.browser.rich import Rich
from tests.browser.visiting import NARROW, WIDE, Scheme, visiting
from tests.proxy.running import Proxy

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

LOOKS = [
    pytest.param(WIDE, "light", id="1280-light"),
    pytest.param(NARROW, "dark", id="390-dark"),
    pytest.param(WIDE, "dark", id="1280-dark", marks=pytest.mark.slow),
    pytest.param(NARROW, "light", id="390-light", marks=pytest.mark.slow),
]
EVERYWHERE = pytest.mark.parametrize("where", [pytest.param(where, id=str(where)) for where in pages.everywhere()])


async def test_no_page_is_left_out() -> None:
    opened = {where.path for where in pages.everywhere()} | pages.PARTS
    there = set(pages.paths())
    assert there <= opened, f"tests/browser/pages.py does not say where these are opened: {sorted(there - opened)}"
    assert opened <= there, f"tests/browser/pages.py knows pages that are no more: {sorted(opened - there)}"


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
@EVERYWHERE
async def test_a_page_stands_for_everybody(
    browser: Browser, full: Proxy, rich: Rich, where: pages.Where, size: Any, scheme: Scheme
) -> None:
    async with visiting(browser, full.url, scheme, viewport=size) as visitor:
        await visitor.goto(f"/hone{where.on(rich)}")
        assert await sound(visitor.page) == []


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
@pytest.mark.parametrize("path", pages.whole())
async def test_a_page_stands_where_nothing_was_recorded(
    browser: Browser, empty: Proxy, path: str, size: Any, scheme: Scheme
) -> None:
    async with visiting(browser, empty.url, scheme, viewport=size) as visitor:
        await visitor.goto(f"/hone{path}")
        assert await sound(visitor.page) == []


@EVERYWHERE
async def test_a_page_is_read_without_scripts(browser: Browser, full: Proxy, rich: Rich, where: pages.Where) -> None:
    async with visiting(browser, full.url, java_script_enabled=False) as visitor:
        await visitor.goto(f"/hone{where.on(rich)}")
        assert await visitor.page.get_by_role("heading", level=1).count() == 1
        assert await visitor.page.locator("main").inner_text() != ""
