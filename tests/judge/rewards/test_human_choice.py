"""What a person chose as a score: pairs, rankings, contradictions, numbers."""

from typing import Any

import pytest

from judge.rewards.human_choice import human_choices
from recorder.views.trajectories.shapes import FeedbackView


def preferred(loser: str, at: float = 1.0, group: str = "g") -> FeedbackView:
    return FeedbackView("preference", True, None, None, {"loser": loser, "group": group, "by": "me"}, at)


def tied(other: str, at: float = 1.0, group: str = "g") -> FeedbackView:
    return FeedbackView("tie", True, None, None, {"other": other, "group": group, "by": "anna"}, at)


def scored(value: Any, at: float = 1.0, comment: str | None = None) -> FeedbackView:
    return FeedbackView("score", value, None, comment, {}, at)


def values(**feedback: list[FeedbackView]) -> dict[str, float]:
    return {run: one.value for run, one in human_choices("g", feedback).items()}


def test_the_better_of_two_gets_all_and_who_was_not_looked_at_nothing() -> None:
    assert values(a=[preferred("b")], b=[], c=[]) == {"a": 1.0, "b": 0.0}


def test_a_ranking_spreads_evenly_by_what_follows_from_its_pairs() -> None:
    found = values(a=[preferred("b")], b=[preferred("c")], c=[preferred("d")], d=[])
    assert found == {"a": 1.0, "b": pytest.approx(2 / 3), "c": pytest.approx(1 / 3), "d": 0.0}


def test_the_newest_word_on_a_pair_counts() -> None:
    assert values(a=[preferred("b", at=1.0)], b=[preferred("a", at=2.0)]) == {"a": 0.0, "b": 1.0}


def test_a_circle_of_pairs_ties_its_runs() -> None:
    assert values(a=[preferred("b")], b=[preferred("c")], c=[preferred("a")]) == {"a": 0.5, "b": 0.5, "c": 0.5}


def test_runs_that_are_as_good_as_each_other_share_their_place() -> None:
    assert values(a=[tied("b")], b=[]) == {"a": 0.5, "b": 0.5}
    assert values(a=[tied("b")], b=[preferred("c")], c=[]) == {"a": 0.75, "b": 0.75, "c": 0.0}
    assert values(a=[preferred("b", at=1.0), tied("b", at=2.0)], b=[]) == {"a": 0.5, "b": 0.5}


def test_who_chose_is_said() -> None:
    told = human_choices("g", {"a": [tied("b")], "b": [preferred("c")], "c": []})
    assert told["a"].why == "people (anna, me) chose: better than 1 of the others, worse than 0, as good as 1"
    assert told["c"].why == "people (anna, me) chose: better than 0 of the others, worse than 2"


def test_another_groups_pairs_and_strangers_say_nothing() -> None:
    assert values(a=[preferred("b", group="other")], b=[preferred("gone")]) == {}


def test_scores_go_before_pairs_where_two_runs_have_one() -> None:
    assert values(a=[scored(0.2), preferred("b")], b=[scored(0.4), scored(0.9, at=2.0)]) == {"a": 0.2, "b": 0.9}
    assert values(a=[scored(0.2), preferred("b")], b=[]) == {"a": 1.0, "b": 0.0}


def test_a_score_outside_its_range_or_no_number_is_none() -> None:
    assert values(a=[scored(7)], b=[scored("good")], c=[scored(True)]) == {}
    assert human_choices("g", {"a": [scored(1, comment="neat")], "b": [scored(0)]})["a"].why == "neat"
