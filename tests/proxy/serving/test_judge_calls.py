"""A judge's request to an alias's base: answered, and no traffic; nothing else is served on its route."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import func, select

from proxy.serving import judge_calls
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.store.database import Project, Store
from recorder.store.schema import calls, groups, trajectories
from recorder.views.status.project import load_status
from recorder.views.status.stages import LoopSettings
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import BASE, PROJECT, Proxy, say

pytestmark = pytest.mark.slow

PATH = judge_calls.PATH


async def rows(store: Store) -> list[int]:
    async with store.read() as conn:
        return [
            int((await conn.execute(select(func.count()).select_from(table))).scalar_one())
            for table in (calls, trajectories, groups)
        ]


async def test_it_is_answered_by_the_base_and_nothing_of_it_is_traffic(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([words("It arrives")])
    answer = await proxy.http.post(PATH, json=say("Who was best?", model="helpdesk@0"))
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == "It arrives"
    assert answer.json()["model"] == "helpdesk@0"
    assert answer.headers["x-hone-version"] == "helpdesk@0"
    assert "x-hone-trajectory" not in answer.headers
    [asked] = engine.requests
    assert asked["model"] == BASE
    assert await rows(proxy.store) == [0, 0, 0]
    assert await proxy.metric("hone_calls_total") == 0
    assert await proxy.metric("hone_tokens_total") == 0
    assert await proxy.metric("hone_unrecorded_calls_total") == 0
    assert await proxy.metric("hone_judge_calls_total") == 1
    told = await load_status(Project(proxy.store, PROJECT), LoopSettings())
    assert (told.calls_per_s, told.open_trajectories) == (0, 0)


async def test_an_engine_that_fails_is_told_and_counted_as_a_judge_s(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script(status=500, error={"error": {"message": "broken"}})
    answer = await proxy.http.post(PATH, json=say(model="helpdesk@0"))
    assert (answer.status_code, "broken" in answer.json()["error"]["message"]) == (500, True)
    assert await proxy.metric("hone_refused_requests_total") == 0
    assert await proxy.metric("hone_judge_calls_total") == 1
    assert await rows(proxy.store) == [0, 0, 0]


@pytest.mark.parametrize(
    ("model", "status_code", "why"),
    [
        ("helpdesk", 400, "judges use the base of an alias, 'helpdesk@0'"),
        ("nobody@0", 404, "is unknown, or that version"),
    ],
)
async def test_no_other_model_is_served_there(
    proxy: Proxy, engine: FakeEngine, model: str, status_code: int, why: str
) -> None:
    answer = await proxy.http.post(PATH, json=say(model=model))
    assert (answer.status_code, why in answer.json()["error"]["message"]) == (status_code, True), answer.text
    assert engine.requests == []


async def test_where_there_are_keys_it_takes_one_that_may_ask_for_versions(proxy: Proxy, store: Store) -> None:
    _, agents = await keys.create_key(Project(store, PROJECT), "agents", [Scope.INFER, Scope.READ])
    _, judges = await keys.create_key(Project(store, PROJECT), "judge", [Scope.EVAL])
    async with asyncio.timeout(10):  # a proxy believes for a second that there are no keys
        while (await proxy.http.post(PATH, json=say(model="helpdesk@0"))).status_code != 401:
            await asyncio.sleep(0.1)
    asked = {name: await post(proxy, secret) for name, secret in (("agents", agents), ("judges", judges))}
    assert asked == {"agents": 403, "judges": 200}


async def post(proxy: Proxy, secret: str) -> int:
    headers = {"authorization": f"Bearer {secret}"}
    return (await proxy.http.post(PATH, json=say(model="helpdesk@0"), headers=headers)).status_code


async def test_few_are_asked_at_a_time_and_agents_go_first(
    proxy: Proxy, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_calls, "LOOK_S", 0.001)
    gate = asyncio.Event()
    engine.default = Script(gate=gate)
    agents = [asyncio.ensure_future(proxy.chat(f"a{number}")) for number in range(judge_calls.BUSY)]
    await engine.until(lambda one: len(one.requests) == judge_calls.BUSY)
    judges = [asyncio.ensure_future(proxy.http.post(PATH, json=say(model="helpdesk@0"))) for _ in range(4)]
    await asyncio.sleep(0)
    late = asyncio.ensure_future(proxy.chat("late"))  # an agent that comes after them is asked before them
    await engine.until(lambda one: len(one.requests) == judge_calls.BUSY + 1)
    assert [one["messages"][-1]["content"] for one in engine.requests][-1] == "late"
    gate.set()
    answers: list[Any] = await asyncio.gather(*agents, late, *judges)
    assert [one.status_code for one in answers] == [200] * (judge_calls.BUSY + 5)


async def test_an_engine_that_is_never_idle_keeps_no_judge_for_ever(
    proxy: Proxy, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_calls, "LOOK_S", 0.001)
    monkeypatch.setattr(judge_calls, "PATIENCE_S", 0.01)
    gate = asyncio.Event()
    engine.next = [Script(gate=gate)] * judge_calls.BUSY
    agents = [asyncio.ensure_future(proxy.chat(f"a{number}")) for number in range(judge_calls.BUSY)]
    await engine.until(lambda one: len(one.requests) == judge_calls.BUSY)
    assert (await proxy.http.post(PATH, json=say(model="helpdesk@0"))).status_code == 200
    gate.set()
    await asyncio.gather(*agents)
