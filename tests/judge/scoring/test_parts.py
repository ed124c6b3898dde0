"""The parts of a reward on recorded groups: functions, feedback, rules, vetoes, and what a missing one costs."""

from typing import Any

import pytest

from judge.errors import (
    FunctionsDown,
    JudgeDown,
    PartsMissing,
)
from recorder.queue import feedback
from recorder.store.database import Project, Store
from tests.judge.judge_server import (
    JudgeServer,
    fails,
    says,
)
from tests.judge.recorded import PROJECT, Recorded
from tests.judge.scoring.judging import HELPFUL, function, judged, rewards

pytestmark = pytest.mark.slow


async def test_parts_are_combined_and_kept(store: Store, recorded: Recorded, judging: Any) -> None:
    group_id, (one, _) = await recorded.group("g", ["right 0.2", "wrong 0.8"])
    parts = [{"kind": "ruler", "weight": 3}, function("right"), function("picky", weight=0)]
    scored = await judged(store, judging, group_id, rewards=parts)
    assert rewards(scored) == pytest.approx([0.4, 0.6])
    kept = {p.part: (p.value, p.weight) for p in scored.new.parts if p.trajectory_id == one}
    assert kept == {
        "reward": (pytest.approx(0.4), None),
        "ruler": (0.2, 3),
        "right": (1.0, 1),
        "picky": (1.0, 0),
        "picky.words": (2.0, None),
    }


async def test_a_penalty_is_taken_off(store: Store, recorded: Recorded, judging: Any) -> None:
    group_id, _ = await recorded.group("g", ["idiot 0.9", "friend 0.8"])
    parts = [{"kind": "ruler"}, function("rude", weight=0.5, effect="penalty")]
    scored = await judged(store, judging, group_id, rewards=parts)
    assert rewards(scored) == pytest.approx([0.4, 0.8])
    assert {(row.part, row.weight) for row in scored.new.parts} == {("reward", None), ("ruler", 1.0), ("rude", -0.5)}


async def test_functions_alone_need_no_judge(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["right", "wrong"])
    scored = await judged(store, judging, group_id, model="", rewards=[function("right")])
    assert rewards(scored) == [1.0, 0.0]
    assert (scored.new.judge_model, scored.new.prompt_hash, scored.new.reply) == (None, None, None)
    assert server.requests == []


async def test_an_exception_leaves_out_its_trajectory_and_not_the_group(
    store: Store, recorded: Recorded, judging: Any
) -> None:
    group_id, _ = await recorded.group("g", ["fine", "odd", "good"])
    scored = await judged(store, judging, group_id, model="", rewards=[function("picky")])
    assert rewards(scored) == [1.0, None, 1.0]
    reason = [p.explanation for p in scored.new.parts if p.part == "reward"][1]
    assert reason is not None
    assert "ValueError: no idea what this is (checks.py:" in reason


async def test_a_group_with_too_few_rewards_is_not_scored_and_the_judge_not_paid(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["fine 0.1", "odd 0.2", "odd 0.3"])
    parts = [{"kind": "ruler"}, function("picky")]
    for missing in ("exclude", "drop_part"):
        with pytest.raises(PartsMissing, match=r"2 of 3 .*no idea"):
            await judged(store, judging, group_id, rewards=parts, missing=missing)
    assert server.requests == []


async def test_a_run_whose_check_crashes_gains_nothing_over_one_that_fails_it(
    store: Store, recorded: Recorded, judging: Any
) -> None:
    group_id, _ = await recorded.group("g", ["odd 0.5", "wrong 0.9", "right 0.1"])
    parts = [function("honest"), function("picky", weight=1)]
    scored = await judged(store, judging, group_id, model="", rewards=parts)
    assert rewards(scored) == [None, 0.95, 0.55]


