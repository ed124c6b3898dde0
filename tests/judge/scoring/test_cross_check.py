"""Two judges: the strong one is asked beside and moves nothing, until they agree too little; then it scores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from judge.scoring.cross_check import is_drawn
from judge.scoring.rescoring import choose_groups
from judge.scoring.setup import open_judge_context
from judge.scoring.worker import JudgeWorker
from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from recorder.queue.judging import cross_checks, scores, switches
from recorder.queue.judging.cross_checks import CrossCheck
from recorder.queue.judging.scores import StoredScore
from recorder.queue.judging.switches import CHEAP, STRONG
from recorder.queue.training import budgets
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState
from recorder.store.database import Project, Store
from recorder.views.status.events import EventKind, EventReader
from recorder.views.status.project import Status, load_status
from recorder.views.status.stages import LoopSettings
from tests.judge.judge_server import Json, JudgeServer, by_worth, fails, verdicts
from tests.judge.recorded import PROJECT, Recorded

Make = Callable[..., JudgeSettings]
UP, DOWN = by_worth, lambda document: 1 - by_worth(document)
TWO = ["worth 0.2", "worth 0.9"]
MOST_S = 60.0


def by_model(**said: Any) -> Callable[[Json], Awaitable[web.StreamResponse]]:
    """Each judge scores in its own way, or fails in it."""

    async def behave(body: Json) -> web.StreamResponse:
        how = said[body["model"]]
        return await (verdicts(how) if how in (UP, DOWN) else how)(body)

    return behave


def two(server: JudgeServer, **more: Any) -> dict[str, Any]:
    """A cheap judge and a strong one that judges every group too."""
    strong = {"model": "openai/strong", "api_base": server.url, "every": 1, "min_agreement": 0.0, "window": 10}
    return {"strong": strong | more, "retries": 0}


@asynccontextmanager
async def working(store: Store, settings: JudgeSettings, learn: LearnSettings | None = None) -> AsyncIterator[None]:
    """A worker that runs in the background."""
    stop = asyncio.Event()
    async with open_judge_context(settings, Project(store, PROJECT)) as context:
        project = Project(store, PROJECT)
        follower = SettingsFollower(project, HoneSettings(learn=learn or LearnSettings()))
        worker = JudgeWorker(project, context, RecorderSettings(), follower=follower)
        running = asyncio.create_task(worker.run(stop))
        try:
            yield
        finally:
            stop.set()
            await running


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    """Wait for what the worker does; what is there then."""
    async with asyncio.timeout(MOST_S):
        while not (found := await look()):
            await asyncio.sleep(0.02)
    return found


async def judged_twice(store: Store, recorded: Recorded, names: Sequence[str]) -> list[CrossCheck]:
    """Groups of two runs, one after the other, each judged by both; what the judge beside said."""
    found = []
    for name in names:
        group_id, _ = await recorded.group(name, [f"{name}: {answer}" for answer in TWO])
        found += await until(partial(cross_checks.list_cross_checks, store, group_id))
    return found


async def score_of(store: Store, group_id: str) -> StoredScore:
    [score] = await scores.list_scores(store, group_id)
    return score


async def stands(store: Store) -> Status:
    return await load_status(Project(store, PROJECT), LoopSettings())


def test_one_group_of_so_many_is_drawn_whoever_draws() -> None:
    ids = [f"group_{number}" for number in range(20_000)]
    drawn = [id_ for id_ in ids if is_drawn(id_, 10)]
    assert abs(len(drawn) - 2000) < 200
    assert [id_ for id_ in ids if is_drawn(id_, 10)] == drawn
    assert all(is_drawn(id_, 1) for id_ in ids)


@pytest.mark.slow
async def test_the_strong_one_is_asked_beside_and_moves_no_reward(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    server.behave(by_model(judge=UP, strong=DOWN))
    async with working(store, settings(**two(server))):
        [said] = await judged_twice(store, recorded, ["g"])
    assert (said.judge, said.judge_model, said.tau, said.recipe) == (STRONG, "openai/strong", -1, "default")
    score = await score_of(store, said.group_id)
    assert (score.judge_model, score.tokens_in) == ("openai/judge", 100)
    assert sorted(filter(None, (await scores.score_rewards(store, score.id)).values())) == [0.2, 0.9]
    assert sorted(one.value for one in said.parts if one.value is not None) == pytest.approx([0.1, 0.8])
    assert Counter(one["model"] for one in server.requests) == {"judge": 1, "strong": 1}
    assert (await stands(store)).spent_today.tokens == 240  # both, and one group
    assert (await stands(store)).spent_today.groups == 1


@pytest.mark.slow
async def test_only_drawn_groups_are_judged_twice_and_each_once_by_several_workers(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    server.behave(by_model(judge=UP, strong=UP))
    made = settings(**two(server, every=3))
    ids = [(await recorded.group(f"g{number}", [f"{number}: {answer}" for answer in TWO]))[0] for number in range(12)]
    drawn = {id_ for id_ in ids if is_drawn(id_, 3)}

    async def all_scored() -> bool:
        by = [await scores.list_scores(store, id_) for id_ in ids]
        twice = [id_ for id_ in ids if await cross_checks.list_cross_checks(store, id_)]
        return all(by) and len(twice) >= len(drawn)

    async with working(store, made), working(store, made):
        await until(all_scored)
    counts = {id_: len(await cross_checks.list_cross_checks(store, id_)) for id_ in ids}
    assert {id_ for id_, count in counts.items() if count} == drawn
    assert set(counts.values()) <= {0, 1}


@pytest.mark.slow
async def test_a_strong_judge_that_fails_keeps_no_group_from_its_score(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    server.behave(by_model(judge=UP, strong=fails(500)))
    async with working(store, settings(**two(server))):
        [said] = await judged_twice(store, recorded, ["g"])
    assert (await score_of(store, said.group_id)).judge_model == "openai/judge"
    assert said.failed is not None
    assert said.failed.startswith("judge_down: ")
    [alarm] = (await stands(store)).alarms
    assert alarm.startswith("helpdesk, recipe default: the second judge failed on the newest group")


@pytest.mark.slow
async def test_where_they_agree_too_little_the_strong_one_scores_until_they_agree_again(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    made = settings(**two(server))
    happenings = EventReader(Project(store, PROJECT))
    await happenings.look()
    server.behave(by_model(judge=DOWN, strong=UP))
    async with working(store, made):
        await judged_twice(store, recorded, [f"a{number}" for number in range(10)])
        turn = await until(lambda: switches.current_switch(Project(store, PROJECT), "helpdesk", "default"))
    assert (turn.judge, turn.reason, turn.mean) == (STRONG, switches.DRIFT, -1)
    told = [one for one in await happenings.look() if one.facts.get("code") == switches.DRIFT]
    assert [(one.kind, one.text) for one in told] == [(EventKind.FAULT, f"judge_drift: {turn}")]
    assert await happenings.look() == []
    found = await stands(store)
    [alarm] = found.alarms
    assert alarm == f"judge_drift: {turn}; now by -1.00 (docs/judging.md)"
    assert [one.scores for one in found.judges] == [STRONG]

    async with working(store, made):  # started anew, it goes on as it was
        [said] = await judged_twice(store, recorded, ["b"])
        assert (said.judge, said.judge_model, said.tau) == (CHEAP, "openai/judge", -1)
        score = await score_of(store, said.group_id)
        assert score.judge_model == "openai/strong"
        assert sorted(filter(None, (await scores.score_rewards(store, score.id)).values())) == [0.2, 0.9]

        server.behave(by_model(judge=UP, strong=UP))
        await judged_twice(store, recorded, [f"c{number}" for number in range(10)])
    again = await switches.current_switch(Project(store, PROJECT), "helpdesk", "default")
    assert again is not None
    assert (again.judge, again.reason) == (CHEAP, switches.AGREES)
    assert (await stands(store)).alarms == ()
    told = [one for one in await happenings.look() if one.facts.get("code") == switches.AGREES]
    assert [one.kind for one in told] == [EventKind.JUDGED]


@pytest.mark.slow
async def test_while_the_strong_one_scores_a_group_waits_for_it_and_other_settings_end_that(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    server.behave(by_model(judge=DOWN, strong=UP))
    async with working(store, settings(**two(server))):
        await judged_twice(store, recorded, [f"a{number}" for number in range(10)])
        await until(lambda: switches.current_switch(Project(store, PROJECT), "helpdesk", "default"))
        server.behave(by_model(judge=DOWN, strong=fails(500)))
        group_id, _ = await recorded.group("b", [f"b: {answer}" for answer in TWO])
        found = await until(lambda: stood(store, "judge_down"))
        assert found == 1
        assert await scores.list_scores(store, group_id) == []
    async with working(store, settings()):  # without a strong one
        await until(lambda: scores.list_scores(store, group_id))
    assert (await score_of(store, group_id)).judge_model == "openai/judge"
    turn = await switches.current_switch(Project(store, PROJECT), "helpdesk", "default")
    assert turn is not None
    assert (turn.judge, turn.reason, turn.judge_model) == (CHEAP, switches.SET, "openai/judge")
    assert (await stands(store)).alarms == ()


async def stood(store: Store, code: str) -> int:
    found = await stands(store)
    return sum(one.groups for one in found.unscored if one.code == code)


@pytest.mark.slow
async def test_a_stored_reply_asks_no_second_judge_and_a_scored_group_is_stale_by_neither(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer, score: Any
) -> None:
    server.behave(by_model(judge=DOWN, strong=UP))
    made = settings(**two(server))
    async with working(store, made):
        await judged_twice(store, recorded, [f"a{number}" for number in range(10)])
        await until(lambda: switches.current_switch(Project(store, PROJECT), "helpdesk", "default"))
        [said] = await judged_twice(store, recorded, ["b"])
    asked = len(server.requests)
    result = await score(said.group_id, "--save", **two(server))
    assert result.exit_code == 0, result.output
    assert len(server.requests) == asked  # who scores now is the strong one, whose reply is at hand
    assert len(await cross_checks.list_cross_checks(store, said.group_id)) == 1
    async with open_judge_context(made, Project(store, PROJECT)) as context:
        assert await choose_groups(Project(store, PROJECT), context, only_stale=True) == []


@pytest.mark.slow
async def test_budgets_count_both_judges(store: Store, recorded: Recorded, settings: Make, server: JudgeServer) -> None:
    server.behave(by_model(judge=UP, strong=UP))
    learn = LearnSettings(judge_tokens_per_day=240)  # two requests of 120
    async with working(store, settings(**two(server)), learn):
        await judged_twice(store, recorded, ["a"])
    held = await budgets.judging_hold(Project(store, PROJECT), learn)
    assert held is not None
    assert held.code == "judge_tokens_per_day"


@pytest.mark.slow
async def test_criteria_of_a_rubric_are_compared_as_scores_are(
    store: Store, recorded: Recorded, settings: Make, server: JudgeServer
) -> None:
    """Functions and rules are no judge's: they are run once, and are in no comparison."""
    rewards = [{"kind": "ruler"}, {"kind": "rule", "rule": "max_turns", "value": 9, "effect": "penalty"}]
    server.behave(by_model(judge=UP, strong=UP))
    async with working(store, settings(**two(server), rewards=rewards)):
        [said] = await judged_twice(store, recorded, ["g"])
    assert {one.part for one in said.parts} == {"ruler"}
    assert said.tau == 1
    found = await stands(store)
    assert found.groups.get(GroupState.SCORED) == 1
