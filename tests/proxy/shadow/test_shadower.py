"""Turns answered again: through the whole proxy before a fake engine, with a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from sqlalchemy import select

from proxy.settings.sections import ShadowSettings
from proxy.shadow import shadower
from recorder.queue.groups.same_request import FORKED
from recorder.registry.replicas import report_replica
from recorder.states import GroupState, Origin, Purpose, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import groups, trajectories
from recorder.views.status.figures import list_shadow_costs
from recorder.views.trajectories.shapes import GroupView
from recorder.views.trajectories.transcripts import load_groups
from tests.proxy.fake_engine import FakeEngine, Said, Script, tool_call, words
from tests.proxy.running import ALIAS, BASE, PROJECT, WITHOUT_PAGES, Proxy, say, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow

FIND = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object", "properties": {}}}}
LIVE = "It arrives on Monday"
HISTORY = ("Where is 4821?", LIVE)
ALL = ShadowSettings(share=1.0, n=3)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadower, "BREATH_S", 0.02)


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as made:
        yield made


def is_again(body: dict[str, Any]) -> bool:
    """Whether the engine was asked for a further answer: by ids, and token continuity is off here."""
    return "kv_transfer_params" in body


def agents(engine: FakeEngine) -> list[dict[str, Any]]:
    return [body for body in engine.requests if not is_again(body)]


def again(engine: FakeEngine) -> list[dict[str, Any]]:
    return [body for body in engine.requests if is_again(body)]


def says(engine: FakeEngine, live: Said, *further: Said) -> None:
    """Agents get `live`; further answers are these, by turns."""
    others = list(further)

    def script(body: dict[str, Any]) -> Script:
        if not is_again(body):
            return Script([live])
        others.append(others.pop(0))
        return Script([others[-1]])

    engine.default = script


async def end(proxy: Proxy, path: str = "/t/one") -> None:
    (await proxy.http.post(f"{path}/hone/v1/done", json={})).raise_for_status()


async def shadow_groups(store: Store, count: int = 1) -> Sequence[GroupView]:
    """The shadow groups, once there are so many and none waits for an answer."""
    found: list[str] = []

    async def there() -> bool:
        of_shadows = select(trajectories.c.group_id).where(trajectories.c.origin == Origin.SHADOW)
        query = select(groups.c.id).where(groups.c.id.in_(of_shadows), groups.c.state != GroupState.OPEN)
        async with store.read() as conn:
            found[:] = (await conn.execute(query)).scalars()
        return len(found) >= count

    await until(there)
    assert len(found) == count
    return await load_groups(store, found, with_tokens=True)


async def outcome(proxy: Proxy, word: str) -> None:
    """Wait until a drawn run came to this."""

    async def there() -> bool:
        text = (await proxy.http.get("/metrics")).text
        return f'hone_shadow_calls_total{{alias="{ALIAS}",outcome="{word}"}} 1.0' in text

    await until(there)


async def test_one_turn_of_a_live_run_is_answered_again_on_its_very_ids(store: Store, engine: FakeEngine) -> None:
    says(engine, words(LIVE), words("On Tuesday"), words("I do not know"))
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ALL}) as proxy:
        live = (await proxy.chat("Where is 4821?", path="/t/one", temperature=0.7, seed=5, max_tokens=50)).json()
        assert again(engine) == []  # nothing before the run has ended
        await end(proxy)
        [group] = await shadow_groups(store)
        calls = await proxy.calls()
    assert live["choices"][0]["message"]["content"] == LIVE
    assert (group.state, group.declared_size, group.version_id) == (GroupState.READY, 3, proxy.alias.live_version_id)
    assert group.members[0].answer == LIVE
    assert sorted(m.answer or "" for m in group.members[1:]) == ["I do not know", "On Tuesday"]
    assert {(m.origin, m.purpose, m.state) for m in group.members} == {
        (Origin.SHADOW, Purpose.TRAIN, TrajectoryState.COMPLETED)
    }
    assert group.members[0].end_reason == FORKED
    turns = [member.calls[0] for member in group.members]
    assert all(turn.choices[0].trainable for turn in turns)
    assert len({tuple(turn.prompt_token_ids or ()) for turn in turns}) == 1
    assert {turn.sampling.temperature for turn in turns} == {0.7}
    assert {turn.version_id for turn in turns} == {proxy.alias.live_version_id}
    for body in again(engine):
        assert body["kv_transfer_params"]["prompt_token_ids"] == list(turns[0].prompt_token_ids or ())
        assert (body["temperature"], body["max_tokens"], body["top_p"]) == (0.7, 50, 1)
        assert "seed" not in body
        assert "stream" not in body
    assert len({call["trajectory_id"] for call in calls}) == 3


async def test_tool_calls_of_further_answers_are_read_and_nobody_calls_the_tools(
    store: Store, engine: FakeEngine
) -> None:
    live = tool_call("find_order", {"order_id": "4821"}, "chatcmpl-tool-1")
    says(engine, live, tool_call("find_order", {"order_id": "9"}, "chatcmpl-tool-2"), words("On Monday"))
    async with serving(
        store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ShadowSettings(share=1.0, n=3, at="first")}
    ) as proxy:
        await proxy.chat("Where is 4821?", path="/t/one", tools=[FIND])
        result = {"role": "tool", "tool_call_id": "chatcmpl-tool-1", "content": "shipped"}
        body = {"model": ALIAS, "messages": [*say("Where is 4821?")["messages"], live.message, result], "tools": [FIND]}
        engine.next = [Script([words("It has been shipped")])]
        (await proxy.http.post("/t/one/v1/chat/completions", json=body)).raise_for_status()
        await end(proxy)
        [group] = await shadow_groups(store)
    assert (len(agents(engine)), len(again(engine))) == (2, 2)
    assert all(body["tools"] == [FIND] for body in again(engine))
    asked = [[call["function"]["arguments"] for call in m.messages[-1].get("tool_calls", ())] for m in group.members]
    assert asked[0] == ['{"order_id": "4821"}']
    assert sorted(asked[1:]) == [[], ['{"order_id": "9"}']]
    assert [m.messages[-1]["role"] for m in group.members] == ["assistant"] * 3  # the tool's result is nobody's
    assert [list(m.tool_calls) for m in group.members] == [[], [], []]


async def test_agents_are_served_while_further_answers_are_asked_and_as_if_there_were_none(
    store: Store, engine: FakeEngine
) -> None:
    """A further answer that never comes holds nobody up, says nothing to anybody, and is given up at the end."""
    never = asyncio.Event()
    engine.default = lambda body: Script([words(LIVE)], gate=never if is_again(body) else None)
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ALL}) as proxy:
        first = await proxy.chat("Where is 4821?", path="/t/one")
        await end(proxy)
        await engine.until(lambda e: len(again(e)) == 2)
        second = await proxy.chat("Where is 4821?", path="/t/two")
        assert [answer.status_code for answer in (first, second)] == [200, 200]
        assert first.json().keys() == second.json().keys()
        assert set(first.headers) == set(second.headers)
        assert await proxy.metric("hone_calls_total") == 2
        assert await proxy.metric("hone_shadow_answers_total") == 0
    [group] = await shadow_groups(store)
    assert (group.state, group.reason) == (GroupState.LEFT_OUT, "too_few")
    assert [member.state for member in group.members[1:]] == [TrajectoryState.ERRORED] * 2
    assert "stopped" in (group.members[1].end_reason or "")


async def test_what_goes_on_after_the_end_goes_on_in_the_agents_own_run(store: Store, engine: FakeEngine) -> None:
    """By its history alone: the agent has no address, and a further answer said the same words."""
    says(engine, words(LIVE), words(LIVE), words("On Tuesday"))
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ALL}) as proxy:
        run = (await proxy.chat("Where is 4821?")).headers["x-hone-trajectory"]
        (await proxy.http.post(f"/hone/v1/trajectories/{run}/done", json={})).raise_for_status()
        [group] = await shadow_groups(store)
        on = (await proxy.chat(*HISTORY, "And 4822?")).headers["x-hone-trajectory"]
        beside = (await proxy.chat("Where is 4821?", "On Tuesday", "And 4822?")).headers["x-hone-trajectory"]
        calls = {call["trajectory_id"]: call for call in await proxy.calls()}
    shadows = {member.id for member in group.members}
    assert not shadows & {on, beside}
    first = next(call for call in calls.values() if call["trajectory_id"] == run)
    assert calls[on]["parent_call_id"] == first["call_id"]
    assert calls[beside]["parent_call_id"] is None


async def test_no_more_is_asked_at_once_than_the_engine_has_room_for(store: Store, engine: FakeEngine) -> None:
    """The bound counts agents' requests too; `n` is far above it."""
    gates = [asyncio.Event() for _ in range(8)]
    waiting = list(gates)
    engine.default = lambda body: Script([words(LIVE)], gate=waiting.pop(0) if is_again(body) else None)
    busy = asyncio.Event()
    settings = ShadowSettings(share=1.0, n=9, max_in_flight=3)
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: settings}) as proxy:
        engine.next = [Script([words(LIVE)]), Script([words("Later")], gate=busy)]
        await proxy.chat("Where is 4821?", path="/t/one")
        agent = asyncio.ensure_future(proxy.chat("And 4822?", path="/t/two"))
        await engine.until(lambda e: len(agents(e)) == 2)
        await end(proxy)
        open_now = 0
        for at, gate in enumerate(gates):
            await engine.until(lambda e, at=at: len(again(e)) == min(at + 2, len(gates)))  # type: ignore[misc]  # bound
            open_now = max(open_now, len(again(engine)) - at)
            gate.set()
        busy.set()
        await agent
        [group] = await shadow_groups(store)
    assert open_now == 2
    assert len(group.members) == 9


