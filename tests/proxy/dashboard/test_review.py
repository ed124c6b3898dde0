"""The page where a person chooses between two runs: blind, one pair at a time, by a form; and what leads there."""

from __future__ import annotations

import re

import httpx
import pytest

from recorder.queue import claims, feedback
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.registry import keys
from recorder.registry.keys import SOMEBODY, Scope
from recorder.store.database import Project, Store
from tests.proxy.dashboard.reading import Form, Page, opened, sent
from tests.proxy.dashboard.walking import browser
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving
from tests.recorder.attempts import Step, group_of
from tests.recorder.score_rows import new_score

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>\u202e"
PATH = "/hone/review"
CHOICE = f"{PATH}/preference"


async def disputed(
    store: Store, attempts: list[list[Step]] | None = None, name: str = "orders"
) -> tuple[str, list[str]]:
    steps = attempts or [[("find_order", {"order": str(at)}, HOSTILE), f"Monday {at}"] for at in range(2)]
    group, ids = await group_of(store, steps, name=name)
    claim = await claims.claim_one_for_judging(store, group, "judge", 60)
    assert claim is not None
    parts = [NewPart(id_, "reward", 0.4375, explanation="too kind") for id_ in ids]
    new = new_score("r", parts=parts, agreement=-0.25, disputed="they disagree", judge_model="judge-model")
    await scores.record_score(store, claim, new)
    return group, ids


def form(page: Page) -> Form:
    return page.form(CHOICE)


async def test_two_runs_stand_side_by_side_and_nothing_tells_them_apart_but_what_they_did(proxy: Proxy) -> None:
    _, ids = await disputed(proxy.store)
    answer = await proxy.http.get(PATH)
    page = Page(answer.text)
    assert "arguments of find_order" in page.text
    assert re.search(r"Monday <del>(0|1)</del><ins>(?!\1)(0|1)</ins>", answer.text)
    for hidden in ("0.4375", "too kind", "judge-model", "/hone/trajectories/", "helpdesk@"):
        assert hidden not in answer.text.replace('href="/hone/trajectories"', "")
    assert {form(page).fields["first"], form(page).fields["second"]} == set(ids)
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    ("choice", "name", "field"), [("a", "preference", "loser"), ("b", "preference", "loser"), ("same", "tie", "other")]
)
async def test_an_answer_is_feedback_and_the_pair_does_not_come_again(
    proxy: Proxy, choice: str, name: str, field: str
) -> None:
    group, _ = await disputed(proxy.store)
    asked = form(await opened(proxy.http, PATH))
    first, second = asked.fields["first"], asked.fields["second"]
    done = await sent(proxy.http, asked, choice=choice, comment="kinder")
    assert done.headers["location"] == PATH
    better, other = (second, first) if choice == "b" else (first, second)
    [written] = await feedback.list_feedback(proxy.store, better)
    shown = "second" if choice == "b" else "first"
    assert (written.name, written.comment) == (name, "kinder")
    assert written.tags == {field: other, "group": group, "by": SOMEBODY, "shown": shown}
    assert "Nothing to review" in (await opened(proxy.http, PATH)).text


async def test_a_group_of_three_is_asked_about_until_it_is_in_order(proxy: Proxy) -> None:
    group, _ = await disputed(proxy.store, [["one"], ["two"], ["three"]])
    page, answered = await opened(proxy.http, f"{PATH}?group={group}"), 0
    while "Nothing to review" not in page.text:
        done = await sent(proxy.http, form(page), choice="a")
        assert done.headers["location"] == f"{PATH}?group={group}"
        page, answered = await opened(proxy.http, done.headers["location"]), answered + 1
    assert answered in (2, 3)


async def test_a_pair_is_skipped_by_a_link_and_waits_on(proxy: Proxy) -> None:
    await disputed(proxy.store)
    await disputed(proxy.store, name="claims")
    page = await opened(proxy.http, PATH)
    [further] = [link for link in page.links if "skip=" in link]
    other = await opened(proxy.http, further)
    assert form(other).fields["first"] != form(page).fields["first"]
    done = await sent(proxy.http, form(other), choice="a")
    assert "skip=" in done.headers["location"]
    assert "Nothing to review" in (await opened(proxy.http, done.headers["location"])).text
    assert form(await opened(proxy.http, PATH)).fields == form(page).fields


