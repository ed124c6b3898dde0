"""Every page, on the rich store and on an empty one, at two widths, light and dark: it stands, axe finds nothing.

A worker's pages are opened in one tab after another, each twice: light and dark. A new tab a page and look would cost
three times as much, most of it for the browser's new process.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy import dashboard
from tests.browser import pages
from tests.browser.looking import sound
from tests.browser.rich import Rich
from tests.browser.visiting import NARROW, WIDE, Scheme, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

SCHEMES: tuple[Scheme, ...] = ("light", "dark")
EVERYWHERE = pytest.mark.parametrize("where", [pytest.param(where, id=str(where)) for where in pages.everywhere()])
# How a script would read the window's width or the colour scheme.
_READS_LOOK = re.compile(
    r"matchMedia|(inner|outer|client|offset|scroll)Width|ResizeObserver|BoundingClientRect|\bscreen\b"
)


async def test_no_page_is_left_out() -> None:
    opened = {where.path for where in pages.everywhere()} | pages.PARTS
    there = set(pages.paths())
    assert there <= opened, f"tests/browser/pages.py does not say where these are opened: {sorted(there - opened)}"
    assert opened <= there, f"tests/browser/pages.py knows pages that are no more: {sorted(opened - there)}"


async def test_no_script_reads_the_width_so_that_a_resized_page_equals_one_opened_at_that_width() -> None:
    scripts = list(Path(dashboard.__file__).parent.rglob("*.js"))
    assert scripts
    assert [script.name for script in scripts if _READS_LOOK.search(script.read_text("utf-8"))] == []


async def troubles(visitor: Visitor, path: str) -> dict[str, list[str]]:
    """What is wrong with the page, by width and colour scheme."""
    found: dict[str, list[str]] = {}
    for scheme in SCHEMES:
        await visitor.page.emulate_media(color_scheme=scheme)
        await visitor.page.set_viewport_size(WIDE)
        await visitor.goto(path)
        for size in (WIDE, NARROW):
            await visitor.page.set_viewport_size(size)
            found[f"{size['width']} {scheme}"] = await sound(visitor.page)
    return {look: lines for look, lines in found.items() if lines}


@EVERYWHERE
async def test_a_page_stands_for_everybody(full_tab: Visitor, rich: Rich, where: pages.Where) -> None:
    async with full_tab.watched():
        assert await troubles(full_tab, f"/hone{where.on(rich)}") == {}


@pytest.mark.parametrize("path", pages.whole())
async def test_a_page_stands_where_nothing_was_recorded(empty_tab: Visitor, path: str) -> None:
    async with empty_tab.watched():
        assert await troubles(empty_tab, f"/hone{path}") == {}


@EVERYWHERE
async def test_a_page_is_read_without_scripts(unscripted_tab: Visitor, rich: Rich, where: pages.Where) -> None:
    async with unscripted_tab.watched():
        await unscripted_tab.goto(f"/hone{where.on(rich)}")
        assert await unscripted_tab.page.get_by_role("heading", level=1).count() == 1
        assert await unscripted_tab.page.locator("main").inner_text() != ""
