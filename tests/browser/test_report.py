"""A campaign's report, opened from the disk: nothing said in it runs, nothing is asked for, and it stands well."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, ViewportSize

from recorder.base.terminal import clean
from recorder.report import page as pages
from tests.browser.looking import sound
from tests.browser.visiting import NARROW, WIDE, Scheme
from tests.proxy.dashboard.xss import CORPUS
from tests.recorder.report.test_page import report

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

_RAN: Final = "() => '__xss' in window || document.title === 'xss' || document.cookie !== ''"
_USED: Final = """() => {
  document.querySelectorAll("details").forEach((e) => { e.open = true; });
  for (const e of document.querySelectorAll("main *"))
    for (const name of ["mouseover", "mouseenter", "focus", "blur", "click"]) e.dispatchEvent(new Event(name));
}"""


async def test_hostile_transcripts_are_read_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    pages.write_page(report(2, CORPUS[0], said=CORPUS), path)
    page = await browser.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    await page.goto(path.as_uri())
    await page.evaluate(_USED)
    text = "".join((await page.evaluate("() => document.body.textContent")).split())
    assert not await page.evaluate(_RAN)
    assert asked == [path.as_uri()]
    assert said == []
    assert [each for each in CORPUS if "".join(clean(each).split()) not in text] == []
    await page.close()


async def test_a_script_that_did_get_in_would_not_run(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    html = pages.render_page(report(2))
    path.write_text(
        html.replace("</footer>", "<script>window.__xss=1</script><img src=x onerror=window.__xss=1></footer>")
    )
    page = await browser.new_page()
    await page.goto(path.as_uri())
    assert not await page.evaluate(_RAN)
    await page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_it_stands_well_wide_and_narrow_light_and_dark(
    browser: Browser, tmp_path: Path, size: ViewportSize, scheme: Scheme
) -> None:
    path = tmp_path / "report.html"
    pages.write_page(report(6, "helpdesk@3", served="helpdesk@3"), path)
    page = await browser.new_page(viewport=size, color_scheme=scheme)
    await page.goto(path.as_uri())
    await page.evaluate(_USED)
    assert await sound(page) == []
    await page.close()
