"""Scoring a group: who is judged, how many need a reward, and whether rewards may be compared elsewhere."""

from dataclasses import replace
from typing import Any

import pytest

from judge.errors import (
    JudgeUnavailable,
    PartsMissing,
)
from judge.scoring.group_score import score_group
from recorder.queue import feedback
from recorder.registry.aliases import ensure_alias
from recorder.states import GroupState, Purpose, TrajectoryState
from recorder.store.database import Project, Store
from recorder.views.trajectories.shapes import GroupView
from recorder.views.trajectories.transcripts import load_group
from tests.judge.judge_server import (
    JudgeServer,
)
from tests.judge.recorded import PROJECT, Recorded
from tests.judge.scoring.judging import HELPFUL, function, judged, rewards

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "change",
    [
        {"state": TrajectoryState.ERRORED},
        {"state": TrajectoryState.ABANDONED},
        {"state": TrajectoryState.SEALED_LATE},
        {"purpose": Purpose.NONE},
        {"selection": "not_selected"},
        {"messages": []},
    ],
    ids=str,
)
async def test_who_is_not_judged_is_neither_shown_nor_scored(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer, change: dict[str, Any]
) -> None:
    group_id, (one, other, _) = await recorded.group("g", ["worth 0.2", "worth 0.9", "worth 0.5"])
    group = await load_group(store, group_id)
    *judged_ones, last = group.members
    async with judging() as context:
        scored = await score_group(replace(group, members=[*judged_ones, replace(last, **change)]), context)
    assert list(scored.rewards) == [one, other]
    assert {part.trajectory_id for part in scored.new.parts} == {one, other}
    assert "worth 0.5" not in str(server.requests)
    with pytest.raises(JudgeUnavailable, match="1 trajectories that can be judged, of 2"):
        async with judging() as context:
            await score_group(replace(group, members=[judged_ones[0], replace(last, **change)]), context)


async def test_one_run_that_only_a_ranking_could_reward_is_left_out_whatever_rules_there_are(
    store: Store, recorded: Recorded, judging: Any
) -> None:
    group = await alone(store, recorded)
    with pytest.raises(JudgeUnavailable) as caught:
        async with judging(rewards=[{"kind": "ruler"}, function("rude", effect="veto")]) as context:
            await score_group(group, context)
    assert caught.value.code == "ruler_needs_two"


