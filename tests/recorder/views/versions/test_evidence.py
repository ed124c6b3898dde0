"""The figures of a decision are told in sentences, each beside the limit that held then."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.registry.moves import VersionMove
from recorder.views.versions.evidence import PASSED, describe_evidence, explain_move

LIMITS = {"length_times": 4.0, "entropy_times": 4.0, "kl_max": 0.1, "win_at_least": 0.4, "forgetting_max": 0.1}


def decided(
    figures: dict[str, Any], why: str | None = "sane", move: str = "gated", limits: dict[str, float] | None = None
) -> VersionMove:
    return VersionMove(0.0, "helpdesk", "helpdesk@3", "ver_3", move, "controller", why, figures, limits=limits or {})


def told(figures: dict[str, Any], **limits: float) -> list[tuple[str, bool | None]]:
    """The sentences after the first, which is about the code."""
    return [(one.text, one.within) for one in describe_evidence(decided(figures, limits=limits))][1:]


@pytest.mark.parametrize(
    ("times", "text", "within"),
    [
        (1.06, "Its answers are 6 % longer than the live version's; limit 4 ×, in either direction.", True),
        (0.8, "Its answers are 20 % shorter than the live version's; limit 4 ×, in either direction.", True),
        (1.001, "Its answers are as long as the live version's; limit 4 ×, in either direction.", True),
        (4.1, "Its answers are 4.1 × as long as the live version's; limit 4 ×, in either direction.", False),
        (0.2, "Its answers are 0.2 × as long as the live version's; limit 4 ×, in either direction.", False),
    ],
)
def test_a_length_is_told_beside_its_limit(times: float, text: str, within: bool) -> None:
    assert told({"times_as_long": times}, length_times=4.0) == [(text, within)]


def test_a_decision_of_an_older_program_has_no_limits() -> None:
    assert told({"times_as_long": 1.06, "kl_live": 9.5}) == [
        ("Its answers are 6 % longer than the live version's.", None),
        ("Their distance from the live version (KL) is 9.5 nats a token.", None),
    ]


def test_entropy_and_distance_are_told_beside_their_limits() -> None:
    figures = {"entropy": 0.42, "entropy_live": 0.45, "kl_live": 0.012, "kl_base": 0.2}
    assert told(figures, **LIMITS) == [
        (
            "Their entropy is 0.42 nats a token, that of the live version 0.45; limit 4 ×, in either direction, unless "
            "by chance.",
            True,
        ),
        ("Their distance from the live version (KL) is 0.012 nats a token; limit 0.1.", True),
        ("Their distance from the base (KL) is 0.2 nats a token; limit 0.1.", False),
    ]


def test_pairs_are_told_with_who_won_how_many() -> None:
    figures = {"win_rate": 0.62, "pairs": 16, "success": 0.75, "success_live": 0.5}
    assert told(figures, **LIMITS) == [
        ("It succeeds at 75 % of 16 held-out attempts; the live version at 50 %.", None),
        (
            "It wins 62 % of 16 pairs beside the live version, a tie half; less than 40 %, beyond chance, rejects it.",
            True,
        ),
    ]
    assert told({"pairs": 0}) == [("No pair was compared with the live version.", None)]


def test_a_version_that_lost_beside_an_earlier_one_is_told_so() -> None:
    figures = {"win_rate": 0.5, "pairs": 8, "version_day": 2, "win_rate_day": 0.1, "pairs_day": 24}
    why = "behaviour_day: it wins 10% of 24 pairs beside helpdesk@2"
    first, *others = describe_evidence(decided(figures, why, "rejected", {"win_at_least": 0.4}))
    assert (first.text, first.within) == ("It was rejected: it wins 10% of 24 pairs beside helpdesk@2.", None)
    assert [(one.text, one.within) for one in others] == [
        (
            "It wins 50 % of 8 pairs beside the live version, a tie half; less than 40 %, beyond chance, rejects it.",
            True,
        ),
        (
            "It wins 10 % of 24 pairs beside helpdesk@2, a day old or older, a tie half; less than 40 %, beyond "
            "chance, rejects it.",
            False,
        ),
    ]


def test_forgetting_and_the_cost_of_a_gate_are_told() -> None:
    figures = {"drift.score": 0.61, "drift.scored": 24.0, "gate_questions": 6, "gate_tokens": 1234, "gate_s": 12.3}
    assert told(figures, **LIMITS) == [
        ("It scores 0.61 on 24 tasks of the drift set; a fall of more than 0.1 below an ancestor rejects it.", True),
        ("The gate asked 6 first turns, sampled 1,234 tokens and took 12.3 s.", None),
    ]
    fallen = describe_evidence(
        decided(
            {**figures, "drift.score_before": 0.8}, "forgetting: it scores less", "rejected", {"forgetting_max": 0.1}
        )
    )
    assert (fallen[1].within, "where an ancestor scored 0.8" in fallen[1].text) == (False, True)


def test_a_canary_is_told_by_the_figures_in_which_it_is_worse() -> None:
    figures = {
        "worse_by": ["length", "errors"],
        "reward": {"value": 0.485, "tasks": 120, "capital": 2.0, "tolerated": 0.05},
        "errors": {"value": 0.46, "tasks": 120, "capital": 200.0},
        "length": {"value": 0.45, "tasks": 100, "capital": 200.0, "times": 2.0, "tolerated": 1.25},
        "latency": {"value": 0.5, "tasks": 9, "capital": 1.0},  # of an older program
    }
    found = describe_evidence(decided(figures, "its trajectories are worse", "canary_ended"))
    assert [(one.text, one.within) for one in found] == [
        ("Its reward is 0.03 lower than the other version's, over 120 tasks; a fall of 0.05 is tolerated.", True),
        ("Its trajectories end in an error more often, by 8 percentage points, over 120 tasks.", False),
        ("Its answers take 2.00 × the tokens, over 100 tasks; limit 1.25 ×.", False),
    ]


def test_the_code_of_a_gate_is_told_and_what_it_could_not_check() -> None:
    told = [one.text for one in describe_evidence(decided({}, "sane: no judge is running"))]
    assert told == [PASSED["sane"], "Not everything was checked: no judge is running."]
    assert describe_evidence(decided({}, "it looks well", "promote")) == ()
    assert describe_evidence(decided({}, None, "promote")) == ()


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9), lambda some: st.lists(some, max_size=3)
)
NAMES = st.sampled_from(
    ["times_as_long", "entropy", "entropy_live", "pairs", "win_rate", "reward", "worse_by", "drift.score", "gate_s"]
)


@given(st.dictionaries(NAMES, ANY | st.dictionaries(st.sampled_from(["value", "tasks", "times"]), ANY)), st.text())
def test_any_stored_figures_are_told_or_passed_over(figures: dict[str, Any], why: str) -> None:
    for move in ("gated", "rejected", "canary_ended"):
        said = explain_move(decided(figures, why, move, LIMITS))
        assert all(one.text.endswith((".", "!", "?")) for one in said.evidence)
