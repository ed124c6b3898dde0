"""A step's groups become weighted rows, and whatever is left out of them is told with its reason."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.trainability import Exclusion
from recorder.queue.judging.scores import REWARD, NewPart
from recorder.queue.training.baselines import Baseline, ComparedReward
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.views.comparison.attempts import rank_attempts
from recorder.views.trajectories.shapes import TrajectoryView
from tests.recorder.views.comparison.test_attempts import member as sibling
from tests.trainer.building import call, choice, group, trajectory
from trainer.batch.rows import IN_OWN_GROUP, RowBasis
from trainer.objectives.group import weigh_groups
from trainer.objectives.group_rows import GroupRows, UntrainedChoice, group_rows
from trainer.settings import TrainerSettings

SETTINGS = TrainerSettings()
BASIS = RowBasis("base", ["v3", "v2", "v1", "v0"], max_age=2, max_tokens=1000)


def member(name: str, sampled: int = 2, **overrides: Any) -> TrajectoryView:
    turn = call(1, [1, 2], choice(list(range(10, 10 + sampled))), id=f"call_{name}")
    return trajectory(turn, id=name, **overrides)


def test_every_row_of_a_trajectory_gets_its_one_advantage_and_every_trajectory_the_same_weight() -> None:
    two_rows = trajectory(call(1, [1, 2], choice([3, 4, 5])), call(2, [8, 9], choice([6])), id="a")
    found = group_rows(group(two_rows, member("b", 1), member("c", 10)), {"a": 1.0, "b": 0.0, "c": 0.5}, BASIS)
    assert found.code is None
    assert found.trained == {"a", "b", "c"}
    weighted = weigh_groups([found], SETTINGS)
    assert [(one.row.trajectory_id, one.advantage) for one in weighted] == [
        ("a", 0.5), ("a", 0.5), ("b", -0.5), ("c", 0.0),
    ]  # fmt: skip
    shares: dict[str, float] = {}
    for one in weighted:
        own = float(np.mean(one.rl_weight)) * one.row.trained_tokens
        shares[one.row.trajectory_id] = shares.get(one.row.trajectory_id, 0) + own
    assert shares == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})


@pytest.mark.parametrize(
    ("overrides", "expected", "told"),
    [
        ({"state": TrajectoryState.ERRORED}, "errored", True),
        ({"state": TrajectoryState.ABANDONED}, "abandoned", True),
        ({"state": TrajectoryState.SEALED_LATE}, "sealed-late", True),
        ({"state": TrajectoryState.OPEN}, "open", True),
        ({"purpose": Purpose.VAL}, Exclusion.PURPOSE, False),
        ({"purpose": Purpose.NONE}, Exclusion.PURPOSE, True),
        ({"selection": "not_selected"}, Exclusion.NOT_SELECTED, True),
    ],
)
def test_who_is_not_a_usable_member_does_not_count_for_the_mean(
    overrides: dict[str, Any], expected: str, told: bool
) -> None:
    """Nor is it told twice: the ledger has its reason since the group was closed."""
    members = (member("a"), member("b"), member("c", **overrides))
    found = group_rows(group(*members), {"a": 1.0, "b": 0.0, "c": 0.0}, BASIS)
    assert found.advantages == {"a": 0.5, "b": -0.5}
    assert [(one.trajectory_id, one.code) for one in found.left] == [("c", expected)]
    rows = [(row.object_kind, row.object_id, row.code) for row in found.ledger_rows()]
    assert rows == ([] if told else [("trajectory", "c", expected)])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(TrajectoryState),
            st.sampled_from([None, "not_selected"]),
            st.sampled_from([Purpose.TRAIN, Purpose.VAL]),
            st.none() | st.floats(0, 1),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_the_page_of_a_group_tells_the_advantages_that_a_step_takes(
    runs: list[tuple[TrajectoryState, str | None, Purpose, float | None]],
) -> None:
    members = [
        member(str(at), state=state, selection=selection, purpose=purpose)
        for at, (state, selection, purpose, _) in enumerate(runs)
    ]
    rewards = {str(at): reward for at, (_, _, _, reward) in enumerate(runs)}
    lines = [sibling(m.id, state=m.state, selection=m.selection, purpose=m.purpose) for m in members]
    shown, _ = rank_attempts(lines, [NewPart(id_, REWARD, value) for id_, value in rewards.items()], (), "group")
    told = {one.trajectory.id: one.advantage for one in shown if one.advantage is not None}
    assert told == group_rows(group(*members), rewards, BASIS).advantages


@pytest.mark.parametrize("reward", [None, math.nan, math.inf, "absent"])
def test_a_member_without_a_reward_is_left_out_and_never_gets_zero(reward: float | str | None) -> None:
    rewards: dict[str, Any] = {"a": 1.0, "b": 0.0} | ({} if reward == "absent" else {"c": reward})
    found = group_rows(group(member("a"), member("b"), member("c")), rewards, BASIS)
    assert found.advantages == {"a": 0.5, "b": -0.5}
    assert [(one.trajectory_id, one.code) for one in found.left] == [("c", UntrainedChoice.REWARD_MISSING)]


def test_a_truncated_run_is_not_trained_and_still_counts_for_the_mean() -> None:
    cut = trajectory(call(1, [1], choice([2], reason=Exclusion.TRUNCATED)), id="c")
    found = group_rows(group(member("a"), member("b"), cut), {"a": 1.0, "b": 0.5, "c": 0.0}, BASIS)
    assert found.advantages == {"a": 0.5, "b": 0.0, "c": -0.5}
    assert found.trained == {"a", "b"}
    assert [(one.trajectory_id, one.code) for one in found.left] == [("c", Exclusion.TRUNCATED)]
    assert sum(one.rl_weight * one.row.trained_tokens for one in weigh_groups([found], SETTINGS)) == pytest.approx(1)


def text_alone(name: str) -> TrajectoryView:
    """A run that another provider's model answered: no ids, no version, no base."""
    said = choice([], reason=Exclusion.IDS_MISSING, token_ids=None, logprobs=None)
    unknown = {"version_id": None, "base_fingerprint": None, "prompt_token_ids": None}
    return trajectory(call(1, [], said, id=f"call_{name}", **unknown), id=name)


