"""Selecting lines of the list, and the filters that are kept above it, as a browser without scripts sends them."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from recorder.curation import datasets
from recorder.curation.saved_filters import FilteredList, list_saved_filters
from recorder.registry import keys
from recorder.store.database import Project, Store
from tests.proxy.dashboard.listed import Listed
from tests.proxy.dashboard.walking import FORM, browser, token_of
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow
HOSTILE = "<script>alert('x')</script>\"'>"


async def recorded(proxy: Proxy, *names: str) -> list[str]:
    return [
        (await proxy.chat(f"Where is {HOSTILE} {name}?", path=f"/g/orders/t/{name}")).headers["x-hone-trajectory"]
        for name in names
    ]


async def send(http: httpx.AsyncClient, path: str, ids: list[str] | None = None, **fields: Any) -> httpx.Response:
    token = await token_of(http, "/hone/sign-in")
    body: dict[str, Any] = {"csrf": token, "back": "/hone/trajectories", **fields}
    return await http.post(path, data=body | ({} if ids is None else {"trajectory": ids}), headers=FORM)


async def test_each_line_has_a_box_of_the_form_below(proxy: Proxy) -> None:
    ids = await recorded(proxy, "1", "2")
    text = (await proxy.http.get("/hone/trajectories")).text
    assert re.findall(r'type="checkbox" name="trajectory" value="([^"]+)" form="selection"', text) == ids[::-1]
    assert '<form id="selection" method="post" action="/hone/selection"' in text
    assert "<script>alert" not in text
    assert 'form="selection"' not in (await proxy.http.get("/hone/groups")).text


async def test_selected_trajectories_are_closed_tagged_collected_and_deleted(proxy: Proxy) -> None:
    one, two = await recorded(proxy, "1", "2")
    answer = await send(proxy.http, "/hone/selection", [one, two], action="close")
    assert (answer.status_code, "2 trajectories closed" in answer.text) == (200, True)
    answer = await send(proxy.http, "/hone/selection", [one, "nothing"], action="tag", tag="team", value=HOSTILE)
    assert "1 trajectory tagged" in answer.text
    assert "<script>alert" not in answer.text
    found = Listed((await proxy.http.get("/hone/trajectories?tag=team")).text)
    assert len(found.lines) == 1
    answer = await send(proxy.http, "/hone/selection", [one, two], action="add_to_dataset", dataset="hard")
    assert "2 trajectories added to the dataset “hard”" in answer.text
    project = Project(proxy.store, PROJECT)
    assert await datasets.dataset_ids(project, "hard") == [two, one]
    listed = Listed((await proxy.http.get("/hone/trajectories?dataset=hard")).text)
    assert (len(listed.lines), listed.options["dataset"]) == (2, ["", "hard"])
    answer = await send(proxy.http, "/hone/selection", [one], action="review")
    assert 'href="/hone/review"' in answer.text
    asked = await send(proxy.http, "/hone/selection", [one, two], action="delete")
    assert "Delete 2 trajectories" in asked.text
    assert "<script>alert" not in asked.text
    assert len(Listed((await proxy.http.get("/hone/trajectories")).text).lines) == 2
    done = await send(proxy.http, "/hone/selection", [one, two], action="delete", sure="yes", reason=HOSTILE)
    assert "2 trajectories deleted" in done.text
    assert Listed((await proxy.http.get("/hone/trajectories")).text).lines == []


async def test_what_failed_is_shown_by_its_task(proxy: Proxy) -> None:
    [run] = await recorded(proxy, "1")
    answer = await send(proxy.http, "/hone/selection", [run], action="delete", sure="yes")
    assert "1 failed" in answer.text
    assert "still open" in answer.text
    assert "Where is &lt;script&gt;" in answer.text


@pytest.mark.parametrize(
    ("ids", "fields"),
    [
        (None, {"action": "close"}),
        (["a"], {"action": "explode"}),
        (["a"], {"action": "tag", "tag": "<b>"}),
        (["a"], {"action": "add_to_dataset"}),
        (["a"], {"action": "add_to_dataset", "dataset": HOSTILE}),
        (["a"] * 501, {"action": "close"}),
    ],
)
async def test_a_form_that_means_nothing_is_refused(
    proxy: Proxy, ids: list[str] | None, fields: dict[str, str]
) -> None:
    answer = await send(proxy.http, "/hone/selection", ids, **fields)
    assert answer.status_code == 400
    assert "<script>alert" not in answer.text


async def test_the_way_back_leads_to_our_pages_alone(proxy: Proxy) -> None:
    [run] = await recorded(proxy, "1")
    answer = await send(proxy.http, "/hone/selection", [run], action="close", back="https://elsewhere.example/")
    assert "elsewhere" not in answer.text


async def test_a_filter_is_saved_under_a_name_opened_and_removed(proxy: Proxy) -> None:
    await recorded(proxy, "1")
    assert "Save these filters" not in (await proxy.http.get("/hone/trajectories")).text
    query = "state=open&sort=tokens"
    assert "Save these filters" in (await proxy.http.get(f"/hone/trajectories?{query}")).text
    answer = await send(proxy.http, "/hone/filters", list="trajectories", query=query, name=HOSTILE)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/hone/trajectories?{query}")
    text = (await proxy.http.get("/hone/trajectories")).text
    assert "<script>alert" not in text
    assert Listed(text).links[HOSTILE] == f"/hone/trajectories?{query}"
    assert "Remove this saved filter" not in text
    text = (await proxy.http.get("/hone/trajectories?sort=tokens&state=open")).text
    assert "Save these filters" not in text
    found = re.search(r'name="filter" value="([^"]+)"', text)
    assert found is not None
    assert Listed((await proxy.http.get("/hone/groups")).text).links.get(HOSTILE) is None
    answer = await send(proxy.http, "/hone/filters/remove", filter=found[1])
    assert answer.headers["location"] == "/hone/trajectories"
    assert await list_saved_filters(Project(proxy.store, PROJECT)) == []


async def test_groups_have_saved_filters_of_their_own(proxy: Proxy) -> None:
    answer = await send(proxy.http, "/hone/filters", list="groups", query="state=unscored", name="to do")
    assert answer.headers["location"] == "/hone/groups?state=unscored"
    assert Listed((await proxy.http.get("/hone/groups")).text).links["to do"] == "/hone/groups?state=unscored"
    [one] = await list_saved_filters(Project(proxy.store, PROJECT))
    assert one.list is FilteredList.GROUPS
    for wrong in ({"query": "stat=open"}, {"query": ""}, {"list": "calls"}, {"name": ""}):
        fields: dict[str, Any] = {"list": "groups", "query": "state=open", "name": "a", **wrong}
        assert (await send(proxy.http, "/hone/filters", **fields)).status_code == 400, wrong


async def test_who_may_only_read_sees_no_boxes_and_a_reviewer_closes_alone(store: Store) -> None:
    project = Project(store, PROJECT)
    _, reader = await keys.create_key(project, "reader", ["read"])
    _, person = await keys.create_key(project, "person", ["read", "feedback-all"])
    run = await Rows(store).trajectory()
    async with FakeEngine() as engine, serving(store, engine) as running:
        async with browser(running, reader) as http:
            text = (await http.get("/hone/trajectories?state=open")).text
            assert 'form="selection"' not in text
            assert "Save these filters" not in text
        async with browser(running, person) as http:
            text = (await http.get("/hone/trajectories")).text
            assert ('value="close"' in text, 'value="delete"' in text) == (True, False)
            for action in ("delete", "tag", "add_to_dataset"):
                answer = await send(http, "/hone/selection", [run], action=action, tag="a", dataset="a")
                assert answer.status_code == 403
            assert await datasets.list_datasets(project) == []
            assert "1 trajectory closed" in (await send(http, "/hone/selection", [run], action="close")).text
