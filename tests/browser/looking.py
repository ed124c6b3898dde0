"""What is looked at on every page, whatever it shows: axe's rules, and that nothing lies over anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Page

TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")
COLOURS: Final = ("color-contrast", "link-in-text-block")  # the rules with these tags that look at colours

# What sticks out of the window sideways; only what no box of its own scrolls.
_STICKS_OUT: Final = """() => {
  const root = document.scrollingElement;
  if (root.scrollWidth <= innerWidth) return [];
  const scrolled = (e) => { for (let p = e.parentElement; p && p !== document.body; p = p.parentElement)
    if (getComputedStyle(p).overflowX !== "visible") return true; return false; };
  const out = [...document.body.querySelectorAll("*")].filter((e) => {
    const box = e.getBoundingClientRect();
    return box.width && box.right > innerWidth + 0.5 && !scrolled(e);
  });
  const name = (e) => e.outerHTML.slice(0, 120);
  return [`the page is ${root.scrollWidth} wide, the window ${innerWidth}`, ...out.slice(0, 5).map(name)];
}"""

# Two things to click of which one covers a part of the other, as far as the boxes that scroll let them be seen.
_OVERLAPS: Final = """() => {
  const seen = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const cut = (box, by) => ({ left: Math.max(box.left, by.left), top: Math.max(box.top, by.top),
    right: Math.min(box.right, by.right), bottom: Math.min(box.bottom, by.bottom) });
  const boxes = (e) => [...e.getClientRects()].map((box) => {
    for (let p = e.parentElement; p && p !== document.body; p = p.parentElement)
      if (getComputedStyle(p).overflowX !== "visible") box = cut(box, p.getBoundingClientRect());
    return box;
  }).filter((box) => box.right - box.left > 1 && box.bottom - box.top > 1 && box.right > 0);
  const all = [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea, summary")].filter(seen);
  const known = all.map((e) => [e, boxes(e)]);
  const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  const found = [];
  known.forEach(([a, as], at) => { for (const [b, bs] of known.slice(at + 1)) {
    if (a.contains(b) || b.contains(a)) continue;
    if (as.some((x) => bs.some((y) => over(x, y))))
      found.push(`${a.outerHTML.slice(0, 120)} lies over ${b.outerHTML.slice(0, 120)}`);
  } });
  return found.slice(0, 5);
}"""

_TWICE: Final = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  return [...new Set(ids.filter((id, at) => ids.indexOf(id) !== at))].map((id) => `the id ${id} is there twice`);
}"""


async def sound(page: Page) -> list[str]:
    """What is wrong with how the page that is open stands."""
    found = [line for look in (_STICKS_OUT, _OVERLAPS, _TWICE) for line in await page.evaluate(look)]
    return [*found, *await _violations(page, "tag", TAGS)]


async def legible(page: Page) -> list[str]:
    """What is wrong with its colours."""
    return await _violations(page, "rule", COLOURS)


async def _violations(page: Page, kind: Literal["tag", "rule"], values: Sequence[str]) -> list[str]:
    """What axe finds against these rules of WCAG 2.1, A and AA."""
    if not await page.evaluate("() => 'axe' in window"):  # half a megabyte: once a page
        await page.evaluate(AXE_SCRIPT)
    options = {"runOnly": {"type": kind, "values": values}, "resultTypes": ["violations"]}
    found = await page.evaluate("(options) => axe.run(document, options)", options)
    return [_line(rule, node) for rule in found["violations"] for node in rule["nodes"][:3]]


def _line(rule: dict[str, Any], node: dict[str, Any]) -> str:
    why = " ".join(str(node["failureSummary"]).split())
    return f"{rule['id']} at {node['target']}: {node['html'][:160]}: {why[:300]}"
