"""Runs over /hone/v1: made, ended, judged by people, read back and deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recorder.queue import feedback
from recorder.registry import keys
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from tests.proxy.api.asking import PROBLEM, get, post
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving

pytestmark = pytest.mark.slow


async def test_a_run_can_be_made_and_ended(proxy: Proxy) -> None:
    status, run = await post(proxy, "/hone/v1/trajectories", {"trajectory": "one", "group": "orders"})
    assert (status, run["trajectory"], run["group"]) == (201, "one", "orders")
    assert run["base_url"] == f"{proxy.url}/g/orders/t/one/v1"
    assert run["api_key"].startswith("hone_")
    answer = await proxy.chat(path="/g/orders/t/one")
    internal = answer.headers["x-hone-trajectory"]
    ended = {"trajectory_id": internal, "state": "completed"}
    assert await post(proxy, f"/hone/v1/trajectories/{internal}/done") == (200, ended)
    assert await post(proxy, f"/hone/v1/trajectories/{internal}/done", {"state": "errored"}) == (200, ended)


async def test_a_run_without_a_name_gets_one(proxy: Proxy) -> None:
    (_, first), (_, second) = [await post(proxy, "/hone/v1/trajectories", {}) for _ in range(2)]
    assert first["trajectory"] != second["trajectory"]
    assert first["base_url"] == f"{proxy.url}/t/{first['trajectory']}/v1"


async def test_a_run_is_ended_by_path_key_or_header(proxy: Proxy) -> None:
    _, run = await post(proxy, "/hone/v1/trajectories", {})
    bearer = {"authorization": f"Bearer {run['api_key']}"}
    await proxy.chat(headers=bearer)
    await proxy.chat(path="/t/two")
    await proxy.chat(path="/g/a/t/three")
    assert (await post(proxy, "/hone/v1/done", **bearer))[1]["state"] == "completed"
    assert (await post(proxy, "/t/two/hone/v1/done"))[1]["state"] == "completed"
    headers = {"x-hone-trajectory": "three", "x-hone-group": "a"}
    assert (await post(proxy, "/hone/v1/done", {"state": "errored", "reason": "the tool server died"}, **headers))[1][
        "state"
    ] == "errored"
    status, shown = await get(proxy, "/hone/v1/trajectories/three?group=a")
    assert (status, shown["state"], shown["end_reason"]) == (200, "errored", "the tool server died")


@pytest.mark.parametrize("path", ["/t/one/hone/v1/done", "/hone/v1/trajectories/one/done"])
@pytest.mark.parametrize("content_type", [None, "application/json", "application/x-www-form-urlencoded"])
async def test_a_run_may_be_ended_with_an_empty_body(proxy: Proxy, path: str, content_type: str | None) -> None:
    await proxy.chat(path="/t/one")
    headers = {"content-type": content_type} if content_type else {}
    answer = await proxy.http.post(path, headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (200, "completed")


async def test_a_page_can_not_end_a_run(proxy: Proxy) -> None:
    await proxy.chat(path="/t/one")
    path = "/t/one/hone/v1/done"
    assert (await proxy.http.post(path, headers={"origin": "https://evil.net"})).status_code == 403
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (await proxy.http.post(path, headers=form, content=b"state=errored")).status_code == 415


async def test_a_run_that_nobody_knows_can_not_be_ended(proxy: Proxy) -> None:
    status, told = await post(proxy, "/t/nobody/hone/v1/done")
    assert (status, told["status"], told["code"]) == (404, 404, "not_found")
    assert "'nobody'" in told["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {"metric_name": "solved", "value": True},
        {"name": "stars", "value": 4.5, "comment": "quick", "tags": {"by": "anna"}},
        {"name": "comment", "value": "well done"},
        {"metric_name": "demonstration", "value": "It arrives on Tuesday"},
    ],
)
async def test_feedback_is_kept_as_it_was_given(proxy: Proxy, body: dict[str, Any]) -> None:
    answer = await proxy.chat(path="/t/one")
    status, noted = await post(proxy, "/t/one/hone/v1/feedback", body)
    assert (status, noted["trajectory_id"]) == (201, answer.headers["x-hone-trajectory"])
    [kept] = await feedback.list_feedback(proxy.store, noted["trajectory_id"])
    assert (kept.name, kept.value) == (body.get("name") or body["metric_name"], body["value"])
    assert (kept.comment, kept.tags) == (body.get("comment"), body.get("tags", {}))
    assert type(kept.value) is type(body["value"])


async def test_feedback_finds_its_run_by_whatever_names_it(proxy: Proxy) -> None:
    answer = await proxy.chat(path="/g/a/t/one")
    run, call = answer.headers["x-hone-trajectory"], answer.headers["x-hone-call"]
    solved = {"name": "solved", "value": 1}
    for path, body in (
        (f"/hone/v1/trajectories/{run}/feedback", solved),
        ("/hone/v1/feedback", solved | {"inference_id": call}),
        ("/hone/v1/feedback", solved | {"call_id": call}),
        ("/hone/v1/feedback", solved | {"episode_id": run}),
        ("/hone/v1/feedback", solved | {"trajectory_id": run}),
        ("/g/a/t/one/hone/v1/feedback", solved | {"call_id": call}),
    ):
        status, noted = await post(proxy, path, body)
        assert (status, noted["trajectory_id"]) == (201, run)
    kept = await feedback.list_feedback(proxy.store, run)
    assert [f.call_id for f in kept].count(call) == 3
    status, noted = await post(proxy, "/hone/v1/feedback", solved | {"call_id": call, "dryrun": True})
    assert (status, noted["feedback_id"]) == (201, None)
    assert len(await feedback.list_feedback(proxy.store, run)) == 6


@pytest.mark.parametrize(
    ("body", "status", "words_"),
    [
        ({"value": 1}, 400, "give `name`"),
        ({"name": "a", "metric_name": "b", "value": 1}, 400, "only one"),
        ({"name": "solved"}, 400, "value"),
        ({"name": "no such name!", "value": 1}, 400, "not a valid id"),
        ({"name": "comment", "value": 3}, 400, "takes text"),
        ({"name": "solved", "value": 1, "colour": "red"}, 400, "colour"),
        ({"name": "solved", "value": 1, "call_id": "call_nobody"}, 404, "no call"),
        ({"name": "solved", "value": 1}, 400, "no trajectory is named"),
        ([], 400, ""),
    ],
)
async def test_feedback_that_makes_no_sense_is_refused(proxy: Proxy, body: Any, status: int, words_: str) -> None:
    await proxy.chat(path="/t/one")
    path = "/hone/v1/feedback" if words_ in {"no trajectory is named", "no call"} else "/t/one/hone/v1/feedback"
    answer = await proxy.http.post(path, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)
    told = answer.json()
    assert (told["status"], told["type"]) == (status, "about:blank")
    assert words_ in told["detail"]


async def test_a_run_is_read_with_its_conversation_and_its_tokens(proxy: Proxy) -> None:
    answer = await proxy.chat("Where?", path="/t/one", headers={"x-hone-tags": "env=prod"})
    status, run = await get(proxy, "/hone/v1/trajectories/one")
    assert (status, run["id"], run["external_id"]) == (200, answer.headers["x-hone-trajectory"], "one")
    assert [m["content"] for m in run["messages"]] == ["Where?", "It arrives on Monday"]
    assert (run["tags"], run["calls"][0]["choices"][0]["token_ids"]) == ({"env": "prod"}, None)
    _, run = await get(proxy, "/hone/v1/trajectories/one?tokens=true")
    assert len(run["calls"][0]["choices"][0]["token_ids"]) == 5
    assert run["calls"][0]["prompt_token_ids"]
    assert (await get(proxy, "/hone/v1/trajectories/nobody"))[0] == 404


async def test_a_key_for_one_run_speaks_for_no_other(proxy: Proxy) -> None:
    _, run = await post(proxy, "/hone/v1/trajectories", {"trajectory": "mine"})
    bearer = {"authorization": f"Bearer {run['api_key']}"}
    await proxy.chat(headers=bearer)
    other = (await proxy.chat(path="/t/other")).headers["x-hone-trajectory"]
    for path in (
        f"/hone/v1/trajectories/{other}/done",
        f"/hone/v1/trajectories/{other}/feedback",
        "/t/other/hone/v1/done",
    ):
        body = {"name": "solved", "value": 1} if path.endswith("feedback") else {}
        status, told = await post(proxy, path, body, **bearer)
        assert (status, "belongs to the trajectory mine" in told["detail"]) == (403, True)
    assert (await post(proxy, "/hone/v1/trajectories", {}, **bearer))[0] == 403
    assert (await post(proxy, "/hone/v1/groups/x/close", {}, **bearer))[0] == 403
    assert (await proxy.chat(path="/t/other", headers=bearer)).status_code == 403
    assert (await post(proxy, "/hone/v1/feedback", {"name": "solved", "value": 1}, **bearer))[0] == 201


async def test_a_minted_key_may_do_no_more_than_its_maker(proxy: Proxy) -> None:
    _, infer = await keys.create_key(Project(proxy.store, PROJECT), "agent", ["infer"])
    bearer = {"authorization": f"Bearer {infer}"}
    async with asyncio.timeout(10):
        while (await get(proxy, "/v1/models"))[0] != 401:
            pass  # the proxy asks once a second whether there are keys
    status, run = await post(proxy, "/hone/v1/trajectories", {"expires_in_s": 60}, **bearer)
    assert status == 201
    own = {"authorization": f"Bearer {run['api_key']}"}
    assert (await proxy.chat(headers=own)).status_code == 200
    assert (await post(proxy, "/hone/v1/done", {}, **own))[0] == 403


async def test_a_run_that_has_ended_is_deleted(proxy: Proxy) -> None:
    headers = {"content-type": "application/json"}
    run = (await proxy.chat("Where is my secret?", path="/t/one")).headers["x-hone-trajectory"]
    answer = await proxy.http.delete("/hone/v1/trajectories/one", headers=headers)
    assert (answer.status_code, "still open" in answer.json()["detail"]) == (409, True)
    await post(proxy, "/t/one/hone/v1/done")
    answer = await proxy.http.delete("/hone/v1/trajectories/one", headers=headers)
    assert answer.json() == {"trajectory_ids": [run], "calls": 1, "log_erased": True}
    assert (await get(proxy, f"/hone/v1/trajectories/{run}"))[0] == 404
    assert (await proxy.http.delete("/hone/v1/trajectories/one", headers=headers)).status_code == 404
    again = await proxy.chat("Where is my secret?", "It arrives on Monday", "and?", path="/t/one")
    assert again.headers["x-hone-trajectory"] != run
    assert await proxy.metric("hone_unrecorded_calls") == 0


async def test_feedback_is_redacted_like_what_it_is_about(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine, recording=RecorderSettings(redact=["email"])) as proxy:
        run = (await proxy.chat("I am anna@example.org", path="/t/one")).headers["x-hone-trajectory"]
        body = {"name": "comment", "value": "anna@example.org is pleased", "tags": {"who": "anna@example.org"}}
        await post(proxy, "/t/one/hone/v1/feedback", body)
        [kept] = await feedback.list_feedback(store, run)
        _, shown = await get(proxy, f"/hone/v1/trajectories/{run}")
    assert (kept.value, kept.tags) == ("[redacted:email] is pleased", {"who": "[redacted:email]"})
    assert shown["messages"][0]["content"] == "I am [redacted:email]"
