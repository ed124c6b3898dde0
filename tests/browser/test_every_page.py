"""Every page, on the rich store and on an empty one, at two widths, light and dark: it stands, axe finds nothing.

A worker's pages are opened in one tab after another, each once. A new tab a page and look would cost several times as
much, most of it for the browser's new process. The dark scheme differs in its colours alone, so of dark pages the
colours are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from playwright.async_api import Page

from proxy import dashboard
from tests.browser import pages
from tests.browser.looking import legible, sound
from tests.browser.rich import Rich
from tests.browser.visiting import NARROW, WIDE, Scheme, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

LOOKS: tuple[tuple[Scheme, Callable[[Page], Awaitable[list[str]]]], ...] = (("light", sound), ("dark", legible))
EVERYWHERE = pytest.mark.parametrize("where", [pytest.param(where, id=str(where)) for where in pages.everywhere()])
# How a script would read the window's width or the colour scheme.
_READS_LOOK = re.compile(
    r"matchMedia|(inner|outer|client|offset|scroll)Width|ResizeObserver|BoundingClientRect|\bscreen\b"
)

# What the stylesheet says of the dark scheme, and a variable for a colour.
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}\s*\}", re.DOTALL)
_COLOUR = re.compile(r"--[a-z]+: #[0-9a-f]{3,6};")
# Waits for up to a minute until each chart is the dark one: a page that turns dark loads them then.
_DARK_CHARTS = """async () => {
  const waits = () => [...document.querySelectorAll("picture img")].filter(
    (image) => !image.complete || !image.currentSrc.endsWith("dark=1"));
  for (let times = 0; waits().length && times < 3000; times++) await new Promise((done) => setTimeout(done, 20));
  return waits().map((image) => image.currentSrc);
}"""


async def test_no_page_is_left_out() -> None:
    opened = {where.path for where in pages.everywhere()} | pages.PARTS
    there = set(pages.paths())
    assert there <= opened, f"tests/browser/pages.py does not say where these are opened: {sorted(there - opened)}"
    assert opened <= there, f"tests/browser/pages.py knows pages that are no more: {sorted(opened - there)}"


async def test_no_script_reads_the_width_so_that_a_resized_page_equals_one_opened_at_that_width() -> None:
    scripts = list(Path(dashboard.__file__).parent.rglob("*.js"))
    assert scripts
    assert [script.name for script in scripts if _READS_LOOK.search(script.read_text("utf-8"))] == []


async def test_dark_pages_differ_in_colours_alone_so_that_their_colours_alone_are_looked_at() -> None:
    folder = Path(dashboard.__file__).parent
    named = {file.name for file in folder.rglob("*.*") if b"prefers-color-scheme" in file.read_bytes()}
    # A chart has two pictures, of which one is shown.
    assert named == {"hone.css", "chart.html", "campaign_chart.html"}
    [dark] = _DARK.findall((folder / "static" / "hone.css").read_text("utf-8"))
    assert _COLOUR.findall(dark)
    assert _COLOUR.sub("", dark).strip() == ""


async def troubles(visitor: Visitor, path: str) -> dict[str, list[str]]:
    """What is wrong with the page, by width and colour scheme."""
    found: dict[str, list[str]] = {}
    await visitor.page.set_viewport_size(WIDE)
    await visitor.page.emulate_media(color_scheme="light")
    await visitor.goto(path)
    for scheme, look in LOOKS:
        await visitor.page.emulate_media(color_scheme=scheme)
        if scheme == "dark":
            assert await visitor.page.evaluate(_DARK_CHARTS) == []
        for size in (WIDE, NARROW):
            await visitor.page.set_viewport_size(size)
            found[f"{size['width']} {scheme}"] = await look(visitor.page)
    return {where: lines for where, lines in found.items() if lines}


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
