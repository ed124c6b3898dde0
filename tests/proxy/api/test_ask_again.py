"""A recorded call asked again over /hone/v1: served and recorded as any call, never learned from, by who may."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from recorder.maintenance.deletion import delete_trajectory
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.states import TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import issued, trajectories
from recorder.views.comparison import new_answers
from tests.proxy.api.asking import post
from tests.proxy.fake_engine import FakeEngine, Script, tool_call, words
from tests.proxy.running import ALIAS, PROJECT, WITHOUT_PAGES, Proxy, serving
from tests.recorder.totals.facts import count_all

pytestmark = pytest.mark.slow


@pytest.fixture
async def engine() -> Any:
    async with FakeEngine() as made:
        yield made


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> Any:
    async with serving(store, engine, settings=WITHOUT_PAGES) as running:
        yield running


async def test_the_answers_stand_beside_the_recorded_one_and_are_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    first = await proxy.chat("Where?", path="/t/one", temperature=0.7)
    call, run = first.headers["x-hone-call"], first.headers["x-hone-trajectory"]
    engine.next = [Script([words("It arrives on Friday"), words("It arrives on Monday")])]
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    asked = {"model": f"{ALIAS}@0", "temperature": 0.2, "n": 2, "tools": tools}
    status, told = await post(proxy, f"/hone/v1/calls/{call}/ask-again", asked)
    assert status == 201, told
    assert (told["version"], told["recorded"]) == (f"{ALIAS}@0", "It arrives on Monday")
    changed, same = told["answers"]
    assert [(one["kind"], one["text"]) for one in changed["changes"]] == [
        ("same", "It arrives on "), ("removed", "Monday"), ("added", "Friday"),
    ]  # fmt: skip
    assert [one["kind"] for one in same["changes"]] == ["same"]
    sent = engine.requests[-1]
    assert (sent["temperature"], sent["n"], sent["tools"]) == (0.2, 2, tools)
    assert [one["content"] for one in sent["messages"]] == ["Where?"]

    async with proxy.store.read() as conn:
        new = (await conn.execute(select(trajectories).where(trajectories.c.id == told["trajectory_id"]))).one()
    assert (new.purpose, new.origin, new.state, new.group_id) == ("none", "shadow", "completed", None)
    [line] = [one for one in await proxy.calls() if one["call_id"] == told["call_id"]]
    assert line["attribution"] == {"source": "ask_again", "confidence": "stated"}
    assert line["usage"]["completion_tokens"] == told["usage"]["completion_tokens"] > 0
    assert new_answers.repeated_call_id(new.external_id) == call
    listed = (await proxy.http.get("/hone/v1/trajectories")).json()
    assert ([one["id"] for one in listed["trajectories"]], listed["hidden"]) == ([run], 1)
    assert [one.call_id for one in await new_answers.list_repeats(Project(proxy.store, PROJECT), call)] == [
        told["call_id"]
    ]


async def test_it_counts_as_cost(proxy: Proxy) -> None:
    call = (await proxy.chat("Where?")).headers["x-hone-call"]
    await post(proxy, f"/hone/v1/calls/{call}/ask-again")
    await count_all(Project(proxy.store, PROJECT))
    totals = [
        (await proxy.http.get(f"/hone/v1/traffic?origin={origin}")).json()["total"] for origin in ("any", "shadow")
    ]
    assert [one["calls"] for one in totals] == [2, 1]
    assert totals[1]["tokens_out"] > 0


async def test_an_agent_goes_on_as_if_nobody_had_asked_again(proxy: Proxy, engine: FakeEngine) -> None:
    """Equal answers to an equal conversation, and equal ids of tool calls: only the agent's own count."""
    called = tool_call("find", {"id": 1}, "call_abcdefgh")
    engine.next = [Script([called]), Script([called])]
    first = await proxy.chat("Where?")
    status, told = await post(proxy, f"/hone/v1/calls/{first.headers['x-hone-call']}/ask-again")
    assert status == 201
    assert told["answers"][0]["text"] == 'calls find {"id": 1}'
    message = first.json()["choices"][0]["message"]
    said = [{"role": "user", "content": "Where?"}, message]
    said.append({"role": "tool", "tool_call_id": "call_abcdefgh", "content": "here"})
    after = await proxy.http.post("/v1/chat/completions", json={"model": ALIAS, "messages": said})
    assert after.headers["x-hone-trajectory"] == first.headers["x-hone-trajectory"]
    [line] = [one for one in await proxy.calls() if one["call_id"] == after.headers["x-hone-call"]]
    assert line["attribution"]["confidence"] == "exact"
    async with proxy.store.read() as conn:
        assert (await conn.execute(select(issued.c.kind))).scalars().all() == ["tool_call"]


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({"n": 9}, 400, "n"),
        ({"temperature": 3}, 400, "temperature"),
        ({"model": "nobody@7"}, 404, "'nobody@7' is unknown"),
        ({"messages": []}, 400, "at least one message"),
        ({"messages": [{"role": "user", "content": 7}]}, 400, "content"),
        ({"seed": 1}, 400, "seed"),
    ],
)
async def test_what_cannot_be_asked_is_refused_in_words(
    proxy: Proxy, body: dict[str, Any], status: int, why: str
) -> None:
    call = (await proxy.chat()).headers["x-hone-call"]
    answered, told = await post(proxy, f"/hone/v1/calls/{call}/ask-again", body)
    assert (answered, told["status"]) == (status, status)
    assert why in told["detail"]