async def test_what_is_no_answer_is_refused_and_nothing_written(proxy: Proxy) -> None:
    _, ids = await disputed(proxy.store)
    asked = form(await opened(proxy.http, PATH))
    turned = {"first": asked.fields["second"], "second": asked.fields["first"]}
    assert "no valid choice" in (await sent(proxy.http, asked, 400)).text
    assert "open the pair again" in (await sent(proxy.http, asked, 409, choice="a", **turned)).text
    one = asked.fields["first"]
    assert (await sent(proxy.http, asked, 400, choice="a", second=one)).status_code == 400
    assert [await feedback.list_feedback(proxy.store, id_) for id_ in ids] == [[], []]


async def test_nobody_is_sent_away_by_what_a_form_says(proxy: Proxy) -> None:
    await disputed(proxy.store)
    asked = form(await opened(proxy.http, PATH))
    done = await sent(proxy.http, asked, choice="a", back="\n//evil.example")
    assert done.headers["location"].startswith("/hone/")


async def test_home_and_judge_lead_there_while_a_group_waits(proxy: Proxy) -> None:
    assert PATH not in (await opened(proxy.http, "/hone/")).links
    group, _ = await disputed(proxy.store)
    judge = await opened(proxy.http, "/hone/judge")
    assert PATH in judge.links
    assert f"{PATH}?group={group}" in (await opened(proxy.http, f"/hone/groups/{group}")).links


async def test_home_says_that_groups_wait(store: Store, engine: FakeEngine) -> None:
    await disputed(store)
    async with serving(store, engine) as proxy:
        page = await opened(proxy.http, "/hone/")
    assert PATH in page.links


async def test_who_only_reads_sees_the_pair_and_cannot_answer(store: Store, engine: FakeEngine) -> None:
    _, ids = await disputed(store)
    _, reads = await keys.create_key(Project(store, PROJECT), "reads", [Scope.READ])
    key, says = await keys.create_key(Project(store, PROJECT), "says", [Scope.READ, Scope.FEEDBACK_ALL])
    async with serving(store, engine) as proxy:
        async with browser(proxy, reads) as http:
            page = await opened(http, PATH)
            assert "needs a key with the scope feedback-all" in page.text
            assert CHOICE not in [one.action for one in page.forms]
        async with browser(proxy, says) as http:
            await sent(http, form(await opened(http, PATH)), choice="a")
    [one] = [one for id_ in ids for one in await feedback.list_feedback(store, id_)]
    assert one.tags["by"] == key.id


async def test_the_same_is_told_as_json(proxy: Proxy) -> None:
    group, ids = await disputed(proxy.store)
    answer: httpx.Response = await proxy.http.get("/hone/v1/review")
    told = answer.json()
    [entry] = told["entries"]
    assert (told["disputed"], entry["why"], entry["group_id"]) == (1, "disagreement", group)
    asked = form(await opened(proxy.http, PATH))
    assert (entry["first"], entry["second"]) == (asked.fields["first"], asked.fields["second"])
    assert {entry["first"], entry["second"]} == set(ids)
    assert (await proxy.http.get("/hone/v1/review", params={"group": "nothing"})).status_code == 404
    assert (await proxy.http.get("/hone/v1/review", params={"against": "base"})).status_code in (404, 409)


async def test_two_long_runs_stay_below_300_kb(proxy: Proxy) -> None:
    def turn(run: int, at: int) -> Step:
        arguments = {f"argument {n}": f"{run}{at}" + "<&'>" * 100 for n in range(12)}
        return f"tool_{(at * run) % 7}", arguments, f"{run}\u202e<b>\U0001f600" * 500

    await disputed(proxy.store, [[turn(run, at) for at in range(60)] for run in (1, 2)])
    path, rows, of = PATH, 0, 0
    while path:
        answer: httpx.Response = await proxy.http.get(path)
        assert answer.status_code == 200
        assert len(answer.content) <= 300_000
        page = Page(answer.text)
        assert "<&'>" * 40 in page.text  # what is read is not cut to nothing
        rows += sum(row[1:] != [] and row[0].isdecimal() for row in page.rows)
        of = int(page.text.partition("Rows ")[2].split(" of ")[1].partition(".")[0])
        path = next((link for link in page.links if "row=" in link), "")
    assert rows == of >= 60
