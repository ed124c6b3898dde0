"""Runs, named groups and answers under several keys: another's is refused by its address, and else unseen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from proxy.settings.sections import ProxySettings
from recorder.maintenance.deletion import delete_trajectory
from recorder.registry import keys
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import find_trajectory, load_trajectory
from tests.proxy.fake_engine import FakeEngine, Script, tool_call, words
from tests.proxy.running import PROJECT, WITHOUT_PAGES, Proxy, say, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow

Headers = dict[str, str]
Key = Callable[..., Awaitable[Headers]]
FIND = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as running:
        running.default = Script([words("It arrives on Monday")])
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> AsyncIterator[Proxy]:
    await keys.create_key(Project(store, PROJECT), "guards", ["read"])
    async with serving(store, engine, settings=WITHOUT_PAGES) as running:
        yield running


@pytest.fixture
def key(store: Store) -> Key:
    async def made(name: str, *scopes: str) -> Headers:
        _, secret = await keys.create_key(Project(store, PROJECT), name, scopes or ["infer"])
        return bearer(secret)

    return made


def bearer(secret: str) -> Headers:
    return {"authorization": f"Bearer {secret}"}


async def run_of(proxy: Proxy, *texts: str, headers: Headers, path: str = "", **more: Any) -> str:
    answer = await proxy.chat(*texts, path=path, headers=headers, **more)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-hone-trajectory"]


# --- addresses


@pytest.mark.parametrize(
    ("route", "body", "told"),
    [
        ("/v1/chat/completions", say(), lambda e: e["error"]["code"] == "forbidden"),
        ("/v1/completions", {"model": "helpdesk", "prompt": "?"}, lambda e: e["error"]["code"] == "forbidden"),
        ("/v1/responses", {"model": "helpdesk", "input": "?"}, lambda e: e["error"]["code"] == "forbidden"),
        ("/v1/messages", say(max_tokens=9), lambda e: e["error"]["type"] == "permission_error"),
    ],
)
@pytest.mark.parametrize("by", ["path", "header"])
async def test_who_names_anothers_run_is_refused_in_its_own_format(
    proxy: Proxy, key: Key, route: str, body: dict[str, Any], told: Callable[[Any], bool], by: str
) -> None:
    one, two = await key("one"), await key("two")
    await run_of(proxy, headers=one, path="/t/1")
    named = {"x-hone-trajectory": "1"} if by == "header" else {}
    answer = await proxy.http.post(("/t/1" if by == "path" else "") + route, json=body, headers=two | named)
    assert (answer.status_code, told(answer.json())) == (403, True), answer.text
    assert "the trajectory 1 belongs to another key" in answer.text
    assert len(await proxy.calls()) == 1


async def test_a_run_takes_its_key_what_that_minted_its_successor_and_admin(proxy: Proxy, key: Key) -> None:
    made, secret = await keys.create_key(Project(proxy.store, PROJECT), "one", ["infer", "feedback"])
    home = await run_of(proxy, headers=bearer(secret), path="/t/1")
    minted = await proxy.http.post("/hone/v1/trajectories", json={"trajectory": "1"}, headers=bearer(secret))
    _, later = await keys.rotate_key(Project(proxy.store, PROJECT), made.id, grace_s=3600)
    by_admin = await proxy.http.post("/hone/v1/trajectories", json={"trajectory": "1"}, headers=await key("a", "admin"))
    for headers, path in (
        (bearer(secret), "/t/1"),
        (bearer(later), "/t/1"),
        (bearer(minted.json()["api_key"]), ""),
        (bearer(by_admin.json()["api_key"]), ""),
        (await key("root", "admin"), "/t/1"),
    ):
        assert await run_of(proxy, headers=headers, path=path) == home


async def test_a_run_that_no_key_made_takes_any(store: Store, engine: FakeEngine, key: Key) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES) as open_proxy:
        home = (await open_proxy.chat(path="/t/1")).headers["x-hone-trajectory"]
    one, two = await key("one"), await key("two")
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        assert [await run_of(proxy, headers=headers, path="/t/1") for headers in (one, two)] == [home, home]


async def test_no_key_is_minted_for_anothers_run(proxy: Proxy, key: Key) -> None:
    one, two = await key("one"), await key("two")
    await run_of(proxy, headers=one, path="/g/a/t/1")
    body = {"trajectory": "1", "group": "a"}
    refused = await proxy.http.post("/hone/v1/trajectories", json=body, headers=two)
    assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
    assert (await proxy.http.post("/hone/v1/trajectories", json=body, headers=one)).status_code == 201


async def test_a_key_minted_before_the_run_was_made_comes_too_late(proxy: Proxy, key: Key) -> None:
    one, two = await key("one"), await key("two")
    minted = await proxy.http.post("/hone/v1/trajectories", json={"trajectory": "1"}, headers=two)
    await run_of(proxy, headers=one, path="/t/1")
    answer = await proxy.chat(headers=bearer(minted.json()["api_key"]))
    assert answer.status_code == 403


async def test_a_run_stays_its_makers_after_it_ended(proxy: Proxy, key: Key) -> None:
    one, two = await key("one", "infer", "feedback"), await key("two")
    first = await run_of(proxy, headers=one, path="/t/1")
    await proxy.http.post("/t/1/hone/v1/done", json={}, headers=one)
    assert (await proxy.chat(path="/t/1", headers=two)).status_code == 403
    by_admin = await run_of(proxy, headers=await key("root", "admin"), path="/t/1")
    assert by_admin != first
    assert (await proxy.chat(path="/t/1", headers=two)).status_code == 403
    assert await run_of(proxy, headers=one, path="/t/1") == by_admin


async def test_a_call_that_runs_while_its_address_changes_hands_stays_its_makers(
    proxy: Proxy, engine: FakeEngine, key: Key
) -> None:
    one, two = await key("one", "infer", "feedback"), await key("two")
    first = await run_of(proxy, headers=one, path="/t/1")
    engine.next = [Script([words("late")], gate=(gate := asyncio.Event()))]
    late = asyncio.ensure_future(proxy.chat("slow", path="/t/1", headers=one))
    await until(lambda: "slow" in str(engine.requests[-1]))
    await proxy.http.post("/t/1/hone/v1/done", json={}, headers=one)
    await delete_trajectory(Project(proxy.store, PROJECT), first)
    theirs = await run_of(proxy, "mine now", headers=two, path="/t/1")
    gate.set()
    assert (await late).status_code == 200
    view = await load_trajectory(proxy.store, theirs)
    assert [call.messages[-1]["content"] for call in view.calls] == ["mine now"]


async def test_anothers_run_is_not_ended(proxy: Proxy, key: Key) -> None:
    one, two = await key("one"), await key("two")
    home = await run_of(proxy, headers=one, path="/t/1")
    done = {"x-hone-done": "true"}
    assert (await proxy.chat(path="/t/1", headers=two | done)).status_code == 403
    assert (await proxy.http.post("/t/1/hone/v1/done", json={}, headers=two)).status_code == 403
    assert (await load_trajectory(proxy.store, home)).state == "open"
    assert await run_of(proxy, headers=one | done, path="/t/1") == home
    assert (await load_trajectory(proxy.store, home)).state == "completed"


async def test_a_key_of_feedback_all_ends_anothers_run_and_no_other_does(proxy: Proxy, key: Key) -> None:
    home = await run_of(proxy, headers=await key("one"), path="/t/1")
    refused = await proxy.http.post("/t/1/hone/v1/done", json={}, headers=await key("two", "infer", "feedback"))
    assert refused.status_code == 403
    ended = await proxy.http.post("/t/1/hone/v1/done", json={}, headers=await key("three", "feedback-all"))
    assert ended.json() == {"trajectory_id": home, "state": "completed"}


# --- other evidence


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"x-session-id": "s"}, {}),
        ({"x-litellm-trace-id": "s"}, {}),
        ({"traceparent": f"00-{1:032x}-{1:016x}-01"}, {}),
        ({"x-stainless-retry-count": "1"}, {}),
        ({}, {"metadata": {"thread_id": "s"}}),
        ({}, {"prompt_cache_key": "s"}),
        ({}, {}),
    ],
)
async def test_evidence_leads_to_own_runs_alone(
    proxy: Proxy, key: Key, headers: Headers, fields: dict[str, Any]
) -> None:
    one, two = await key("one"), await key("two")
    first = await run_of(proxy, "Where?", headers=one | headers, **fields)
    history = ("Where?", "It arrives on Monday", "And now?")
    theirs = await run_of(proxy, *history, headers=two | headers, **fields)
    assert theirs != first
    assert await run_of(proxy, *history, headers=one | headers, **fields) == first
    assert await run_of(proxy, *history[:2], "Thanks", headers=two | headers, **fields) != first


async def test_an_issued_id_leads_to_own_runs_alone(proxy: Proxy, engine: FakeEngine, key: Key) -> None:
    one, two = await key("one"), await key("two")
    engine.next = [Script([tool_call("find_order", {"id": 1}, "call-1")])]
    first = await run_of(proxy, headers=one, tools=[FIND])
    called = {"id": "call-1", "type": "function", "function": {"name": "find_order", "arguments": '{"id": 1}'}}
    history = [
        *say()["messages"],
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "call-1", "content": "found"},
    ]
    homes = [await run_of(proxy, headers=k, tools=[FIND], messages=history) for k in (two, one)]
    assert homes[0] != first
    assert homes[1] == first
    async with serving(proxy.store, engine, settings=WITHOUT_PAGES) as other:  # another process, that remembers nothing
        assert await run_of(other, headers=two, tools=[FIND], messages=history) != first
        assert await run_of(other, headers=one, tools=[FIND], messages=history) == first


async def test_what_one_process_refuses_another_does_too(proxy: Proxy, engine: FakeEngine, key: Key) -> None:
    one, two = await key("one"), await key("two")
    home = await run_of(proxy, headers=one, path="/t/1")
    async with serving(proxy.store, engine, settings=WITHOUT_PAGES) as other:
        assert (await other.chat(path="/t/1", headers=two)).status_code == 403
        assert await run_of(other, headers=one, path="/t/1") == home
        assert (await other.chat(path="/t/1", headers=two)).status_code == 403


async def test_keys_that_are_one_family_share_evidence(proxy: Proxy) -> None:
    made, secret = await keys.create_key(Project(proxy.store, PROJECT), "one", ["infer"])
    first = await run_of(proxy, "Where?", headers=bearer(secret))
    _, later = await keys.rotate_key(Project(proxy.store, PROJECT), made.id)
    assert await run_of(proxy, "Where?", "It arrives on Monday", "And?", headers=bearer(later)) == first


# --- groups


async def group_of(proxy: Proxy, run: str) -> str | None:
    return (await load_trajectory(proxy.store, run)).group_id


async def test_a_named_group_is_its_keys_own(proxy: Proxy, key: Key) -> None:
    one, two = await key("one", "infer", "feedback"), await key("two")
    homes = [await run_of(proxy, headers=k, path=f"/g/orders/t/{n}") for n, k in enumerate((one, two, one, two))]
    by_header = await run_of(proxy, headers=two | {"x-hone-group": "orders"})
    groups = [await group_of(proxy, home) for home in (*homes, by_header)]
    assert groups[0] == groups[2] != groups[1] == groups[3] == groups[4]
    closed = await proxy.http.post("/hone/v1/groups/orders/close", json={}, headers=one)
    assert closed.json()["id"] == groups[0]
    assert await group_of(proxy, await run_of(proxy, headers=two, path="/g/orders/t/5")) == groups[1]
    successor = await group_of(proxy, await run_of(proxy, headers=one, path="/g/orders/t/6"))
    assert successor not in groups


async def test_named_groups_may_be_the_projects(store: Store, engine: FakeEngine, key: Key) -> None:
    one, two = await key("one"), await key("two")
    async with serving(store, engine, settings=ProxySettings(port=0, key_groups="project")) as proxy:
        homes = [await run_of(proxy, headers=k, path=f"/g/orders/t/{n}") for n, k in enumerate((one, two))]
        assert len({await group_of(proxy, home) for home in homes}) == 1
        assert (await proxy.chat(path="/g/orders/t/0", headers=two)).status_code == 403


async def test_groups_that_nobody_named_are_the_projects(proxy: Proxy, key: Key) -> None:
    homes = [await run_of(proxy, "Where?", headers=await key(name)) for name in ("one", "two")]
    assert len({await group_of(proxy, home) for home in homes}) == 1
    assert len(set(homes)) == 2


async def test_the_address_counts_even_where_groups_are_own(proxy: Proxy, key: Key) -> None:
    one, two = await key("one"), await key("two")
    home = await run_of(proxy, headers=one, path="/g/orders/t/1")
    assert (await proxy.chat(path="/g/orders/t/1", headers=two)).status_code == 403
    assert await find_trajectory(Project(proxy.store, PROJECT), "1", "orders") == home


# --- answers


async def test_anothers_answers_are_missing(proxy: Proxy, key: Key) -> None:
    one, two = await key("one"), await key("two")
    given = await proxy.http.post("/v1/responses", json={"model": "helpdesk", "input": "Where?"}, headers=one)
    home, id_ = given.headers["x-hone-trajectory"], given.json()["id"]
    unknown = "resp_" + "0" * 20
    for method, what in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
        body: dict[str, Any] | None = {} if method == "POST" else None
        theirs, nobodys = [
            await proxy.http.request(method, f"/v1/responses/{r}{what}", headers=two, json=body) for r in (id_, unknown)
        ]
        assert theirs.status_code == nobodys.status_code == 404
        assert theirs.text.replace(id_, unknown) == nobodys.text
    more = {"model": "helpdesk", "input": "And?", "previous_response_id": id_}
    refused = await proxy.http.post("/v1/responses", json=more, headers=two)
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "previous_response_id")
    goes_on = await proxy.http.post("/v1/responses", json=more, headers=one)
    assert goes_on.headers["x-hone-trajectory"] == home
    shown = await proxy.http.get(f"/v1/responses/{id_}", headers=one)
    assert shown.json() == given.json()
    assert (await proxy.http.get(f"/v1/responses/{id_}", headers=await key("root", "admin"))).status_code == 200


async def test_a_key_minted_for_a_run_is_shown_that_runs_answers_alone(proxy: Proxy, key: Key) -> None:
    one = await key("one")
    body = {"model": "helpdesk", "input": "Where?"}
    minted = await proxy.http.post("/hone/v1/trajectories", json={"trajectory": "1"}, headers=one)
    bound = bearer(minted.json()["api_key"])
    elsewhere = (await proxy.http.post("/t/2/v1/responses", json=body, headers=one)).json()["id"]
    own = (await proxy.http.post("/v1/responses", json=body, headers=bound)).json()["id"]
    statuses = [(await proxy.http.get(f"/v1/responses/{id_}", headers=bound)).status_code for id_ in (elsewhere, own)]
    assert statuses == [404, 200]
    refused = await proxy.http.post("/v1/responses", json=body | {"previous_response_id": elsewhere}, headers=bound)
    assert refused.status_code == 404
    assert (await proxy.http.get(f"/v1/responses/{own}", headers=one)).status_code == 200