async def test_a_held_part_holds_the_group_and_the_judge_is_not_paid(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, (one, other) = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    wanted = [{"kind": "ruler"}, HELPFUL | {"missing": "hold"}]
    await feedback.add_feedback(Project(store, PROJECT), one, "helpful", True)
    with pytest.raises(PartsMissing, match="no feedback 'helpful'") as caught:
        await judged(store, judging, group_id, rewards=wanted)
    assert (caught.value.code, server.requests) == ("parts_missing", [])
    await feedback.add_feedback(Project(store, PROJECT), other, "helpful", False)
    assert rewards(await judged(store, judging, group_id, rewards=wanted)) == pytest.approx([0.6, 0.45])


async def test_feedback_that_one_run_lacks_leaves_the_whole_group(
    store: Store, recorded: Recorded, judging: Any
) -> None:
    group_id, (one, _) = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    await feedback.add_feedback(Project(store, PROJECT), one, "helpful", True)
    scored = await judged(store, judging, group_id, rewards=[{"kind": "ruler"}, HELPFUL])
    assert rewards(scored) == [0.2, 0.9]
    assert {part.explanation for part in scored.rewards.values()} == {"without helpful: no feedback 'helpful'"}
    assert {(row.value, row.weight) for row in scored.new.parts if row.part == "helpful"} == {(1.0, 0.0), (None, 0.0)}


async def test_a_judge_that_is_down_leaves_the_group_where_that_is_wanted_and_what_it_cost_is_kept(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["right", "wrong"])
    server.behave(says("hm"), fails(503))
    both = [{"kind": "ruler", "missing": "drop_part"}, function("right")]
    scored = await judged(store, judging, group_id, rewards=both, retries=0)
    assert rewards(scored) == [1.0, 0.0]
    assert (scored.new.tokens_in, scored.new.judge_model, scored.new.absolute) == (100, None, False)
    assert all("is down or broken" in str(part.explanation) for part in scored.rewards.values())
    with pytest.raises(JudgeDown):  # nothing would be left
        await judged(store, judging, group_id, rewards=both[:1], retries=0)


async def test_a_value_outside_its_range_leaves_its_run_without_a_reward(
    store: Store, recorded: Recorded, judging: Any
) -> None:
    group_id, _ = await recorded.group("g", ["7", "0.5", "-1"])
    scored = await judged(store, judging, group_id, model="", rewards=[function("honest", high=10)])
    assert rewards(scored) == [7.0, 0.5, None]
    assert [p.explanation for p in scored.new.parts if p.part == "honest"][2] == (
        "-1.0 is outside 0 to 10 (`low` and `high` of the reward)"
    )


async def test_a_vetoed_run_stands_with_the_lowest(store: Store, recorded: Recorded, judging: Any) -> None:
    group_id, _ = await recorded.group("g", ["idiot 0.9", "friend 0.8", "friend 0.1"])
    scored = await judged(store, judging, group_id, rewards=[function("honest"), function("rude", effect="veto")])
    assert rewards(scored) == [0.0, 0.8, 0.1]
    assert scored.rewards[next(iter(scored.rewards))].explanation == "vetoed by rude"
    assert ({row.weight for row in scored.new.parts if row.part == "rude"}, scored.new.absolute) == ({None}, True)
    parts = [function("honest"), function("right", effect="penalty"), function("rude", effect="veto")]
    other, _ = await recorded.group("other", ["idiot 0.9", "right 0.8", "friend 0.1"])
    scored = await judged(store, judging, other, rewards=parts)
    assert rewards(scored) == pytest.approx([-0.2, -0.2, 0.1])
    assert not scored.new.absolute  # a vetoed run has what another lost


async def test_a_run_that_breaks_a_rule_is_vetoed_and_the_reason_is_kept(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, (_, odd, _) = await recorded.group("g", ["worth 0.2", "of no worth", "worth 0.5"])
    rule = {"kind": "rule", "rule": "regex", "value": r"worth [\d.]+$", "effect": "veto"}
    scored = await judged(store, judging, group_id, rewards=[{"kind": "ruler"}, rule])
    assert rewards(scored) == [0.2, 0.0, 0.5]
    why = "the answer does not match 'worth [\\\\d.]+$'"
    assert scored.rewards[odd].explanation == f"vetoed by regex: {why}"
    assert {p.part: p.explanation for p in scored.new.parts if p.trajectory_id == odd}["regex"] == why


async def test_functions_that_cannot_be_imported_mark_no_trajectory(
    store: Store, recorded: Recorded, judging: Any
) -> None:
    group_id, _ = await recorded.group("g", ["a", "b"])
    with pytest.raises(FunctionsDown, match="nowhere"):
        await judged(store, judging, group_id, model="", rewards=[{"kind": "function", "function": "nowhere:f"}])


async def test_feedback_is_waited_for_then_counts(store: Store, recorded: Recorded, judging: Any) -> None:
    group_id, (one, other) = await recorded.group("g", ["a", "b"])
    wanted: dict[str, Any] = {"model": "", "rewards": [{"kind": "feedback", "name": "helpful"}]}
    with pytest.raises(PartsMissing) as caught:
        await judged(store, judging, group_id, **wanted, feedback={"wait_s": 600})
    assert caught.value.code == "waiting_for_feedback"
    assert caught.value.wait_s == pytest.approx(600, abs=60)
    with pytest.raises(PartsMissing) as caught:  # nobody waits, and there is nothing
        await judged(store, judging, group_id, **wanted)
    assert caught.value.code == "parts_missing"
    await feedback.add_feedback(Project(store, PROJECT), one, "helpful", False)
    await feedback.add_feedback(Project(store, PROJECT), one, "helpful", True, comment="after all")
    await feedback.add_feedback(Project(store, PROJECT), other, "helpful", 0.25)
    await feedback.add_feedback(Project(store, PROJECT), other, "comment", "so so")
    scored = await judged(store, judging, group_id, **wanted, feedback={"wait_s": 600})
    assert rewards(scored) == [1.0, 0.25]
    assert [p.explanation for p in scored.new.parts if p.part == "helpful"] == ["after all", None]