def test_runs_of_text_alone_are_left_out_of_a_group_whose_others_are_trained() -> None:
    found = group_rows(group(member("a"), text_alone("b")), {"a": 1.0, "b": 0.0}, BASIS)
    assert (found.code, found.trained) == (None, {"a"})
    assert [(one.trajectory_id, one.code) for one in found.left] == [("b", Exclusion.IDS_MISSING)]


def test_a_group_of_text_alone_teaches_nothing_and_says_so() -> None:
    found = group_rows(group(text_alone("a"), text_alone("b")), {"a": 1.0, "b": 0.0}, BASIS)
    assert (found.code, list(found.rows)) == (Exclusion.IDS_MISSING, [])


def test_choices_left_out_of_a_trained_trajectory_are_told_by_call() -> None:
    mixed = trajectory(
        call(1, [1], choice([2])), call(2, [1, 2, 3], choice([4], reason=Exclusion.STRUCTURED_OUTPUT)), id="a"
    )
    found = group_rows(group(mixed, member("b")), {"a": 1.0, "b": 0.0}, BASIS)
    (row,) = found.ledger_rows()
    assert (row.object_kind, row.object_id, row.code) == ("call", "call_2", Exclusion.STRUCTURED_OUTPUT)
    assert row.detail == {"choice": 0, "trajectory": "a"}


def test_a_group_in_which_all_did_equally_well_teaches_nothing() -> None:
    found = group_rows(group(member("a"), member("b")), {"a": 0.5, "b": 0.5 + 1e-7}, BASIS)
    assert (found.code, found.rows) == (UntrainedChoice.ZERO_VARIANCE, ())
    assert found.rewards == {"a": 0.5, "b": 0.5 + 1e-7}  # for the mean reward all the same


