"""What a person does on the pages: runs found and opened, attempts compared, feedback given, versions moved."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, Page, expect

from recorder.curation.datasets import dataset_ids
from recorder.queue import feedback
from recorder.registry.aliases import get_alias
from recorder.registry.keys import SOMEBODY
from recorder.registry.moves import list_moves
from recorder.registry.versions import get_version
from recorder.store.database import Project
from recorder.views.review.queue import QueueRequest, load_queue
from tests.browser.rich import Rich
from tests.browser.visiting import Visitor
from tests.proxy.running import ALIAS, PROJECT, Proxy

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]


async def live(proxy: Proxy) -> str:
    """The version that the alias serves, as the store says."""
    alias = await get_alias(Project(proxy.store, PROJECT), ALIAS)
    assert alias.live_version_id is not None
    return (await get_version(proxy.store, alias.live_version_id)).name


def pair(page: Page, first: str, second: str) -> Locator:
    """The question which of two runs is better. The next one may be about one of them again, on the same side: the
    sides are drawn."""
    sides = page.locator(f"input[name=first][value={first}] ~ input[name=second][value={second}]")
    return page.locator("form.choice").filter(has=sides)


async def shown_pair(page: Page) -> tuple[str, str]:
    """The two runs that are asked about, as they stand."""
    return await page.locator("input[name=first]").input_value(), await page.locator("input[name=second]").input_value()


async def test_runs_are_narrowed_by_a_filter_that_the_address_keeps(reader: Visitor) -> None:
    page = reader.page
    await reader.goto("/hone/trajectories")
    everything = await page.locator("tr[data-line]").count()
    await page.get_by_text("Filters", exact=True).click()
    await page.get_by_label("errored").check()
    await page.get_by_role("button", name="Apply").click()
    await page.wait_for_url("**state=errored**")
    left = page.locator("tr[data-line]")
    assert 0 < await left.count() < everything
    assert await left.filter(has_text="errored").count() == await left.count()
    await page.get_by_role("link", name="clear filters").click()
    await expect(left).to_have_count(everything)


async def test_a_run_is_found_by_what_was_said_in_it_and_opened(reader: Visitor, rich: Rich) -> None:
    page = reader.page
    await reader.goto("/hone/trajectories")
    await page.get_by_label("Search conversations").fill('"label is in your mail"')
    await page.get_by_role("button", name="Search").click()
    await page.locator("tr[data-line] a").first.click()
    await page.wait_for_url(f"**/hone/trajectories/{rich.run}**")
    await expect(page.get_by_text("the label is in your mail").first).to_be_visible()


async def test_from_a_run_its_group_is_reached_and_two_attempts_compared(reader: Visitor, rich: Rich) -> None:
    page = reader.page
    await reader.goto(f"/hone/trajectories/{rich.preferred}")
    await page.get_by_role("link", name="Compare the 8 attempts").click()
    await page.wait_for_url(f"**/hone/groups/{rich.group}")
    await page.get_by_label("left").select_option(index=1)
    await page.get_by_label("right").select_option(index=6)
    await page.get_by_role("button", name="Compare two").click()
    grid = page.get_by_role("region", name="Attempts side by side")
    await expect(grid).to_be_visible()
    await expect(page.get_by_role("link", name="all side by side")).to_be_visible()


async def test_a_person_says_how_a_run_went(editor: Visitor, own: Proxy, rich: Rich) -> None:
    page = editor.page
    await editor.goto(f"/hone/trajectories/{rich.long_run}")
    await page.get_by_text("Give feedback").click()
    await page.get_by_label("bad", exact=True).check()
    await page.get_by_label("Comment").fill("nobody asked\nfor that")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("nobody asked").first).to_be_visible()
    given = (await feedback.list_feedback(own.store, rich.long_run))[-1]
    assert (given.name, given.comment) == ("solved", "nobody asked\nfor that")


async def test_a_person_prefers_one_attempt(editor: Visitor, own: Proxy, rich: Rich) -> None:
    page = editor.page
    await editor.goto(f"/hone/groups/{rich.group}")
    form = page.locator("form").filter(has=page.get_by_role("heading", name="Choose the better of two"))
    better = await form.get_by_label("better").input_value()
    await form.get_by_label("reason").fill("shorter")
    await form.get_by_role("button", name="Save preference").click()
    await expect(page.get_by_role("region", name="Preferences")).to_contain_text("shorter")
    assert "preference" in [given.name for given in await feedback.list_feedback(own.store, better)]


async def test_a_person_chooses_between_two_runs_by_keys_until_nothing_waits(editor: Visitor, own: Proxy) -> None:
    page = editor.page
    await editor.goto("/hone/judge")
    await page.get_by_role("link", name="Review").first.click()
    await page.wait_for_url("**/hone/review")
    await expect(page.get_by_role("region", name="Two trajectories side by side")).to_be_visible()
    [waits] = [
        one
        for one in (await load_queue(Project(own.store, PROJECT), QueueRequest(SOMEBODY))).entries
        if one.why == "disagreement"
    ]
    await editor.goto(f"/hone/review?group={waits.group_id}")
    assert await shown_pair(page) == (waits.first, waits.second)
    await page.keyboard.press("a")
    await expect(pair(page, waits.first, waits.second)).to_have_count(0)
    for _ in range(2):
        if await page.get_by_role("button", name="A is better").count():
            answered = pair(page, *await shown_pair(page))
            await page.get_by_label("reason").fill("shorter, a bit")
            await page.get_by_role("button", name="B is better").click()
            await expect(answered).to_have_count(0)
    await expect(page.get_by_text("Nothing to review")).to_be_visible()
    [said] = [
        one for one in await feedback.list_feedback(own.store, waits.first) if one.tags.get("loser") == waits.second
    ]
    assert (said.name, said.tags["shown"]) == ("preference", "first")


async def test_a_version_is_promoted_and_rolled_back_each_asked_for_twice(editor: Visitor, own: Proxy) -> None:
    page, before = editor.page, await live(own)
    await editor.goto("/hone/versions/move?do=promote&version=helpdesk@5")
    await page.get_by_label("Reason").fill("it is better")
    assert await live(own) == before
    await page.get_by_role("button", name="Make helpdesk@5 live").click()
    await page.wait_for_url("**/hone/versions?alias=helpdesk")
    assert await live(own) == "helpdesk@5"
    await page.get_by_role("button", name="Roll back").or_(page.get_by_role("link", name="Roll back")).first.click()
    await page.get_by_role("link", name="Cancel").click()
    assert await live(own) == "helpdesk@5"
    await page.get_by_role("button", name="Roll back").or_(page.get_by_role("link", name="Roll back")).first.click()
    await page.get_by_label("Reason").fill("it was not")
    await page.get_by_role("button", name=f"Roll back to {before}").click()
    await page.wait_for_url("**/hone/versions?alias=helpdesk")
    assert await live(own) == before
    whys = [move.why for move in await list_moves(Project(own.store, PROJECT), alias=ALIAS, limit=2)]
    assert whys == ["it was not", "it is better"]


async def test_several_lines_are_selected_and_collected_and_a_filter_is_saved(editor: Visitor, own: Proxy) -> None:
    page = editor.page
    await editor.goto("/hone/trajectories?state=completed")
    boxes = page.get_by_role("checkbox", name="Select “")
    ids = [str(await boxes.nth(at).get_attribute("value")) for at in (0, 2)]
    for at in (0, 2):
        await boxes.nth(at).check()
    await page.get_by_label("Dataset", exact=True).fill("of-a-person")
    await page.get_by_role("button", name="Add to dataset").click()
    await expect(page.get_by_role("heading", name="2 trajectories added to the dataset")).to_be_visible()
    assert set(await dataset_ids(Project(own.store, PROJECT), "of-a-person")) == set(ids)
    await page.get_by_role("link", name="Back to the list").click()
    await page.get_by_label("Name of the saved filter").fill("what is done")
    await page.get_by_role("button", name="Save these filters").click()
    await page.get_by_role("link", name="Trajectories", exact=True).first.click()
    await page.get_by_role("link", name="what is done").click()
    await page.wait_for_url("**state=completed**")
    await page.get_by_role("button", name="Remove this saved filter").click()
    await expect(page.get_by_role("link", name="what is done")).to_have_count(0)


async def test_a_run_is_deleted_after_it_was_asked_for_twice(editor: Visitor, own: Proxy, rich: Rich) -> None:
    page = editor.page
    await editor.goto(f"/hone/trajectories/{rich.run}/delete")
    await page.locator("main form[method=post]").get_by_role("button").first.click()
    await page.wait_for_load_state()
    await editor.goto(f"/hone/trajectories/{rich.run}", status=404)