async def test_a_turn_whose_engine_is_never_idle_is_let_go(
    store: Store, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadower, "PATIENCE_S", 0.0)
    busy = asyncio.Event()
    async with serving(
        store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ShadowSettings(share=1.0, max_in_flight=1)}
    ) as proxy:
        await proxy.chat("Where is 4821?", path="/t/one")
        engine.next = [Script(gate=busy)]
        agent = asyncio.ensure_future(proxy.chat("And 4822?", path="/t/two"))
        await engine.until(lambda e: len(agents(e)) == 2)
        await end(proxy)
        await outcome(proxy, "engine_busy")
        busy.set()
        assert (await agent).status_code == 200
    assert again(engine) == []


async def test_an_answer_that_fails_is_no_member_that_counts(store: Store, engine: FakeEngine) -> None:
    faults = [
        Script(status=500, error={"error": {"message": "out of memory"}}),
        Script(hang_up=True),
        Script(hang_up=True),  # a connection that breaks costs one more try
        Script(body=b"{}"),
    ]

    def script(body: dict[str, Any]) -> Script:
        return (faults.pop(0) if faults else Script([words("On Tuesday")])) if is_again(body) else Script()

    engine.default = script
    settings = ShadowSettings(share=1.0, n=5, max_in_flight=1)
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: settings}) as proxy:
        await proxy.chat("Where is 4821?", path="/t/one")
        await end(proxy)
        [group] = await shadow_groups(store)
        text = (await proxy.http.get("/metrics")).text
    assert group.state == GroupState.READY
    states = sorted(member.state for member in group.members)
    assert states == [TrajectoryState.COMPLETED] * 2 + [TrajectoryState.ERRORED] * 3
    assert f'hone_shadow_answers_total{{alias="{ALIAS}",state="errored"}} 3.0' in text


