"""What looks at pages finds what is wrong with one."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from tests.browser.looking import COLOURS, TAGS, legible, sound
from tests.browser.visiting import Visitor, visiting
from tests.proxy.running import Proxy

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

_PAGE = "<!doctype html><html lang=en><title>A page</title><main><h1>A page</h1>{}</main></html>"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("<p>Nothing is wrong.</p>", ""),
        ("<p style='width: 3000px'>long</p>", "the page is"),
        ("<div style='overflow: auto' tabindex=0><p style='width: 3000px'>long</p></div>", ""),
        ("<button>One</button><button style='margin-left: -2em'>Other</button>", "lies over"),
        ("<p role='button' tabindex=0><button>One</button></p>", "nested-interactive"),
        ("<p id=x>One</p><p id=x>Two</p>", "the id x is there twice"),
        ("<input>", "label"),
        ("<p style='color: #999; background: #fff'>faint</p>", "color-contrast"),
    ],
)
async def test_what_is_wrong_is_found(reader: Visitor, body: str, found: str) -> None:
    await reader.page.set_content(_PAGE.format(body))
    told = await sound(reader.page)
    assert any(found in line for line in told) if found else told == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("<p>Nothing is wrong.</p>", ""),
        ("<input>", ""),  # no colour
        ("<p style='color: #999; background: #fff'>faint</p>", "color-contrast"),
        (
            "<p style='color: #333'>A text with <a href='#' style='color: #444; text-decoration: none'>a link</a>.</p>",
            "link-in-text-block",
        ),
    ],
)
async def test_wrong_colours_are_found(reader: Visitor, body: str, found: str) -> None:
    await reader.page.set_content(_PAGE.format(body))
    told = await legible(reader.page)
    assert any(found in line for line in told) if found else told == []


async def test_no_other_rule_looks_at_colours(reader: Visitor) -> None:
    await reader.page.set_content(_PAGE.format(""))
    await legible(reader.page)
    known = await reader.page.evaluate("(tags) => axe.getRules(tags)", TAGS)
    assert {rule["ruleId"] for rule in known if "cat.color" in rule["tags"]} == set(COLOURS)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("console.error('no')", "the console says"),
        ("setTimeout(() => { throw new Error('no') })", "a script failed"),
        ("fetch('http://127.0.0.1:9/').catch(() => {})", "Content Security Policy"),
    ],
)
async def test_what_goes_wrong_on_a_page_fails_whoever_looks_at_it(
    browser: Browser, full: Proxy, wrong: str, told: str
) -> None:
    with pytest.raises(AssertionError, match=told):
        await _meet(browser, full.url, wrong)


async def test_what_goes_wrong_in_a_shared_tab_fails_that_use_of_it_alone(full_tab: Visitor) -> None:
    with pytest.raises(AssertionError, match="the console says"):
        await _use(full_tab, "console.error('no')")
    await _use(full_tab, "")


async def _use(tab: Visitor, script: str) -> None:
    async with tab.watched():
        await tab.goto("/hone/sign-in")
        await tab.page.evaluate(f"() => {{ {script} }}")


async def _meet(browser: Browser, url: str, wrong: str) -> None:
    async with visiting(browser, url) as visitor:
        await visitor.goto("/hone/sign-in")
        await visitor.page.evaluate(f"() => {{ {wrong} }}")
        await visitor.page.evaluate("() => new Promise((done) => setTimeout(done, 0))")
