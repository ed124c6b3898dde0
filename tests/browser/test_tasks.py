"""The tasks of docs/pages.md are done from Home by visible words, in at most four clicks and one search.

The table there is what is done here: its clicks, in their order, and the words that are to be seen at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.visiting import WIDE, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]

DOCS: Final = Path(__file__).parents[2] / "docs" / "pages.md"
MOST_CLICKS, MOST_SEARCHES, FEWEST_TASKS = 4, 1, 10
SEARCH: Final = "search: "
_IN_ROW: Final = re.compile(r"(.+) \((.+)\)")  # what is clicked, and how its row begins
_CHANGES: Final = ("Make ", "A is better")  # clicks that change something: these tasks get a store of their own


@dataclass(frozen=True)
class Task:
    """What is to be done, by which clicks, and the words that are seen then."""

    what: str
    clicks: tuple[str, ...]
    seen: str

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return any(click.startswith(_CHANGES) for click in self.clicks)


def tasks() -> list[Task]:
    """The table of docs/pages.md."""
    section = DOCS.read_text("utf-8").partition("## Ten tasks")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [Task(what.strip(), tuple(clicks.split(" → ")), seen.strip(" |")) for what, clicks, seen in rows[1:]]


READ = [pytest.param(task, id=task.what) for task in tasks() if not task.changes]
CHANGED = [pytest.param(task, id=task.what) for task in tasks() if task.changes]


async def test_the_list_has_ten_short_tasks() -> None:
    assert len(tasks()) >= FEWEST_TASKS
    for task in tasks():
        searches = [click for click in task.clicks if click.startswith(SEARCH)]
        assert len(searches) <= MOST_SEARCHES, task.what
        assert len(task.clicks) - len(searches) <= MOST_CLICKS, task.what


@pytest.mark.parametrize("task", READ)
async def test_a_task_is_done_by_visible_words(full_tab: Visitor, task: Task) -> None:
    async with full_tab.watched():
        await full_tab.page.set_viewport_size(WIDE)
        await do(full_tab, task)


@pytest.mark.parametrize("task", CHANGED)
async def test_a_task_that_changes_something_is_done_by_visible_words(editor: Visitor, task: Task) -> None:
    await do(editor, task)


async def do(visitor: Visitor, task: Task) -> None:
    """Do a task from Home."""
    await visitor.goto("/hone/")
    for click in task.clicks:
        await follow(visitor.page, click)
    await expect(visitor.page.locator("main")).to_contain_text(task.seen, use_inner_text=True)


async def follow(page: Page, click: str) -> None:
    """One click, choice or search; the page that follows is loaded."""
    if click.startswith(SEARCH):
        await page.locator("main").get_by_role("searchbox").fill(click.removeprefix(SEARCH))
        await page.keyboard.press("Enter")
    elif ": " in click:
        field, _, value = click.partition(": ")
        await page.get_by_label(field, exact=True).select_option(value)
    else:
        found = _IN_ROW.fullmatch(click)
        within = row(page, found[2]) if found else page.locator("body")
        await (await shown(within, found[1] if found else click)).click()
    await page.wait_for_load_state()


def row(page: Page, words: str) -> Locator:
    """The row of a table that begins with these words."""
    return page.locator("tr").filter(has=page.locator("xpath=./*[1]").filter(has_text=words)).first


async def shown(within: Locator, words: str) -> Locator:
    """What can be clicked and shows these words and nothing else, or else among others."""
    every = within.locator("a, button, summary, label").filter(visible=True)
    exact = every.filter(has_text=re.compile(rf"^\s*{re.escape(words)}\s*$"))
    return (exact if await exact.count() else every.filter(has_text=words)).first
