"""Rewards of single turns: feedback on a call, and a reward function that returns one value a turn."""

from __future__ import annotations

from typing import Any

import pytest

from judge.rewards.functions import RewardResult, function_input
from judge.rewards.kinds import feedback_of_turns, function_part
from judge.scoring.reward_parts import clip_to_range
from judge.settings import RewardSettings
from recorder.processes.user_code_host import number
from recorder.views.trajectories.shapes import FeedbackView, TrajectoryView
from tests.trainer.building import call, choice, trajectory


def member(turns: int = 3, *feedback: FeedbackView) -> TrajectoryView:
    calls = [
        call(at, [1], choice([2], message={"role": "assistant", "content": f"answer {at}"}))
        for at in range(1, turns + 1)
    ]
    side = call(9, [1], choice([2], message={"role": "assistant", "content": "a title"}))
    path = [(one.id, 0) for one in calls]
    return trajectory(
        *calls, side, main_path=path, feedback=list(feedback), messages=[{"role": "user", "content": "x"}]
    )


def thumb(value: object, call_id: str | None, at: float = 0.0, name: str = "thumbs") -> FeedbackView:
    return FeedbackView(name, value, call_id, None, {}, at)


def test_feedback_on_a_call_is_the_value_of_its_turn_and_the_newest_counts() -> None:
    given = [
        thumb(True, "call_1", 1.0), thumb(False, "call_1", 2.0), thumb(True, "call_3", 0.5),
        thumb(True, "call_9"), thumb(True, "call_2", name="other"), thumb("good", "call_2"),
    ]  # fmt: skip
    part = feedback_of_turns("thumbs", member(3, *given))
    assert (part.value, part.extra) == (0.0, {"turn.1": 0.0, "turn.3": 1.0})
    whole = feedback_of_turns("thumbs", member(3, thumb(0.5, None)))
    assert (whole.value, whole.extra) == (0.5, {})


def test_a_function_gets_the_answers_of_its_turns_and_may_rate_each() -> None:
    one = member(3)
    assert [turn["content"] for turn in function_input(one)["turns"]] == ["answer 1", "answer 2", "answer 3"]
    reply = number({"score": 0.5, "turns": [1, None, 0.25], "calls": 3})
    assert reply == {"score": 0.5, "explanation": None, "extra": {"calls": 3.0}, "turns": [1.0, None, 0.25]}
    part = function_part(one, RewardResult(**reply))
    assert (part.value, part.extra) == (0.5, {"calls": 3.0, "turn.1": 1.0, "turn.3": 0.25})


@pytest.mark.parametrize("result", [0.5, {"score": 0.5}, {"score": 0.5, "turns": 3}])
def test_a_function_that_rates_no_turn_is_as_before(result: Any) -> None:
    reply = number(result)
    assert reply["turns"] is None
    assert function_part(member(), RewardResult(**reply)).extra == ({"turns": 3.0} if "turns" in str(result) else {})


def test_another_number_of_values_than_turns_is_a_missing_part_with_its_reason() -> None:
    part = function_part(member(3), RewardResult(0.5, turns=[1.0, 0.0]))
    assert (part.value, part.undecided) == (None, True)
    assert part.explanation == "'turns' has 2 values, and the trajectory has 3 turns"


@pytest.mark.parametrize("turns", [["good"], [float("nan")], [[1]]])
def test_a_value_that_is_no_finite_number_fails_the_call(turns: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"turns\[0\]"):
        number({"score": 1, "turns": turns})


def test_a_turns_value_outside_the_range_is_dropped_and_named() -> None:
    reward = RewardSettings(kind="function", function="checks:polite")
    part = function_part(member(2), RewardResult(0.5, "fine", {"calls": 9.0}, [7.0, 1.0]))
    clipped = clip_to_range(reward, part)
    assert (clipped.value, clipped.extra) == (0.5, {"calls": 9.0, "turn.2": 1.0})
    assert clipped.explanation == "fine; turn.1 is 7.0: outside 0 to 1 (`low` and `high` of the reward)"
