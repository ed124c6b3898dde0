"""Every page on a store full of hostile text, in a real browser: none of it runs, is asked for, or becomes markup."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Request
from sqlalchemy import select

from recorder.base.terminal import clean
from recorder.store.database import Store
from recorder.store.schema import calls, trajectories
from tests.browser import pages
from tests.browser.planted import ATTEMPTS, plant
from tests.browser.rich import Rich
from tests.browser.served import copied, served
from tests.browser.visiting import Visitor, visiting
from tests.proxy.dashboard.markup import foreign
from tests.proxy.dashboard.xss import CORPUS

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

# What somebody does with a page: everything is unfolded, passed over, focused; nothing is sent or left.
_USED: Final = """async () => {
  document.querySelectorAll("details").forEach((e) => { e.open = true; });
  for (const e of document.querySelectorAll("main *")) {
    for (const name of ["mouseover", "mouseenter", "mousemove", "pointerover", "focus", "blur"])
      e.dispatchEvent(new Event(name, { bubbles: false }));
    if (e.matches("a, input, button, select, textarea, summary, [tabindex]")) e.focus({ preventScroll: true });
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
}"""
# What ran, and what stands in the page that is none of ours.
_FOUND: Final = """() => {
  const found = [];
  if ("__xss" in window) found.push("a script set window.__xss");
  if (document.title === "xss") found.push("a script set the title");
  if (document.cookie) found.push(`a cookie that scripts read: ${document.cookie}`);
  const ours = (e) => e.matches("script[src^='/hone/static/']");
  const never = "script, iframe, object, embed, base, style, [style], [srcdoc], meta[http-equiv]";
  for (const e of document.querySelectorAll(never))
    if (!ours(e)) found.push(e.outerHTML.slice(0, 200));
  for (const e of document.querySelectorAll("*")) for (const { name, value } of e.attributes) {
    if (name.startsWith("on")) found.push(`${e.tagName} ${name}`);
    if (["href", "src", "action", "formaction"].includes(name)
      && new URL(value, location.href).origin !== location.origin) found.push(`${e.tagName} ${name}=${value}`);
  }
  return found;
}"""


def _bare(text: str) -> str:
    """Without blanks, which a page lays out."""
    return "".join(text.split())


_READABLE: Final = {each: _bare(clean(each)) for each in CORPUS}  # as a page shows them


async def found_on(visitor: Visitor, path: str) -> list[str]:
    """What of the hostile text had any effect on a page, in the browser or in its markup."""
    asked: list[str] = []

    def note(request: Request) -> None:
        if "xss" in request.url and not request.url.endswith(path):  # an id may hold the letters by chance
            asked.append(f"asked for {request.url}")

    visitor.page.on("request", note)
    answer = await visitor.page.goto(path)
    assert answer is not None
    assert answer.status < 500, path
    await visitor.page.evaluate(_USED)
    told: list[str] = await visitor.page.evaluate(_FOUND)
    cookies: list[Any] = await visitor.page.context.cookies()
    visitor.page.remove_listener("request", note)
    markup = foreign(await answer.text())
    return [*told, *asked, *markup, *(f"a cookie: {one['name']}" for one in cookies if one["name"] == "xss")]


async def readable(visitor: Visitor, of: AbstractSet[str]) -> set[str]:
    """Which of these texts stand on the page, to be read."""
    text = _bare(await visitor.page.evaluate("() => document.body.textContent"))
    return {each for each in of if _READABLE[each] in text}


async def answered(store: Store, groups: list[str]) -> dict[str, str]:
    """The runs of these groups, each with a call of it that was answered."""
    async with store.read() as conn:
        query = select(calls.c.trajectory_id, calls.c.id).join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        made = await conn.execute(query.where(trajectories.c.group_id.in_(groups)).order_by(calls.c.id))
        return {str(run): str(call) for run, call in made}


def with_pages_of(rich: Rich, groups: list[str], runs: Mapping[str, str]) -> list[str]:
    """Every page, and those of each group and run that was made for this."""
    found = ["/hone" + where.on(rich) for where in pages.everywhere()]
    for opened in list(found):
        found += [opened.replace(rich.group, group) for group in groups if rich.group in opened]
        here = runs.items() if rich.run in opened else ()
        found += [opened.replace(rich.run, run).replace(rich.call, call) for run, call in here]
    return list(dict.fromkeys(found))


@pytest.mark.timeout(400)  # it opens every page of everything that was planted, beside another suite
async def test_nothing_that_was_recorded_runs_on_any_page(browser: Browser, rich: Rich, tmp_path: Path) -> None:
    data = copied(rich.data, tmp_path / "data")
    groups = await plant(data)
    async with served(data) as proxy, visiting(browser, proxy.url) as visitor:
        runs = await answered(proxy.store, groups)
        assert len(runs) == len(groups) * ATTEMPTS
        visitor.watch.refusals |= {400, 404}  # of a page that asks what is to be done, and was told nothing
        shown: set[str] = set()
        for path in with_pages_of(rich, groups, runs):
            assert await found_on(visitor, path) == [], path
            shown |= await readable(visitor, _READABLE.keys() - shown)
        assert len(shown) > len(CORPUS) * 0.9  # or nothing was tried


async def test_a_page_that_did_run_it_would_be_seen(browser: Browser) -> None:
    """On a page that escapes nothing, so that the test above can fail."""
    page = await browser.new_page()
    ran = 0
    for text in CORPUS[:8]:
        await page.goto("about:blank")
        await page.set_content(f"<!doctype html><main>{text}</main>")
        ran += bool(await page.evaluate("() => '__xss' in window || document.title === 'xss'"))
    await page.close()
    assert ran
