"""Selections, datasets and saved filters over /hone/v1: an answer for each, and the scopes of each action."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.curation.review_requests import requested_reviews
from recorder.queue.feedback import set_tag
from recorder.registry import keys
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from tests.proxy.api.asking import get, post
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, WITHOUT_PAGES, Proxy, serving
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow
JSON = {"content-type": "application/json"}


async def recorded(proxy: Proxy, *names: str, group: str = "orders") -> list[str]:
    return [(await proxy.chat(path=f"/g/{group}/t/{name}")).headers["x-hone-trajectory"] for name in names]


async def select(proxy: Proxy, action: str, ids: list[str], **others: Any) -> tuple[int, Any]:
    key = others.pop("key", None)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    body = {"trajectory_ids": ids, "action": action, **others}
    answer = await proxy.http.post("/hone/v1/selection", json=body, headers=headers)
    return answer.status_code, answer.json()


def outcomes(told: Any) -> dict[str, str]:
    return {one["trajectory_id"]: one["outcome"] for one in told["answers"]}


async def test_each_selected_trajectory_gets_an_answer_and_a_failure_stops_no_other(proxy: Proxy) -> None:
    one, two = await recorded(proxy, "1", "2")
    status, told = await select(proxy, "delete", [one])
    assert (status, outcomes(told)) == (200, {one: "failed"})
    assert "still open" in told["answers"][0]["detail"]
    status, told = await select(proxy, "close", [one, "nothing", "2", one])
    assert (status, told["done"], told["unchanged"], told["failed"]) == (200, 2, 0, 1)
    assert outcomes(told) == {one: "done", "nothing": "failed", "2": "done"}
    assert outcomes((await select(proxy, "close", [two]))[1]) == {two: "unchanged"}
    for value, tags in (("blue", {"team": "blue"}), (None, {})):
        status, told = await select(proxy, "tag", [one, two], tag="team", value=value)
        assert (status, told["done"]) == (200, 2)
        lines = (await get(proxy, "/hone/v1/trajectories?tag=team"))[1]["trajectories"]
        assert {line["id"] for line in lines} == ({one, two} if tags else set())
    assert outcomes((await select(proxy, "review", [one, two, one]))[1]) == {one: "done", two: "done"}
    assert outcomes((await select(proxy, "review", [one]))[1]) == {one: "unchanged"}
    project = Project(proxy.store, PROJECT)
    assert {id_ for id_, _ in await requested_reviews(project)} == {one, two}
    status, told = await select(proxy, "delete", [one, "nothing"], reason="a test")
    assert (status, outcomes(told)) == (200, {one: "done", "nothing": "failed"})
    [entry] = [e for e in await ledger.latest_entries(project, object_id=one) if e.code == "deleted"]
    assert entry.detail is not None
    assert entry.detail["why"] == f"a test, by {keys.SOMEBODY}"
    assert (await get(proxy, f"/hone/v1/trajectories/{one}"))[0] == 404
    assert (await get(proxy, f"/hone/v1/trajectories/{two}"))[0] == 200


async def test_a_trajectory_without_another_to_compare_is_not_reviewed(proxy: Proxy) -> None:
    [lone] = await recorded(proxy, "1")
    await select(proxy, "close", [lone])
    _, told = await select(proxy, "review", [lone])
    assert outcomes(told) == {lone: "failed"}
    assert "no other completed trajectory" in told["answers"][0]["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"trajectory_ids": [], "action": "close"}, 400),
        ({"trajectory_ids": ["x"] * 501, "action": "close"}, 400),
        ({"trajectory_ids": ["x"], "action": "explode"}, 400),
        ({"trajectory_ids": ["x"], "action": "tag"}, 400),
        ({"trajectory_ids": ["x"], "action": "tag", "tag": "<b>"}, 400),
        ({"trajectory_ids": ["x"], "action": "add_to_dataset"}, 400),
        ({"trajectory_ids": ["x"], "action": "add_to_dataset", "dataset": "nothing"}, 404),
        ({"trajectory_ids": ["x"], "action": "close", "more": 1}, 400),
    ],
)
async def test_a_selection_that_means_nothing_is_refused_as_a_whole(
    proxy: Proxy, body: dict[str, Any], status: int
) -> None:
    assert (await proxy.http.post("/hone/v1/selection", json=body)).status_code == status


async def test_an_action_needs_the_scope_of_the_single_one(store: Store) -> None:
    project = Project(store, PROJECT)
    secrets = {
        name: (await keys.create_key(project, name, scopes))[1]
        for name, scopes in (
            ("agent", ["infer", "feedback"]),
            ("other", ["infer", "feedback"]),
            ("person", ["read", "feedback-all"]),
            ("reader", ["read"]),
            ("admin", ["admin"]),
        )
    }
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        said = {"authorization": f"Bearer {secrets['agent']}"}
        run = (await proxy.chat(path="/t/1", headers=said)).headers["x-hone-trajectory"]
        assert (await select(proxy, "close", [run], key=secrets["reader"]))[0] == 403
        _, told = await select(proxy, "close", [run], key=secrets["other"])
        assert outcomes(told) == {run: "failed"}
        assert "another key" in told["answers"][0]["detail"]
        for name in ("agent", "person"):
            for action in ("tag", "delete", "add_to_dataset"):
                status, told = await select(proxy, action, [run], tag="a", dataset="a", key=secrets[name])
                assert (status, "'admin'" in told["detail"]) == (403, True)
        assert outcomes((await select(proxy, "close", [run], key=secrets["agent"]))[1]) == {run: "done"}
        for path, body in (
            ("datasets", {"name": "a"}),
            ("filters", {"list": "groups", "name": "a", "query": "state=open"}),
        ):
            for name, status in (("person", 403), ("admin", 200)):
                headers = {"authorization": f"Bearer {secrets[name]}"}
                answer = await proxy.http.post(f"/hone/v1/{path}", json=body, headers=headers)
                assert (answer.status_code == 403) == (status == 403), answer.text
                assert (await proxy.http.get(f"/hone/v1/{path}", headers=headers)).status_code == 200
        assert outcomes((await select(proxy, "delete", [run], key=secrets["admin"]))[1]) == {run: "done"}


async def test_datasets_are_made_changed_shown_and_deleted(proxy: Proxy) -> None:
    one, two = await recorded(proxy, "1", "2")
    status, made = await post(proxy, "/hone/v1/datasets", {"name": "hard", "trajectory_ids": [one, "nothing"]})
    assert (status, made["dataset"]["trajectories"], outcomes(made)) == (201, 1, {one: "done", "nothing": "failed"})
    assert (await post(proxy, "/hone/v1/datasets", {"name": "hard"}))[0] == 409
    assert (await post(proxy, "/hone/v1/datasets", {"name": "<b>"}))[0] == 400
    status, told = await select(proxy, "add_to_dataset", [one, two], dataset="hard")
    assert (status, outcomes(told)) == (200, {one: "unchanged", two: "done"})
    status, told = await post(proxy, "/hone/v1/datasets/hard/trajectories", {"add": ["2"], "remove": [one]})
    assert (status, outcomes(told), told["dataset"]["trajectories"]) == (200, {"2": "unchanged", one: "done"}, 1)
    assert (await get(proxy, "/hone/v1/datasets/hard"))[1]["trajectory_ids"] == [two]
    lines = (await get(proxy, "/hone/v1/trajectories?dataset=hard"))[1]["trajectories"]
    assert [line["id"] for line in lines] == [two]
    await select(proxy, "close", [two])
    await select(proxy, "delete", [two])
    [listed] = (await get(proxy, "/hone/v1/datasets"))[1]
    assert (listed["trajectories"], listed["deleted"]) == (0, 1)
    assert (await proxy.http.delete("/hone/v1/datasets/hard", headers=JSON)).status_code == 200
    assert (await get(proxy, "/hone/v1/datasets"))[1] == []
    for path in ("/hone/v1/datasets/hard", "/hone/v1/datasets/hard/trajectories"):
        status = (
            (await proxy.http.delete(path, headers=JSON)).status_code
            if path.endswith("hard")
            else (await post(proxy, path))[0]
        )
        assert status == 404


async def test_saved_filters_are_checked_listed_and_removed(proxy: Proxy) -> None:
    kept = {"list": "trajectories", "name": "<script>", "query": "?state=open&alias=&before=x&sort=tokens"}
    status, saved = await post(proxy, "/hone/v1/filters", kept)
    assert (status, saved["query"]) == (200, "state=open&sort=tokens")
    for wrong in ({"query": "stat=open"}, {"query": "state=lost"}, {"query": ""}, {"name": " "}, {"list": "calls"}):
        assert (await post(proxy, "/hone/v1/filters", kept | wrong))[0] == 400, wrong
    assert (await post(proxy, "/hone/v1/filters", kept | {"list": "groups", "query": "sort=tokens"}))[0] == 400
    assert [one["name"] for one in (await get(proxy, "/hone/v1/filters?list=trajectories"))[1]] == ["<script>"]
    assert (await get(proxy, "/hone/v1/filters?list=groups"))[1] == []
    assert (await proxy.http.delete(f"/hone/v1/filters/{saved['id']}", headers=JSON)).status_code == 204
    assert (await proxy.http.delete(f"/hone/v1/filters/{saved['id']}", headers=JSON)).status_code == 404


async def test_a_held_trajectory_is_refused_alone(proxy: Proxy) -> None:
    rows = Rows(proxy.store)
    held, free = await rows.ready_group(state="judging"), await rows.ready_group()
    ids = [*await rows.members(held), *await rows.members(free)]
    await set_tag(Project(proxy.store, PROJECT), ids[0], "a", "b")
    _, told = await select(proxy, "delete", ids)
    assert (told["done"], told["failed"]) == (2, 2)
    assert {row["id"] for row in await rows.all(trajectories)} == set(ids[:2])