async def test_an_engine_that_answers_another_prompt_is_not_believed(store: Store, engine: FakeEngine) -> None:
    def script(body: dict[str, Any]) -> Script:
        body.get("kv_transfer_params", {})["prompt_token_ids"] = [1, 2, 3]
        return Script()

    engine.default = lambda body: script(body) if is_again(body) else Script()
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ALL}) as proxy:
        await proxy.chat("Where is 4821?", path="/t/one")
        await end(proxy)
        [group] = await shadow_groups(store)
    assert (group.state, group.reason) == (GroupState.LEFT_OUT, "too_few")


async def test_every_format_is_answered_again_as_chat(store: Store, engine: FakeEngine) -> None:
    says(engine, words(LIVE), words("On Tuesday"))
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ALL}) as proxy:
        body = {"model": ALIAS, "messages": [{"role": "user", "content": "Where is 4821?"}], "max_tokens": 50}
        (await proxy.http.post("/t/one/v1/messages", json=body)).raise_for_status()
        await end(proxy)
        asked = {"model": ALIAS, "input": "Where is 4822?"}
        (await proxy.http.post("/t/two/v1/responses", json=asked)).raise_for_status()
        await end(proxy, "/t/two")
        found = await shadow_groups(store, 2)
    assert [group.state for group in found] == [GroupState.READY] * 2
    for group in found:
        assert {member.answer for member in group.members} == {LIVE, "On Tuesday"}
        assert len({tuple(member.calls[0].prompt_token_ids or ()) for member in group.members}) == 1