async def test_one_measured_trajectory_is_scored_by_functions_and_not_by_ruler(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("v", ["right"], purpose=Purpose.VAL)
    with pytest.raises(JudgeUnavailable, match="at least two attempts") as caught:
        await judged(store, judging, group_id)
    assert caught.value.code == "ruler_needs_two"
    both = await judged(store, judging, group_id, rewards=[{"kind": "ruler"}, function("right")])
    assert rewards(both) == [1.0]
    # A part without weight is what success is measured by, where RULER alone is trained on.
    beside = await judged(store, judging, group_id, rewards=[{"kind": "ruler"}, function("right", weight=0)])
    assert rewards(beside) == [None]
    assert [p.value for p in beside.new.parts if p.part == "right"] == [1.0]
    assert server.requests == []


async def test_two_measured_trajectories_are_compared(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("v", ["worth 0.3", "worth 0.4"], purpose=Purpose.EVAL)
    assert rewards(await judged(store, judging, group_id)) == [0.3, 0.4]


async def test_one_reward_is_not_enough_where_not_all_members_are_only_measured(
    store: Store, recorded: Recorded, judging: Any
) -> None:
    group_id, _ = await recorded.group("g", ["fine", "odd"])
    group = await load_group(store, group_id)
    measured, trained = group.members
    mixed = replace(group, members=[replace(measured, purpose=Purpose.VAL), trained])
    async with judging(model="", rewards=[function("picky")]) as context:
        with pytest.raises(PartsMissing):
            await score_group(mixed, context)


async def test_a_single_trajectory_to_train_on_is_never_scored(store: Store, recorded: Recorded, judging: Any) -> None:
    group_id, _ = await recorded.group("g", ["right"], size=2)
    with pytest.raises(JudgeUnavailable) as caught:
        await judged(store, judging, group_id, rewards=[function("right")])
    assert caught.value.code == "too_few"


async def test_a_score_says_which_judge_is_in_the_rewards(store: Store, recorded: Recorded, judging: Any) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2 right", "worth 0.9"])
    checked = [{"kind": "ruler", "weight": 0}, function("right")]  # the ranking is only measured
    for given, by_model in ((None, True), ([{"kind": "ruler"}, HELPFUL], True), (checked, False)):
        scored = await judged(store, judging, group_id, **({} if given is None else {"rewards": given}))
        assert (scored.new.judge_hash is not None) == by_model
    plain = await judged(store, judging, group_id)
    beside = await judged(store, judging, group_id, rewards=[{"kind": "ruler"}, HELPFUL])
    assert plain.new.judge_hash == beside.new.judge_hash  # people's feedback is no judge's
    assert plain.new.recipe_hash != beside.new.recipe_hash
    other = await judged(store, judging, group_id, rewards=[{"kind": "ruler"}, function("right")])
    assert other.new.judge_hash != plain.new.judge_hash


# a running baseline: one member is enough, where something says what it is worth by itself


async def alone(store: Store, recorded: Recorded, answer: str = "right") -> GroupView:
    """A group of one, of an alias whose runs are compared with earlier ones."""
    await ensure_alias(Project(store, PROJECT), "helpdesk", "base", None, baseline="running")
    group_id, (member,) = await recorded.group("lone", [answer])
    await feedback.add_feedback(Project(store, PROJECT), member, "helpful", True)
    return await load_group(store, group_id)


async def test_one_run_is_scored_by_its_absolute_parts_alone(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group = await alone(store, recorded)
    assert group.state == GroupState.READY
    async with judging(rewards=[{"kind": "ruler", "weight": 9}, HELPFUL, function("right")]) as context:
        scored = await score_group(group, context)
    assert rewards(scored) == [1.0]
    assert {part.part for part in scored.new.parts} == {"reward", "helpful", "right"}
    assert (scored.new.absolute, server.requests) == (True, [])


async def test_one_run_is_nothing_to_a_judge_that_only_compares(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group = await alone(store, recorded)
    with pytest.raises(JudgeUnavailable, match="Name a reward that looks at each by itself") as caught:
        async with judging() as context:
            await score_group(group, context)
    assert (caught.value.code, server.requests) == ("ruler_needs_two", [])


async def test_a_group_of_a_campaign_needs_two_all_the_same(store: Store, recorded: Recorded, judging: Any) -> None:
    group = replace(await alone(store, recorded), campaign_id="campaign")
    with pytest.raises(JudgeUnavailable, match="a group needs two"):
        async with judging(rewards=[HELPFUL]) as context:
            await score_group(group, context)


@pytest.mark.parametrize(
    ("parts", "absolute"),
    [
        ([function("right")], True),
        ([{"kind": "ruler"}, function("right")], False),
        ([{"kind": "ruler", "weight": 0}, function("right")], True),  # measured, but it moves nothing
        ([function("picky"), function("right")], True),  # who lacks one has no reward
        ([{"kind": "feedback", "name": "never"}, function("right")], False),  # a part left this group
        ([function("picky", weight=0), function("right")], True),
        ([function("picky")], True),
    ],
)
async def test_a_score_says_whether_its_rewards_may_be_compared_outside_its_group(
    store: Store, recorded: Recorded, judging: Any, parts: list[dict[str, Any]], absolute: bool
) -> None:
    group_id, _ = await recorded.group("g", ["right, worth 0.2", "worth 0.9", "odd, worth 0.1"])
    assert (await judged(store, judging, group_id, rewards=parts)).new.absolute is absolute
