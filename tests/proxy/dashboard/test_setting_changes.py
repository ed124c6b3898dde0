"""Settings changed on the pages: form, refusals, undo, lines to paste; learning and campaigns paused there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recorder.queue import campaigns, leases
from recorder.registry import keys
from recorder.setting_changes.change_rows import list_changes, write_change
from recorder.states import CampaignState
from recorder.store.database import Project, Store
from tests.proxy.dashboard.reading import Page, opened, sent
from tests.proxy.dashboard.test_in_force import signed_in
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import ALIAS, PROJECT, Proxy, serving

pytestmark = pytest.mark.slow

PATH = "/hone/settings"
CHANGE = f"{PATH}/change"


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> AsyncIterator[Proxy]:
    async with serving(store, engine, origin={"learn.hours": "hone.toml"}) as running:
        yield running


async def test_a_setting_is_changed_shown_and_undone(proxy: Proxy) -> None:
    page = await opened(proxy.http, PATH)
    assert "Changed at run time" not in page.text
    assert f"{PATH}?change=learn.steps_per_hour" in page.links
    form = (await opened(proxy.http, f"{PATH}?change=learn.steps_per_hour")).form(CHANGE)
    answer = await sent(proxy.http, form, value="6")
    assert answer.headers["location"] == f"{PATH}#changes"
    page = await opened(proxy.http, PATH)
    assert "6 instead of not set by somebody on this machine" in page.text
    assert "[learn] steps_per_hour = 6" in page.text
    assert "learn.steps_per_hour 6 from page" in page.text
    await sent(proxy.http, page.form(f"{PATH}/undo", key="learn.steps_per_hour"))
    page = await opened(proxy.http, PATH)
    assert "No change is in force." in page.text
    assert "undid learn.steps_per_hour: 6 → not set" in page.text


async def test_a_choice_is_chosen_from_its_values(proxy: Proxy) -> None:
    key = f"aliases.{ALIAS}.promote"
    page = await opened(proxy.http, f"{PATH}?change={key}")
    assert page.of("option") == ["auto", "gate", "canary", "manual"]
    await sent(proxy.http, page.form(CHANGE), value="manual")
    assert '[aliases.helpdesk] promote = "manual"' in (await opened(proxy.http, PATH)).text


async def test_a_bad_value_is_told_beside_the_form_and_kept_in_it(proxy: Proxy) -> None:
    form = (await opened(proxy.http, f"{PATH}?change=learn.hours")).form(CHANGE)
    page = Page((await sent(proxy.http, form, 400, value="<b>late")).text)
    assert "learn.hours: Value error" in page.text
    assert "b" not in page.tags
    assert page.form(CHANGE).fields["value"] == "<b>late"
    assert await list_changes(Project(proxy.store, PROJECT)) == []


async def test_learning_is_paused_and_resumed_on_the_page_training(proxy: Proxy) -> None:
    page = await opened(proxy.http, "/hone/training")
    await sent(proxy.http, page.form(f"{PATH}/pause"))
    page = await opened(proxy.http, "/hone/training")
    assert "Learning is paused by somebody on this machine since " in page.text
    assert page.form(f"{PATH}/pause").fields["paused"] == "false"
    await sent(proxy.http, page.form(f"{PATH}/pause"))
    assert "Learning is paused" not in (await opened(proxy.http, "/hone/training")).text


async def test_a_change_that_no_longer_applies_says_why_and_can_be_undone(proxy: Proxy) -> None:
    project = Project(proxy.store, PROJECT)
    await write_change(project, "aliases.<b>gone.promote", before="gate", after="auto", who="somebody")
    page = await opened(proxy.http, PATH)
    assert "does not apply: the settings have no alias '<b>gone'" in page.text
    assert "b" not in page.tags
    await sent(proxy.http, page.form(f"{PATH}/undo"))
    assert "does not apply" not in (await opened(proxy.http, PATH)).text


async def test_who_only_reads_sees_changes_and_no_form(store: Store) -> None:
    project = Project(store, PROJECT)
    await write_change(project, "learn.steps_per_hour", before=None, after=4, who="somebody")
    _, secret = await keys.create_key(project, "reader", ["read"])
    async with FakeEngine() as engine, serving(store, engine, origin={}) as proxy, signed_in(proxy, secret) as me:
        page = await opened(me, PATH)
        assert "4 instead of not set" in page.text
        assert {form.action for form in page.forms} == {"/hone/sign-out", "/hone/search", ""}
        assert not [link for link in page.links if "change=" in link]
        await opened(me, f"{PATH}?change=learn.steps_per_hour", 403)
        assert f"{PATH}/pause" not in {form.action for form in (await opened(me, "/hone/training")).forms}
        token = next(form.fields["csrf"] for form in page.forms if "csrf" in form.fields)
        for path in ("change", "undo", "pause"):
            fields = {"csrf": token, "key": "learn.steps_per_hour", "value": "9", "paused": "true"}
            assert (await me.post(f"{PATH}/{path}", data=fields)).status_code == 403
    assert [one.after for one in await list_changes(project)] == [4]


async def test_a_form_without_its_token_changes_nothing(proxy: Proxy) -> None:
    await opened(proxy.http, PATH)
    fields = {"csrf": "guessed", "key": "learn.paused", "value": "true"}
    assert (await proxy.http.post(CHANGE, data=fields)).status_code == 403
    assert await list_changes(Project(proxy.store, PROJECT)) == []


async def test_a_running_campaign_is_paused_or_ended_on_the_page_training(proxy: Proxy) -> None:
    project = Project(proxy.store, PROJECT)
    campaign = await campaigns.create_campaign(project, proxy.alias.id, "spring <b>", {})
    assert await leases.acquire_lease(project, campaigns.lease_name(campaign.id), "trainer", 60)
    page = await opened(proxy.http, "/hone/training")
    assert "Its best version is measured, and serves. It cannot be resumed." in page.text
    form = page.form("/hone/training/campaigns", do="pause")
    answer = await sent(proxy.http, form)
    assert answer.headers["location"] == "/hone/training#campaigns"
    page = await opened(proxy.http, "/hone/training")
    assert "somebody on this machine asked to pause it" in page.text
    assert "/hone/training/campaigns" not in {one.action for one in page.forms}
    await sent(proxy.http, form, 400, do="shout")
    await campaigns.finish_campaign(proxy.store, campaign.id, CampaignState.STOPPED, "paused")
    page = await opened(proxy.http, "/hone/training")
    assert "hone train --resume spring <b>" in page.text
    assert "b" not in page.tags


async def test_what_several_aliases_have_is_explained_once(store: Store) -> None:
    others: dict[str, dict[str, float]] = {f"alias-{number}": {} for number in range(6)}
    async with FakeEngine() as engine, serving(store, engine, origin={}, overrides=others) as proxy:
        page = await proxy.http.get(PATH)
    about = "Share of new trajectories that a canary gets."
    assert (page.text.count(".canary_share</dt>"), page.text.count(about)) == (6, 1)
    assert len(page.content) < 150_000
