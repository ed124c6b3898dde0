"""A version's page in a browser: the held-out tasks that it won, with both transcripts, at three widths."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from recorder.registry.versions import get_version_by_name
from recorder.store.database import Project
from recorder.store.schema import groups, trajectories
from tests.browser.looking import legible, sound
from tests.browser.rich import Rich
from tests.browser.visiting import Visitor
from tests.proxy.running import PROJECT, Proxy
from tests.recorder.rows import Rows

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]


async def make_gate_pair(proxy: Proxy, name: str) -> None:
    """Let the first group of the store be a pair of a gate, which its version won: the judge prefers later attempts."""
    version = await get_version_by_name(Project(proxy.store, PROJECT), name)
    first = select(groups.c.id).where(groups.c.external_id == "week-1")
    async with proxy.store.read() as conn:
        group = (await conn.execute(first)).scalar_one()
    rows = Rows(proxy.store)
    members = await rows.members(group)
    await rows.set(groups, group, version_id=version.id)
    for member, by in ((members[0], version.parent_id), (members[-1], version.id)):
        await rows.set(trajectories, member, version_id=by, origin="shadow", purpose="eval")


async def test_what_a_version_won_is_shown_with_both_transcripts(rich: Rich, own: Proxy, editor: Visitor) -> None:
    await make_gate_pair(own, rich.canary)
    page = editor.page
    for width in (390, 1024, 1440):
        await page.set_viewport_size({"width": width, "height": 900})
        await editor.goto(f"/hone/versions/{rich.canary}")
        assert await page.get_by_text("it does better than helpdesk@2 at 1").is_visible()
        assert await sound(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await legible(page) == []
    task = page.get_by_role("link", name="Where is my order week-1?").first
    await task.click()
    await page.wait_for_url("**pair=**")
    after = page.get_by_role("region", name="Before and after")
    assert await after.get_by_text("after:").count() == 1
    await page.get_by_role("button", name="Promote").click()
    assert await page.get_by_text("it does better than helpdesk@2 at 1").is_visible()
