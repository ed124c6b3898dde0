"""Groups scored again: what becomes of each by its state, what is asked, what a dry run counts, and being cut off."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import select

from judge.errors import JudgeMisconfigured
from judge.rewards.judge_context import JudgeContext
from judge.scoring.group_score import NEEDS_TWO
from judge.scoring.request_count import RequestCount
from judge.scoring.rescoring import CHANGED, IN_HAND, RescoreTally, choose_groups, count_requests, rescore_groups
from judge.scoring.setup import open_judge_context
from judge.settings import JudgeSettings
from recorder.errors import NotFound
from recorder.maintenance.deletion import delete_trajectory
from recorder.queue import campaigns, claims
from recorder.queue.campaigns import NewScenario
from recorder.queue.groups.readiness import GroupCode
from recorder.queue.judging.records import load_prompts
from recorder.queue.judging.rescoring import OF_SCORES
from recorder.queue.judging.scores import list_scores, score_rewards
from recorder.registry.ancestry import VERSION_REJECTED
from recorder.states import Purpose
from recorder.stats.agreement import PairAgreement
from recorder.store.database import Project, Store
from recorder.store.schema import groups, metadata, trajectories
from tests.judge.judge_server import Json, JudgeServer, by_worth, fails, says, verdicts
from tests.judge.recorded import PROJECT, Recorded
from tests.judge.rubric_replies import checked
from tests.recorder.rows import Rows
from trainer.objectives.group_rows import UntrainedChoice

pytestmark = pytest.mark.slow

WORTHS = ["worth 0.2", "worth 0.9"]
Make = Callable[..., JudgeSettings]


@pytest.fixture
def context(store: Store, settings: Make) -> Callable[..., Any]:
    """Open a judge context; other arguments than those of `open_judge_context` are settings."""

    @asynccontextmanager
    async def opened(*, again: bool = False, ask: Any = None, **more: Any) -> AsyncIterator[JudgeContext]:
        made = settings(retries=0, **more)
        async with open_judge_context(made, Project(store, PROJECT), keep=ask is None, again=again, ask=ask) as context:
            yield context

    return opened


@pytest.fixture
def run(store: Store, context: Any) -> Callable[..., Any]:
    """Score all again, as `hone score --all` does."""

    async def all_again(*, again: bool = False, stale: bool = False, at_once: int = 1, **more: Any) -> RescoreTally:
        tally = RescoreTally()
        async with context(again=again, **more) as opened:
            found = await choose_groups(Project(store, PROJECT), opened, only_stale=stale, anew=again)
            await rescore_groups(store, found, opened, tally.add, at_once=at_once, lease_s=60, anew=again)
        return tally

    return all_again


async def put(store: Store, group_id: str, state: str, reason: str | None = None) -> str:
    """Put a group into a state, as whoever works on it would have."""
    await Rows(store).set(groups, group_id, state=state, reason=reason)
    return group_id


async def made(recorded: Recorded, name: str, state: str | None = None, reason: str | None = None) -> str:
    group_id, _ = await recorded.group(name, [f"{name} {worth}" for worth in WORTHS])
    return await put(recorded.store, group_id, state, reason) if state else group_id


async def now_(store: Store, group_id: str) -> tuple[str, str | None]:
    row = await Rows(store).get(groups, group_id)
    return row["state"], row["current_score_id"]


def ids(tally: RescoreTally, done: str) -> set[str]:
    return {one.group_id for one in tally.done[done]}


async def test_what_waits_or_is_scored_gets_a_new_score_and_keeps_the_old_ones(
    store: Store, recorded: Recorded, run: Any
) -> None:
    first = await made(recorded, "a")
    await run()
    second = await made(recorded, "b", "unscored", "judge_down")
    tally = await run(rubric="Be brief.")
    assert ids(tally, "current") == {first, second}
    old, new = await list_scores(store, first)
    assert old.recipe_hash != new.recipe_hash
    assert await now_(store, first) == ("scored", new.id)
    assert (await now_(store, second))[0] == "scored"


@pytest.mark.parametrize("state", ["training", "tried", "trained"])
async def test_what_was_trained_on_keeps_its_score(store: Store, recorded: Recorded, run: Any, state: str) -> None:
    group_id = await made(recorded, "a")
    await run()
    await put(store, group_id, state)
    old = await now_(store, group_id)
    tally = await run(rubric="Be brief.")
    assert ids(tally, "history") == {group_id}
    assert tally.pairs == PairAgreement(kept=1)
    assert await now_(store, group_id) == old
    assert len(await list_scores(store, group_id)) == 2


@pytest.mark.parametrize("state", ["ready", "unscored"])
async def test_what_waits_for_a_judge_is_taken_before_anybody_is_paid(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer, state: str
) -> None:
    group_id = await made(recorded, "a")
    await Rows(store).set(groups, group_id, state=state, try_after=1.0)
    taken = []

    async def another_looks(body: Json) -> web.StreamResponse:
        taken.append(await claims.claim_for_judging(Project(store, PROJECT), "a judge that runs", 60))
        return await verdicts()(body)

    server.behave(another_looks)
    assert ids(await run(), "current") == {group_id}
    assert taken == [None]
    assert (await now_(store, group_id))[0] == "scored"


async def test_what_waits_for_a_judge_still_does_where_nobody_can_judge_it(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer
) -> None:
    group_id = await made(recorded, "a")
    server.behave(fails(503))
    assert list((await run()).failed()) == ["judge_down"]
    assert await now_(store, group_id) == ("ready", None)
    assert await claims.claim_for_judging(Project(store, PROJECT), "a judge that runs", 60) is not None


async def test_what_is_tried_again_later_still_is_where_nobody_can_judge_it(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer
) -> None:
    group_id = await made(recorded, "a")
    await Rows(store).set(groups, group_id, state="unscored", reason="judge_timeout", tries=3, try_after=4e9)
    before = await Rows(store).get(groups, group_id)
    server.behave(fails(503))
    assert list((await run()).failed()) == ["judge_down"]
    after = await Rows(store).get(groups, group_id)
    kept = ("state", "reason", "tries", "try_after", "current_score_id", "lease_owner")
    assert [after[name] for name in kept] == [before[name] for name in kept]


async def test_what_a_judge_has_in_hand_is_passed_over_unasked(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer
) -> None:
    group_id = await made(recorded, "a", "judging")
    tally = await run()
    assert [(one.group_id, one.why) for one in tally.done["passed"]] == [(group_id, IN_HAND)]
    assert server.requests == []


async def test_open_groups_and_those_that_no_score_brings_back_are_not_meant(
    store: Store, recorded: Recorded, run: Any
) -> None:
    await made(recorded, "open", "open")
    for reason in ("too_few", "too_old", "measured", "over_age", VERSION_REJECTED):
        await made(recorded, reason, "left_out", reason)
    await made(recorded, "by-function", "measured", "measured")
    assert (await run()).over == 0


@pytest.mark.parametrize("reason", OF_SCORES)
async def test_what_its_score_left_out_comes_back(store: Store, recorded: Recorded, run: Any, reason: str) -> None:
    group_id = await made(recorded, "a", "left_out", reason)
    assert ids(await run(), "current") == {group_id}
    assert (await Rows(store).get(groups, group_id))["reason"] is None
    assert (await now_(store, group_id))[0] == "scored"


def test_the_reasons_that_lie_with_a_score_are_the_judges_and_the_trainers() -> None:
    assert set(OF_SCORES) == {
        NEEDS_TWO,
        GroupCode.CHECK_UNDECIDED,
        GroupCode.NO_FOLLOW_UP,
        UntrainedChoice.ZERO_VARIANCE,
        UntrainedChoice.TOO_CLOSE,
        UntrainedChoice.JUDGE_BY_CHANCE,
        UntrainedChoice.REWARD_MISSING,
    }


@pytest.mark.parametrize("purpose", [Purpose.TRAIN, Purpose.VAL])
async def test_what_still_has_nobody_to_compare_with_stays_left_out_and_is_no_failure(
    store: Store, recorded: Recorded, run: Any, purpose: Purpose
) -> None:
    group_id, _ = await recorded.group("lone", ["worth 0.5"], purpose=purpose)
    await put(store, group_id, "left_out", NEEDS_TWO)
    tally = await run()
    assert (ids(tally, "passed"), tally.failed()) == ({group_id}, {})
    assert (await now_(store, group_id))[0] == "left_out"


async def test_again_asks_in_spite_of_what_is_stored_and_takes_what_was_left_out_for_its_version(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer
) -> None:
    scored, rejected = await made(recorded, "a"), await made(recorded, "b")
    await run()
    await put(store, rejected, "left_out", VERSION_REJECTED)
    assert ids(await run(), "current") == {scored}
    assert len(server.requests) == 2  # a stored reply answered
    server.behave(verdicts(lambda document: 1 - by_worth(document)))
    tally = await run(again=True)
    assert ids(tally, "current") == {scored, rejected}
    assert len(server.requests) == 4
    assert tally.pairs == PairAgreement(turned=2)
    await run()
    assert len(server.requests) == 4  # what was said last is what is at hand
    assert (await list_scores(store, scored))[-1].reply == (await list_scores(store, scored))[-2].reply


async def under_rubric(recorded: Recorded, group_id: str) -> None:
    """Make a group one of a scenario that has a rubric."""
    store = recorded.store
    campaign = await campaigns.create_campaign(Project(store, PROJECT), recorded.alias_id, "nightly", {})
    await campaigns.add_scenarios(store, campaign.id, "train", [NewScenario("task", "Where?", rubric=["has 0.9"])])
    [scenario] = await campaigns.list_scenarios(store, campaign.id, "train")
    await Rows(store).set(groups, group_id, scenario_id=scenario.id)


async def test_again_asks_about_a_rubric_anew_and_what_is_said_then_is_at_hand(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer
) -> None:
    group_id = await made(recorded, "a")
    await under_rubric(recorded, group_id)
    server.behave(checked())
    recipe = {"rewards": [{"kind": "rubric"}]}
    await run(**recipe)
    server.behave(checked(lambda text, criterion: True))
    given = []
    for again in (False, True, False):
        await run(again=again, **recipe)
        _, score_id = await now_(store, group_id)
        given.append(sorted(value or 0.0 for value in (await score_rewards(store, str(score_id))).values()))
    assert given == [[0, 1], [1, 1], [1, 1]]
    assert len(server.requests) == 4


async def test_what_the_judge_was_asked_about_each_run_is_kept_with_every_score(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer
) -> None:
    group_id = await made(recorded, "a")
    await under_rubric(recorded, group_id)
    server.behave(checked())
    recipe = {"rewards": [{"kind": "rubric"}]}
    await run(**recipe)
    await run(**recipe)  # of verdicts that are at hand: nobody is asked
    first, *_, last = await list_scores(store, group_id)
    kept = await load_prompts(store, first.id)
    assert {one.trajectory_id for one in kept} == {part.trajectory_id for part in first.parts}
    assert sorted(map(str, (one.messages for one in kept))) == sorted(str(body["messages"]) for body in server.requests)
    [asked, again] = [
        {one.trajectory_id: one.messages[1] for one in found} for found in (kept, await load_prompts(store, last.id))
    ]
    assert first.id != last.id
    assert asked.keys() == again.keys()
    assert len(server.requests) == len(asked) == 2
    await delete_trajectory(Project(store, PROJECT), first.parts[0].trajectory_id)
    assert await load_prompts(store, first.id) == await load_prompts(store, last.id) == []


async def test_a_rankings_prompt_stays_with_a_score_for_which_runs_alone_were_asked_about(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer
) -> None:
    group_id = await made(recorded, "a")
    await under_rubric(recorded, group_id)
    ranks, checks = verdicts(), checked()

    async def behave(body: Any) -> Any:
        return await (checks if "criterion" in body["messages"][1]["content"] else ranks)(body)

    server.behave(behave)
    recipe = {"rewards": [{"kind": "ruler"}, {"kind": "rubric"}]}
    for _ in range(2):
        await run(**recipe)
    for score in await list_scores(store, group_id):
        found = await load_prompts(store, score.id)
        assert [one.trajectory_id is None for one in found] == [True, False, False]
    assert len(server.requests) == 3


async def test_stale_are_those_scored_by_another_recipe(store: Store, recorded: Recorded, run: Any) -> None:
    trained, scored, ready = await made(recorded, "a"), await made(recorded, "b"), None
    await run()
    await put(store, trained, "trained")
    ready = await made(recorded, "c")
    assert (await run(stale=True)).over == 0
    tally = await run(stale=True, rubric="Be brief.")
    assert (ids(tally, "history"), ids(tally, "current")) == ({trained}, {scored})
    assert (await now_(store, ready))[0] == "ready"
    # The trained one's current score is the old one for good: what it has by the recipe in force is enough.
    assert (await run(stale=True, rubric="Be brief.")).over == 0


async def test_a_group_is_stale_by_the_recipe_that_its_alias_names(
    store: Store, recorded: Recorded, settings: Make
) -> None:
    group_id = await made(recorded, "g")
    strict = {"recipes": {"strict": {"rubric": "Be strict."}}}
    for of_alias, expected in (({}, []), ({"helpdesk": "strict"}, [group_id]), ({"helpdesk": "gone"}, [group_id])):
        async with open_judge_context(settings(**strict).for_aliases(of_alias), Project(store, PROJECT)) as opened:
            tally = RescoreTally()
            if not of_alias:
                await rescore_groups(
                    store,
                    await choose_groups(Project(store, PROJECT), opened),
                    opened,
                    tally.add,
                    at_once=1,
                    lease_s=60,
                )
            found = await choose_groups(Project(store, PROJECT), opened, only_stale=True)
            assert [one.id for one in found] == expected
            if of_alias == {"helpdesk": "gone"}:
                await rescore_groups(store, found, opened, tally.add, at_once=1, lease_s=60)
                assert list(tally.failed()) == ["recipe_unknown"]


async def test_a_function_that_was_edited_makes_scores_stale(
    store: Store, recorded: Recorded, run: Any, tmp_path: Any
) -> None:
    more = {"folder": tmp_path, "model": "", "rewards": [{"kind": "function", "function": "checks:nine"}]}
    (tmp_path / "checks.py").write_text("def nine(t):\n    return float('9' in t.answer)\n")
    group_id = await made(recorded, "a")
    assert ids(await run(**more), "current") == {group_id}
    assert (await run(stale=True, **more)).over == 0
    (tmp_path / "checks.py").write_text("def nine(t):\n    return 0.5 * ('9' in t.answer)\n")
    assert ids(await run(stale=True, **more), "current") == {group_id}


async def test_a_check_that_was_edited_makes_the_scores_of_its_scenarios_stale(
    store: Store, recorded: Recorded, run: Any, tmp_path: Any
) -> None:
    (tmp_path / "checks.py").write_text("def nine(t):\n    return '9' in t.answer\n")
    (tmp_path / "apart.py").write_text("def two(t):\n    return '2' in t.answer\n")
    campaign = await campaigns.create_campaign(Project(store, PROJECT), recorded.alias_id, "checked", {})
    by = {"nine": "checks:nine", "two": "apart:two"}
    tasks = [NewScenario(name, "Where?", None, [{"text": name, "check": check}]) for name, check in by.items()]
    await campaigns.add_scenarios(store, campaign.id, "train", tasks)
    scenarios = {one.external_id: one.id for one in await campaigns.list_scenarios(store, campaign.id, "train")}
    of = {name: await made(recorded, name) for name in by}
    for name, group_id in of.items():
        await Rows(store).set(groups, group_id, scenario_id=scenarios[name])
    more = {"folder": tmp_path, "model": "", "rewards": [{"kind": "rubric"}]}
    assert ids(await run(**more), "current") == set(of.values())
    assert (await run(stale=True, **more)).over == 0
    (tmp_path / "checks.py").write_text("def nine(t):\n    return '9' not in t.answer\n")
    assert ids(await run(stale=True, **more), "current") == {of["nine"]}


async def test_an_aliass_or_a_campaigns_groups_alone(store: Store, recorded: Recorded, context: Any) -> None:
    rows = Rows(store)
    of_campaign, of_other, _ = [await made(recorded, name) for name in "abc"]
    other = await rows.alias("other")
    campaign = await campaigns.create_campaign(Project(store, PROJECT), other.id, "nightly", {})
    await rows.set(groups, of_campaign, campaign_id=campaign.id)
    await rows.set(groups, of_other, alias_id=other.id)
    async with context() as opened:

        async def chosen(campaign: str | None = None, alias: str | None = None) -> list[str]:
            found = await choose_groups(Project(store, PROJECT), opened, campaign=campaign, alias=alias)
            return [one.id for one in found]

        assert await chosen(campaign="nightly") == await chosen(campaign=campaign.id) == [of_campaign]
        assert await chosen(alias="other") == [of_other]
        with pytest.raises(NotFound, match="there is: nightly"):
            await chosen(campaign="weekly")
        with pytest.raises(NotFound, match="no alias 'another'"):
            await chosen(alias="another")


async def test_a_group_that_fails_stays_as_it_was_and_costs_the_others_nothing(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer
) -> None:
    first, second, third = [await made(recorded, name) for name in "abc"]
    await run()
    before = await now_(store, second)
    server.behave(verdicts(), says("Fine."), says("Really."), fails(503))
    tally = await run(rubric="Be brief.")
    assert ids(tally, "current") == {first}
    assert {code: [one.group_id for one in these] for code, these in tally.failed().items()} == {
        "judge_down": [third],
        "judge_unreadable": [second],
    }
    assert tally.spent.tokens_in == 300  # also what was paid in vain
    assert await now_(store, second) == before


async def test_a_recipe_that_cannot_work_ends_it(store: Store, recorded: Recorded, settings: Make) -> None:
    await made(recorded, "a")
    found = await choose_groups(Project(store, PROJECT), JudgeContext(settings(), (), None))
    with pytest.raises(JudgeMisconfigured):
        await rescore_groups(
            store, found, JudgeContext(settings(), (), None), RescoreTally().add, at_once=2, lease_s=60
        )


@pytest.mark.parametrize(("state", "done"), [("training", "history"), ("judging", "passed")])
async def test_a_group_that_is_taken_while_it_is_judged_stays_whose_it_is(
    store: Store, recorded: Recorded, run: Any, server: JudgeServer, state: str, done: str
) -> None:
    group_id = await made(recorded, "a")
    await run()
    old = (await now_(store, group_id))[1]

    async def take(body: Json) -> web.StreamResponse:
        await put(store, group_id, state)
        return await verdicts()(body)

    server.behave(take)
    [outcome] = (await run(rubric="Be brief.")).done[done]
    assert outcome.why == (CHANGED if done == "passed" else "")
    assert outcome.spent.tokens_in == 100
    assert await now_(store, group_id) == (state, old)


async def test_groups_are_scored_side_by_side(store: Store, recorded: Recorded, run: Any, server: JudgeServer) -> None:
    for name in "abc":
        await made(recorded, name)
    together = asyncio.Barrier(3)

    async def behave(body: Json) -> web.StreamResponse:
        await together.wait()
        return await verdicts()(body)

    server.behave(behave)
    assert len((await run(at_once=3)).scored) == 3


async def test_cut_off_it_leaves_what_was_saved_and_tells_it(
    store: Store, recorded: Recorded, context: Any, server: JudgeServer
) -> None:
    saved, cut = await made(recorded, "a"), await made(recorded, "b")
    asked = asyncio.Event()

    async def hang(body: Json) -> web.StreamResponse:
        asked.set()
        return await server.hang(body)

    server.behave(verdicts(), hang)
    tally = RescoreTally()

    async def go() -> None:
        async with context() as opened:
            found = await choose_groups(Project(store, PROJECT), opened)
            tally.groups = len(found)
            with tally.until_stopped():
                await rescore_groups(store, found, opened, tally.add, at_once=1, lease_s=60)

    task = asyncio.create_task(go())
    await asyncio.wait_for(asked.wait(), 30)
    task.cancel()
    await task
    assert (tally.stopped, tally.groups, ids(tally, "current")) == (True, 2, {saved})
    assert (await now_(store, saved))[0] == "scored"
    assert await now_(store, cut) == ("ready", None)


async def everything(store: Store) -> dict[str, list[Any]]:
    """All rows of all tables."""
    async with store.read() as conn:
        return {t.name: sorted(map(tuple, await conn.execute(select(t))), key=repr) for t in metadata.sorted_tables}


async def test_a_dry_run_counts_what_would_be_asked_and_writes_nothing(
    store: Store, recorded: Recorded, run: Any, context: Any, server: JudgeServer
) -> None:
    trained = await made(recorded, "a")
    await run()
    await put(store, trained, "trained")
    fresh = await made(recorded, "b")
    await recorded.group("alike", ["worth 0.5", "worth 0.5"])  # nobody is asked
    before, sent = await everything(store), len(server.requests)
    for again, rubric, requests in ((False, None, 1), (True, None, 2), (False, "Be brief.", 2)):
        more = {"rubric": rubric} if rubric else {}
        counted, tally = RequestCount(4096), RescoreTally()
        async with context(again=again, ask=counted.ask, **more) as opened:
            found = await choose_groups(Project(store, PROJECT), opened)
            await count_requests(store, found, opened, tally.add, at_once=2)
        assert (counted.requests, counted.most_tokens_out) == (requests, requests * 4096)
        assert ids(tally, "history") == {trained}
        assert fresh in ids(tally, "current")
    assert await everything(store) == before
    assert len(server.requests) == sent
    await run(rubric="Be brief.")
    asked = server.requests[sent:]
    assert (len(asked), counted.characters) == (2, sum(len(m["content"]) for body in asked for m in body["messages"]))


async def test_a_dry_run_foresees_all_that_a_recipe_asks_and_what_would_fail(
    store: Store, recorded: Recorded, context: Any
) -> None:
    rows = Rows(store)
    both = await made(recorded, "a")
    lone, [gone, _] = await recorded.group("b", WORTHS)
    await rows.set(trajectories, gone, state="errored")
    await under_rubric(recorded, both)
    counted, tally = RequestCount(100), RescoreTally()
    async with context(ask=counted.ask, rewards=[{"kind": "ruler"}, {"kind": "rubric"}]) as opened:
        found = await choose_groups(Project(store, PROJECT), opened)
        await count_requests(store, found, opened, tally.add, at_once=1)
    assert ids(tally, "current") == {both}
    assert {code: [one.group_id for one in these] for code, these in tally.failed().items()} == {"too_few": [lone]}
    assert counted.requests == 3  # the group, and each of its runs