@pytest.mark.parametrize(
    ("rewards", "least", "expected"),
    [
        ((0.4, 0.42), 0.05, UntrainedChoice.TOO_CLOSE),
        ((0.4, 0.45), 0.05, None),  # 0.45 - 0.4 is below 0.05 by rounding
        ((0.4, 0.42), 0.0, None),
        ((0.4, 0.4), 0.05, UntrainedChoice.ZERO_VARIANCE),
        ((0.4, None), 0.05, UntrainedChoice.TOO_FEW),
    ],
)
def test_a_group_whose_rewards_span_too_little_teaches_nothing(
    rewards: tuple[float | None, ...], least: float, expected: str | None
) -> None:
    named = dict(zip("ab", rewards, strict=True))
    found = group_rows(group(member("a"), member("b")), named, BASIS, min_spread=least)
    assert (found.code, bool(found.rows)) == (expected, expected is None)


def test_only_usable_members_span_a_group() -> None:
    errored = member("c", state=TrajectoryState.ERRORED)
    found = group_rows(group(member("a"), member("b"), errored), {"a": 0.4, "b": 0.41, "c": 1.0}, BASIS, min_spread=0.1)
    assert found.code == UntrainedChoice.TOO_CLOSE
    assert found.rewards == {"a": 0.4, "b": 0.41}  # for the mean reward all the same


def test_a_group_with_baselines_is_never_too_close() -> None:
    known = {name: Baseline(0.75, 0.1, 64, True) for name in "ab"}
    found = group_rows(group(member("a"), member("b")), {"a": 0.5, "b": 0.5}, BASIS, baselines=known, min_spread=0.1)
    assert (found.code, found.trained) == (None, {"a", "b"})


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_pair_weighs_what_its_judge_is_better_than_chance(agreement: float, one: float, other: float) -> None:
    members, rewards = group(member("a"), member("b")), {"a": one, "b": other}
    plain, weighed = group_rows(members, rewards, BASIS), group_rows(members, rewards, BASIS, agreement=agreement)
    weight = max(0.0, 2 * agreement - 1)
    if plain.code is not None:
        assert weighed.code == plain.code
    elif weight == 0:
        assert (weighed.code, weighed.rows, weighed.advantages) == (UntrainedChoice.JUDGE_BY_CHANCE, (), {})
    else:
        assert weighed.advantages == pytest.approx({name: weight * value for name, value in plain.advantages.items()})
        assert weighed.trained == plain.trained
    assert (plain.pair_weight, weighed.pair_weight) == (None, weight)


def test_only_pairs_that_are_compared_with_each_other_are_weighed() -> None:
    three = group(member("a"), member("b"), member("c"))
    rewards: dict[str, float | None] = {"a": 1.0, "b": 0.0, "c": 0.5}
    assert group_rows(three, rewards, BASIS, agreement=0.5).advantages == {"a": 0.5, "b": -0.5, "c": 0.0}
    usable = group_rows(three, {**rewards, "c": None}, BASIS, agreement=0.75)  # two have a reward
    assert (usable.advantages, usable.pair_weight) == ({"a": 0.25, "b": -0.25}, 0.5)
    known = {name: Baseline(0.75, 0.1, 64, True) for name in "ab"}
    alone = group_rows(group(member("a"), member("b")), {"a": 0.5, "b": 0.5}, BASIS, baselines=known, agreement=0.5)
    assert alone.advantages == {"a": -0.25, "b": -0.25}


def test_a_group_with_one_reward_has_too_few() -> None:
    found = group_rows(group(member("a"), member("b")), {"a": 0.5, "b": None}, BASIS)
    assert found.code == UntrainedChoice.TOO_FEW