async def test_a_failure_of_the_engine_is_told(proxy: Proxy, engine: FakeEngine) -> None:
    call = (await proxy.chat()).headers["x-hone-call"]
    engine.next = [Script(status=400, error={"message": "too long for this model", "type": "BadRequestError"})]
    status, told = await post(proxy, f"/hone/v1/calls/{call}/ask-again")
    assert (status, "too long for this model" in told["detail"]) == (400, True)
    assert (await post(proxy, "/hone/v1/calls/call_nobody/ask-again"))[0] == 404


async def test_a_call_is_asked_again_as_often_as_it_has_places(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_answers, "PLACES", 2)
    call = (await proxy.chat()).headers["x-hone-call"]
    path = f"/hone/v1/calls/{call}/ask-again"
    assert [(await post(proxy, path))[0] for _ in range(3)] == [201, 201, 409]


async def test_what_asked_again_is_deleted_with_the_call(proxy: Proxy) -> None:
    first = await proxy.chat(path="/t/one")
    call, run = first.headers["x-hone-call"], first.headers["x-hone-trajectory"]
    _, told = await post(proxy, f"/hone/v1/calls/{call}/ask-again")
    await post(proxy, f"/hone/v1/calls/{told['call_id']}/ask-again")
    await proxy.recorder.close(PROJECT, run, TrajectoryState.COMPLETED, "done")
    await delete_trajectory(Project(proxy.store, PROJECT), run)
    assert await proxy.calls() == []


async def test_it_needs_infer_and_eval_and_a_call_that_one_may_read(store: Store, engine: FakeEngine) -> None:
    async def bearer(name: str, *scopes: Scope) -> dict[str, str]:
        return {"authorization": f"Bearer {(await keys.create_key(Project(store, PROJECT), name, scopes))[1]}"}

    admin = await bearer("admin", Scope.ADMIN)
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        call = (await proxy.chat(headers=admin)).headers["x-hone-call"]
        for scopes, status in (
            ([Scope.EVAL, Scope.READ], 403),
            ([Scope.INFER, Scope.READ], 403),
            ([Scope.INFER, Scope.EVAL], 403),
            ([Scope.INFER, Scope.EVAL, Scope.READ], 201),
        ):
            mine = await bearer("-".join(scopes), *scopes)
            answered, told = await post(proxy, f"/hone/v1/calls/{call}/ask-again", **mine)
            assert answered == status, (scopes, told)
        own = await bearer("own", Scope.INFER, Scope.EVAL)
        call = (await proxy.chat(headers=own)).headers["x-hone-call"]
        assert (await post(proxy, f"/hone/v1/calls/{call}/ask-again", **own))[0] == 201
