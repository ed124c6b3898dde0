"""What a round's attempts looked like: each figure, from attempts and scores as they are read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.judging.scores import NewPart, StoredScore
from recorder.states import CallKind, CallState, TrajectoryState
from recorder.views.trajectories.shapes import TrajectoryView
from tests.recorder.score_rows import stored_score
from tests.trainer.building import call, choice, group, trajectory
from trainer.campaign.measurement import is_all_judged
from trainer.measures.round_figures import repetition, round_figures

words = st.lists(st.sampled_from("abcdefg"), max_size=30).map(" ".join)
rewards = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1), max_size=6)


def attempt(*tokens: int, **overrides: Any) -> TrajectoryView:
    calls = [call(n, [1], choice([2]), usage={"completion_tokens": count}) for n, count in enumerate(tokens)]
    return trajectory(*calls, **{"main_path": [(one.id, 0) for one in calls], **overrides})


def said(*texts: str, tools: int = 0) -> list[Mapping[str, Any]]:
    calls = [{"id": str(n), "function": {"name": "find", "arguments": f'{{"n": {n}}}'}} for n in range(tools)]
    return [
        {"role": "user", "content": "do it"},
        *({"role": "assistant", "content": text} for text in texts),
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]


def score(parts: Mapping[str, float], name: str = "reward", *, unasked: bool = False) -> StoredScore:
    made = tuple(NewPart(id_, name, value, unasked=unasked) for id_, value in parts.items())
    return stored_score(*made)


def of_rewards(parts: Mapping[str, float], success: Mapping[str, bool] | None = None) -> dict[str, float]:
    return round_figures([group()], {"score": score(parts)}, success)


def test_means_are_of_usable_attempts_alone() -> None:
    good = attempt(10, 30, messages=said("one two three four", tools=3), ended_at=6.0)
    better = attempt(20, messages=said("yes", tools=1), ended_at=2.0)
    spoilt = attempt(9000, state=TrajectoryState.ERRORED, ended_at=900.0)
    unchosen = attempt(9000, selection="unselected", ended_at=900.0)
    assert round_figures([group(good, spoilt), group(better, unchosen)], {}) == {
        "health.length": 30.0,
        "health.turns": 1.5,
        "health.tool_calls": 2.0,
        "health.seconds": 4.0,
        "health.repetition": 0.0,
    }


def test_a_round_without_attempts_has_no_figures() -> None:
    assert round_figures([], {}) == {}
    assert round_figures([group(current_score_id=None)], {}) == {}


def test_tokens_count_where_they_are_known_and_belong_to_the_agent() -> None:
    counted = call(0, [1], usage={"completion_tokens": 5})
    others = [
        call(1, [1], usage={"completion_tokens": 90}, call_kind=CallKind.AUX),
        call(2, [1], usage={"completion_tokens": 90}, superseded_by="call_3"),
        call(3, [1], usage={"completion_tokens": 90}, state=CallState.ABORTED),
        call(4, [1], usage={"prompt_tokens": 90}),
    ]
    assert round_figures([group(trajectory(counted, *others))], {})["health.length"] == 5
    assert "health.length" not in round_figures([group(trajectory(*others))], {})


def test_a_call_asked_again_and_again_is_repetition_as_a_phrase_is() -> None:
    def repeated(messages: list[Mapping[str, Any]]) -> float:
        return round_figures([group(attempt(messages=messages))], {})["health.repetition"]

    again = {"function": {"name": "find", "arguments": '{"a": 1, "b": 2}'}}
    other = {"function": {"name": "find", "arguments": '{"c": 3, "d": 4}'}}
    assert repeated([{"role": "assistant", "tool_calls": [again, again]}]) == pytest.approx(0.5)
    assert repeated([{"role": "assistant", "tool_calls": [again, other]}]) == 0
    assert repeated([{"role": "user", "content": "a b c d a b c d"}, *said("a b c d")]) == 0
    assert repeated([{"role": "assistant", "reasoning": "a b c d", "content": "a b c d"}]) == 0.5


@given(st.lists(words, max_size=6))
def test_repetition_is_a_share_and_saying_it_all_twice_is_at_least_half(texts: list[str]) -> None:
    once, twice = repetition(texts), repetition(texts * 2)
    assert (once is None) == (twice is None) == all(len(text.split()) < 4 for text in texts)
    if once is not None and twice is not None:
        assert 0 <= once < 1
        assert max(0.5, once) <= twice < 1


@given(rewards, st.floats(0.1, 1))
def test_shares_of_rewards_are_shares_and_absent_where_nothing_was_scored(found: dict[str, float], by: float) -> None:
    figures = of_rewards(found)
    assert ("health.perfect" in figures) == bool(found)
    assert ("health.zero_variance" in figures) == (len(found) > 1)
    assert all(0 <= value <= 1 for value in figures.values())
    assert round_figures([group()], {"score": score(found)}, highest=2.0).get("health.perfect", 0) == 0


def test_perfect_attempts_and_groups_without_a_difference() -> None:
    figures = round_figures(
        [group(id="a", current_score_id="a"), group(id="b", current_score_id="b"), group(current_score_id=None)],
        {"a": score({"1": 1.0, "2": 1.0 - 1e-9}), "b": score({"3": 0.2, "4": 0.9})},
    )
    assert figures == {"health.perfect": 0.5, "health.zero_variance": 0.5}


def test_what_nobody_was_asked_for_is_neither_perfect_nor_in_a_mean_and_has_no_variance() -> None:
    assert round_figures([group()], {"score": score({"a": 1.0, "b": 1.0}, unasked=True)}) == {
        "health.zero_variance": 1.0
    }
    assert round_figures([group()], {"score": score({"a": 1.0}, "brief", unasked=True)}) == {}


def test_the_reward_agrees_with_success_by_pairs_inside_a_group() -> None:
    success = {"a": True, "b": True, "c": False}
    assert of_rewards({"a": 0.9, "b": 0.1, "c": 0.5}, success)["health.judge_agreement"] == 0.5
    assert of_rewards({"a": 0.5, "c": 0.5}, success)["health.judge_agreement"] == 0.5
    assert of_rewards({"a": 0.9, "c": 0.5}, success)["health.judge_agreement"] == 1
    assert "health.judge_agreement" not in of_rewards({"a": 0.9, "b": 0.1}, success)
    across = [group(id="a", current_score_id="a"), group(id="b", current_score_id="b")]
    apart = {"a": score({"a": 0.1}), "b": score({"c": 0.9})}
    assert "health.judge_agreement" not in round_figures(across, apart, success)


@given(rewards, st.dictionaries(st.sampled_from("abcdef"), st.booleans()))
def test_turned_rewards_agree_as_often_as_they_did_not(found: dict[str, float], success: dict[str, bool]) -> None:
    there, back = of_rewards(found, success), of_rewards({id_: -value for id_, value in found.items()}, success)
    assert there.get("health.judge_agreement", 0.5) == pytest.approx(1 - back.get("health.judge_agreement", 0.5))


def test_parts_are_means_over_all_attempts_without_what_was_given_beside_them() -> None:
    scores = {"a": score({"1": 0.2, "2": 0.4}, "brief"), "b": score({"3": 5.0}, "brief.words")}
    assert round_figures([group(current_score_id="a")], scores) == {"part.brief": pytest.approx(0.3)}


def test_a_round_is_judged_when_each_group_with_attempts_is() -> None:
    scores = {"a": score({"a": 0.2})}
    judged, nobody = group(attempt(), current_score_id="a"), group(current_score_id=None)
    assert is_all_judged([judged, nobody], scores)
    assert not is_all_judged([judged, group(attempt(), current_score_id="b")], scores)
    assert not is_all_judged([judged, group(attempt(), current_score_id=None)], scores)