def test_a_group_all_of_whose_tokens_are_too_old_says_so() -> None:
    old = [trajectory(call(1, [1], choice([2]), version_id="v0"), id=name) for name in "ab"]
    errored = [member(name, state=TrajectoryState.ERRORED) for name in "cde"]
    found = group_rows(group(*old, *errored), {"a": 1.0, "b": 0.0}, BASIS)
    assert (found.code, list(found.rows)) == (Exclusion.OVER_AGE, [])


def test_choices_that_became_siblings_are_each_trained_once_and_told_by_their_own_trajectory_alone() -> None:
    """One call with three choices, never continued: every sibling sees the call, and its own choice as its leaf."""

    def sibling(own: int, reason: str | None = None) -> TrajectoryView:
        reasons = [Exclusion.NOT_SELECTED if index != own else reason for index in range(3)]
        shared = call(1, [1, 2], *(choice([10 + i], i, why) for i, why in enumerate(reasons)))
        return trajectory(shared, id=f"t{own}", main_path=[("call_1", own)])

    rewards = {"t0": 1.0, "t1": 0.0, "t2": 0.5}
    found = group_rows(group(sibling(0), sibling(1), sibling(2)), rewards, BASIS)
    assert [row.calls for row in found.rows] == [(("call_1", 0),), (("call_1", 1),), (("call_1", 2),)]
    assert (list(found.left), list(found.skipped), found.ledger_rows()) == ([], [], [])
    found = group_rows(group(sibling(0), sibling(1)), rewards, BASIS)  # nobody went on with the third
    assert {(row.object_id, row.code, str(row.detail)) for row in found.ledger_rows()} == {
        ("call_1", Exclusion.NOT_SELECTED, str({"choice": 2, "trajectory": name})) for name in ("t0", "t1")
    }
    found = group_rows(group(sibling(0), sibling(1), sibling(2, Exclusion.TRUNCATED)), rewards, BASIS)
    assert [(row.object_kind, row.object_id, row.code) for row in found.ledger_rows()] == [
        ("trajectory", "t2", Exclusion.TRUNCATED)
    ]


def test_a_run_whose_chosen_turn_was_cut_off_says_so_not_that_others_were_not_chosen() -> None:
    choices = [choice([10 + i], i, Exclusion.NOT_SELECTED) for i in range(3)] + [choice([9], 3, Exclusion.TRUNCATED)]
    cut = trajectory(call(1, [1, 2], *choices), id="c", main_path=[("call_1", 3)])
    found = group_rows(group(member("a"), member("b"), cut), {"a": 1.0, "b": 0.0, "c": 0.5}, BASIS)
    assert [(one.trajectory_id, one.code) for one in found.left] == [("c", Exclusion.TRUNCATED)]


def test_a_run_without_a_call_is_told() -> None:
    found = group_rows(group(member("a"), member("b"), trajectory(id="c")), {"a": 1.0, "b": 0.0, "c": 0.0}, BASIS)
    assert [(one.trajectory_id, one.code) for one in found.left] == [("c", UntrainedChoice.NOTHING_SAMPLED)]


def test_the_order_of_groups_does_not_change_a_step() -> None:
    first = group_rows(group(member("a"), member("b"), id="g1"), {"a": 1.0, "b": 0.0}, BASIS)
    second = group_rows(group(member("c"), member("d"), id="g2"), {"c": 1.0, "d": 0.0}, BASIS)
    assert [one.row.trajectory_id for one in weigh_groups([second, first], SETTINGS)] == ["a", "b", "c", "d"]


def test_in_each_optimizer_step_every_run_counts_the_same() -> None:
    def of(name: str) -> GroupRows:
        members = (member(f"{name}1"), member(f"{name}2", 7))
        found = group_rows(group(*members), {f"{name}1": 1.0, f"{name}2": 0.0}, BASIS)
        return replace(found, group_id=name)

    groups = [of(name) for name in "abc"]
    weighted = weigh_groups(groups, TrainerSettings(substeps=2))
    runs = {part: {one.row.trajectory_id for one in weighted if one.substep == part} for part in (0, 1)}
    assert runs == {0: {"a1", "a2", "c1", "c2"}, 1: {"b1", "b2"}}
    for part in (0, 1):
        assert sum(one.rl_weight * one.row.trained_tokens for one in weighted if one.substep == part) == pytest.approx(
            1
        )
    assert {one.substep for one in weigh_groups(groups, TrainerSettings(substeps=9))} == {0, 1, 2}


