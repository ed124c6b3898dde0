"""The pages Runs and Groups: their lines, their filters in the address, and the links from page to page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from proxy.dashboard.pages.lists import SEARCH
from recorder.queue.judging import scores
from recorder.search.indexer import index_calls
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import trajectories
from tests.proxy.dashboard.listed import Listed
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[Proxy]:
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


async def page(proxy: Proxy, path: str) -> Listed:
    answer = await proxy.http.get(path)
    assert answer.status_code == 200, answer.text
    return Listed(answer.text)


async def test_runs_are_listed_with_what_a_person_looks_for(proxy: Proxy) -> None:
    answer = await proxy.chat("Where is <b>order</b> 4821?", path="/g/orders/t/run-1")
    run = answer.headers["x-hone-trajectory"]
    async with proxy.store.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "trajectory", run, "too_few")])
    found = await page(proxy, "/hone/trajectories")
    assert found.opens == [f"/hone/trajectories/{run}"]
    [line] = found.lines
    for part in ("open", "Where is <b>order</b> 4821?", "run-1", "helpdesk@0", "orders", "excluded: too_few"):
        assert part in line
    assert found.folded


async def test_what_the_lists_hide_is_counted_and_one_link_away(proxy: Proxy, store: Store) -> None:
    await proxy.chat(path="/g/orders/t/run-1")
    rows = Rows(store)
    pair = await rows.ready_group(alias_id=proxy.alias.id, purpose="eval")
    for member in await rows.members(pair):
        await rows.set(trajectories, member, origin="shadow")
    for path, hidden in (("trajectories", 2), ("groups", 1)):
        found = await page(proxy, f"/hone/{path}?alias=helpdesk")
        assert len(found.lines) == 1
        assert f"{hidden} {path} of origin shadow (shadow answers, pairs of a gate) are hidden" in " ".join(
            found.text.split()
        )
        assert found.links["show all"] == f"/hone/{path}?alias=helpdesk&origin=any"
        every = await page(proxy, found.links["show all"])
        assert len(every.lines) == 1 + hidden
        assert "hidden" not in every.text
        assert ("origin", "any") in every.sent


async def test_every_filter_is_in_the_address_and_comes_back_in_the_form(proxy: Proxy) -> None:
    for number in range(3):
        await proxy.chat(path=f"/g/orders/t/{number}", headers={"x-hone-tags": f"n={number}"})
    query = "alias=helpdesk&version=helpdesk%400&state=open&source=path&tag=n%3D1&reason=&since=1h&tool_error=no"
    query += "&group=orders"
    answer = await proxy.http.get(f"/hone/trajectories?{query}")
    assert answer.status_code == 303
    tidy = answer.headers["location"]
    assert "reason" not in tidy
    found = await page(proxy, tidy)
    assert len(found.lines) == 1
    assert not found.folded
    assert sorted(found.query.split("&")) == sorted(tidy.partition("?")[2].split("&"))
    assert found.options["alias"] == ["", "helpdesk"]
    assert found.options["version"] == ["", "helpdesk@0"]
    assert found.links["clear filters"] == "/hone/trajectories"


async def test_a_search_finds_runs_by_what_was_said_and_shows_the_words_around_it(proxy: Proxy) -> None:
    await proxy.chat("Where is the <i>blue</i> kettle?", path="/t/kettle")
    await proxy.chat("Where is the lamp?", path="/t/lamp")
    while await index_calls(Project(proxy.store, PROJECT)):
        pass
    found = await page(proxy, f"/hone/trajectories?{SEARCH}=blue+kettle&state=open")
    assert len(found.lines) == 1
    assert found.marked == ["blue", "kettle"]
    assert "the <i>blue</i> kettle?" in found.lines[0]
    told = (await proxy.http.get("/hone/v1/trajectories?search=kettle")).json()
    [run] = told["trajectories"]
    assert told["snippets"][run["id"]]["text"].startswith("Where is the")
    assert (await page(proxy, f"/hone/trajectories?{SEARCH}=blue+lamp")).lines == []


async def test_older_and_newest_lead_through_the_list_with_its_filters(proxy: Proxy) -> None:
    for number in range(5):
        await proxy.chat(path=f"/t/{number}")
    first = await page(proxy, "/hone/trajectories?state=open&limit=2")
    assert "newest" not in first.links
    second = await page(proxy, first.links["older"] + "&limit=2")
    third = await page(proxy, second.links["older"] + "&limit=2")
    opened = [*first.opens, *second.opens, *third.opens]
    assert (len(opened), len(set(opened)), "older" in third.links) == (5, 5, False)
    assert (await page(proxy, third.links["newest"] + "&limit=2")).opens == first.opens


async def test_what_is_said_of_a_value_that_is_gone_is_still_shown(proxy: Proxy) -> None:
    found = await page(proxy, "/hone/trajectories?alias=gone&reason=%3Cscript%3E")
    assert found.lines == []
    assert found.sent.count(("alias", "gone")) == 1
    assert ("reason", "<script>") in found.sent


async def test_an_empty_store_says_what_to_do(proxy: Proxy) -> None:
    runs, groups = await page(proxy, "/hone/trajectories"), await page(proxy, "/hone/groups")
    assert f"export OPENAI_BASE_URL={proxy.url}/v1" in runs.text
    assert f"{proxy.url}/g/my-task/t/attempt-1/v1" in groups.text
    assert runs.lines == groups.lines == []


async def test_a_bad_filter_is_a_page_that_says_so(proxy: Proxy) -> None:
    for path, says in (
        ("trajectories?state=lost", "not one of open"),
        ("groups?colour=red", "is not a filter of this list"),
    ):
        answer = await proxy.http.get(f"/hone/{path}")
        assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (400, "text/html")
        assert says in answer.text


async def test_groups_are_listed_with_the_spread_of_their_rewards(proxy: Proxy) -> None:
    rows = Rows(proxy.store)
    scored = await rows.scored_group(2, external_id="orders", declared_size=2, alias_id=proxy.alias.id)
    left = await rows.group(state="left_out", reason="too_few")
    found = await page(proxy, "/hone/groups")
    assert found.opens == [f"/hone/groups/{left}", f"/hone/groups/{scored}"]
    for part in ("excluded", "too_few"):
        assert part in found.lines[0]
    for part in ("scored", "orders", "2 of 2", "0.5", "helpdesk"):
        assert part in found.lines[1]
    assert (await page(proxy, "/hone/groups?spread_from=0.5")).opens == [f"/hone/groups/{scored}"]
    assert found.options["reason"] == ["", "too_few"]


async def test_a_sorted_list_keeps_its_order_from_page_to_page_and_says_where_it_ends(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await proxy.chat("x" * number, path=f"/t/run-{number}")
    found = await page(proxy, "/hone/trajectories?alias=helpdesk&limit=2")
    assert found.links["tokens"] == "/hone/trajectories?alias=helpdesk&sort=tokens"
    by_duration = await page(proxy, f"{found.links['duration']}&limit=2")
    assert ("sort", "duration") in by_duration.sent
    assert len(by_duration.lines) == 2
    rest = await page(proxy, by_duration.links["older"])
    assert len(rest.lines) == 1
    assert "Sorted over" not in by_duration.text
    monkeypatch.setattr("recorder.views.lists.sort_order.MOST_SORTED", 2)
    assert "Sorted over the newest 2 matches" in (await page(proxy, found.links["duration"])).text
    assert (await proxy.http.get("/hone/trajectories?sort=size")).status_code == 400
    assert (await proxy.http.get("/hone/v1/groups?sort=reward")).status_code == 400


async def test_a_session_shows_its_trajectories_in_order(proxy: Proxy, store: Store) -> None:
    rows = Rows(store)
    made = [await rows.trajectory(session="chat/7", external_id=f"run-{n}") for n in range(3)]
    found = await page(proxy, "/hone/sessions/chat/7")
    assert found.opens == [f"/hone/trajectories/{id_}" for id_ in made]
    assert "3 trajectories" in found.text
    of_run = await proxy.http.get(f"/hone/trajectories/{made[0]}")
    assert 'href="/hone/sessions/chat/7"' in of_run.text
    assert (await proxy.http.get("/hone/sessions/none")).status_code == 404


async def test_states_and_reasons_have_a_word_and_the_tone_of_the_reason(proxy: Proxy, store: Store) -> None:
    rows = Rows(store)
    for state, reason in (
        ("left_out", "zero_variance"),
        ("left_out", "step_failed"),
        ("measured", "measured"),
        ("unscored", "judge_busy"),
        ("scored", None),
    ):
        await rows.group(state=state, reason=reason)
    text = (await proxy.http.get("/hone/groups")).text
    assert re.findall(r'class="state (tone-\w+)">(\w+)<', text) == [
        ("tone-good", "scored"),
        ("tone-warn", "unscored"),
        ("tone-neutral", "measured"),
        ("tone-bad", "excluded"),
        ("tone-neutral", "excluded"),
    ]
    assert re.findall(r'class="(tone-\w+)" title="[^"]+">(\w+)<', text) == [
        ("tone-warn", "judge_busy"),
        ("tone-bad", "step_failed"),
        ("tone-neutral", "zero_variance"),
    ]


async def test_a_validation_is_measured_on_every_page_and_excluded_on_none(proxy: Proxy, store: Store) -> None:
    rows = Rows(store)
    group = await rows.ready_group(1, purpose="val", alias_id=proxy.alias.id)
    project = Project(store, PROJECT)
    assert await scores.exclude_lone_groups(project, "ruler_needs_two", {"detail": "alone"}) == 0
    [member] = await rows.members(group)
    assert "measured" in (await page(proxy, "/hone/groups")).lines[0]
    assert "excluded" not in (await page(proxy, "/hone/trajectories")).lines[0]
    assert "Measured, not for training." in (await page(proxy, f"/hone/trajectories/{member}")).text
    status = (await proxy.http.get("/hone/v1/status")).json()
    assert (status["excluded"], status["excluded_groups"]) == ({}, {})


async def test_long_ids_of_a_list_are_cut_in_the_middle_and_whole_in_the_text(proxy: Proxy, store: Store) -> None:
    rows = Rows(store)
    names = [f"campaign-of-one-long-name.{number}.and-one-long-end" for number in ("0001", "0002")]
    for name in names:
        await rows.group(external_id=name)
    answer = (await proxy.http.get("/hone/groups")).text
    seen = [" ".join(line.split()) for line in Listed(answer).lines]
    assert all(name not in line for name in names for line in seen)
    assert len({line.split("…")[0] + line.split("…")[1].split()[0] for line in seen}) == 2
    copied = re.findall(r'<span class="id copy" title="(campaign[^"]+)">(.*?)</span> <span', answer)
    assert sorted(title for title, _ in copied) == names
    assert sorted(re.sub(r"<.*?>", "", markup) for _, markup in copied) == names