async def test_what_it_costs_is_counted_and_a_budget_ends_it(store: Store, engine: FakeEngine) -> None:
    settings = ShadowSettings(share=1.0, n=3, budget=1)
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: settings}) as proxy:
        await proxy.chat("Where is 4821?", path="/t/one")
        await end(proxy)
        await shadow_groups(store)
        [cost] = await list_shadow_costs(Project(store, "default"), 0.0)
        assert (cost.alias, cost.answers) == (ALIAS, 2)
        assert cost.sampled_tokens == 2 * len(words(LIVE).ids())
        assert cost.prompt_tokens > 0
        assert await proxy.metric("hone_shadow_tokens_total") == cost.tokens
        await proxy.chat("Where is 4822?", path="/t/two")
        await end(proxy, "/t/two")
        await outcome(proxy, "over_budget")
    assert len(again(engine)) == 2


async def test_a_proxy_that_starts_again_answers_nothing_twice_and_what_ended_meanwhile(
    store: Store, engine: FakeEngine
) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        await proxy.chat("Where is 4821?", path="/t/one")
        await end(proxy)
    assert again(engine) == []  # it is off unless an alias says so
    for _ in range(2):
        async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ALL}) as proxy:
            await shadow_groups(store)
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ALL}) as proxy:
        await outcome(proxy, "answered_before")
    assert len(again(engine)) == 2


async def test_runs_that_cannot_be_learned_from_and_versions_that_are_gone_are_left(
    store: Store, engine: FakeEngine
) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES, shadows={ALIAS: ALL}) as proxy:
        await proxy.chat("Where is 4821?", path="/t/one", temperature=0)
        await end(proxy)
        await outcome(proxy, "no_turn")
        await proxy.chat("Where is 4822?", path="/t/two")
        await gone(proxy, engine)
        await end(proxy, "/t/two")
        await outcome(proxy, "version_gone")
    assert again(engine) == []


async def gone(proxy: Proxy, engine: FakeEngine) -> None:
    """Let no engine hold the version any more."""
    what: dict[str, Any] = {"base_model": BASE, "base_fingerprint": "fingerprint", "state": "up", "detail": None}
    await report_replica(Project(proxy.store, PROJECT), engine.url, loaded=[], **what)
    await until(lambda: not proxy.versions.snapshot.replicas[0].loaded)