def test_one_run_alone_is_trained_against_its_baseline_which_is_kept() -> None:
    baseline = Baseline(0.75, 0.1, 64, True)
    found = group_rows(group(member("a")), {"a": 0.5}, BASIS, baselines={"a": baseline})
    assert (found.code, found.advantages, found.trained) == (None, {"a": -0.25}, {"a"})
    assert found.compared() == [ComparedReward("a", 0.5, 0.75, 0.1, 64, True)]


def test_without_a_baseline_a_run_is_left_out_for_that() -> None:
    found = group_rows(group(member("a")), {"a": 0.5}, BASIS, baselines={})
    assert (found.code, found.compared()) == (UntrainedChoice.NO_BASELINE, [])
    assert [(one.trajectory_id, one.code) for one in found.left] == [("a", UntrainedChoice.NO_BASELINE)]


def test_a_reward_at_its_baseline_teaches_nothing() -> None:
    found = group_rows(group(member("a")), {"a": 0.5}, BASIS, baselines={"a": Baseline(0.5, 0.0, 64, True)})
    assert found.code == UntrainedChoice.ZERO_VARIANCE
    missing = group_rows(group(member("a")), {"a": None}, BASIS, baselines={"a": Baseline(0.5, 0.0, 64, True)})
    assert missing.code == UntrainedChoice.TOO_FEW


def shadow(name: str, of: str = "live", sampled: int = 2) -> TrajectoryView:
    """A member of a shadow group: the fork of the live run where `of` is its call, else a further answer."""
    turn = call(1, [1, 2], choice(list(range(10, 10 + sampled))), id=of if name == "fork" else f"call_{name}")
    return trajectory(turn, id=name, origin=Origin.SHADOW, forked_from_call=of)


def test_a_single_turn_weighs_a_share_of_a_whole_run() -> None:
    whole = group_rows(group(member("a", 1), member("b", 7)), {"a": 1.0, "b": 0.0}, BASIS)
    turns = [shadow("fork"), shadow("s", sampled=5)]
    single = group_rows(group(*turns, id="shadows"), {"fork": 1.0, "s": 0.0}, BASIS)
    shares = {
        one.row.trajectory_id: one.rl_weight * one.row.trained_tokens
        for one in weigh_groups([whole, single], TrainerSettings(shadow_weight=0.25))
    }
    assert shares == pytest.approx({"a": 0.4, "b": 0.4, "fork": 0.1, "s": 0.1})
    alone = {
        one.row.trajectory_id: one.rl_weight * one.row.trained_tokens
        for one in weigh_groups([single], TrainerSettings(shadow_weight=0.25))
    }
    assert alone == pytest.approx({"fork": 0.5, "s": 0.5})  # a step's size does not depend on what it is made of


def test_a_turn_that_its_runs_own_group_trains_counts_for_the_shadows_mean_alone() -> None:
    basis = replace(BASIS, in_own=frozenset({"live"}))
    found = group_rows(group(shadow("fork"), shadow("s"), shadow("t")), {"fork": 1.0, "s": 0.0, "t": 0.5}, basis)
    assert found.advantages == {"fork": 0.5, "s": -0.5, "t": 0.0}
    assert found.trained == {"s", "t"}
    assert [(one.trajectory_id, one.code) for one in found.left] == [("fork", IN_OWN_GROUP)]
    run = trajectory(call(1, [1, 2], choice([10, 11]), id="live"), id="a")  # the run itself, in its own group
    own = group_rows(group(run, member("b"), id="own"), {"a": 1.0, "b": 0.0}, basis)
    assert own.trained == {"a", "b"}
