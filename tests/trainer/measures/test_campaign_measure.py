"""Who won: attempts compared in pairs, ties, and attempts that came to nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainer.measures.campaign_measure import TIE, AttemptValue, WinRate, compare_values, count_wins

worths = st.builds(AttemptValue, st.none() | st.floats(-5, 5), st.booleans())


def test_the_higher_reward_wins_and_equals_tie() -> None:
    assert compare_values(AttemptValue(0.9), AttemptValue(0.2)) == 1.0
    assert compare_values(AttemptValue(0.2), AttemptValue(0.9)) == 0.0
    assert compare_values(AttemptValue(0.5), AttemptValue(0.5)) == TIE


def test_what_its_agent_spoilt_loses_against_what_it_did_not() -> None:
    assert compare_values(AttemptValue(0.0), AttemptValue(None, spoilt=True)) == 1.0
    assert compare_values(AttemptValue(None, spoilt=True), AttemptValue(0.0)) == 0.0
    assert compare_values(AttemptValue(None, spoilt=True), AttemptValue(None, spoilt=True)) == TIE


def test_what_nobody_scored_is_not_compared() -> None:
    groups = [([AttemptValue(None), AttemptValue(1.0)], AttemptValue(0.5)), ([AttemptValue(1.0)], AttemptValue(None))]
    assert count_wins(groups) == WinRate(1.0, 1)
    assert count_wins([]) == WinRate(None, 0)


@given(worths, worths)
def test_one_sides_win_is_the_others_loss(one: AttemptValue, other: AttemptValue) -> None:
    won, lost = compare_values(one, other), compare_values(other, one)
    assert (won is None and lost is None) or (won is not None and lost is not None and won + lost == 1.0)


@given(st.lists(st.tuples(st.lists(worths, max_size=4), worths), max_size=4))
def test_a_share_is_a_share(groups: list[tuple[list[AttemptValue], AttemptValue]]) -> None:
    found = count_wins(groups)
    assert (found.share is None) == (found.compared == 0)
    assert found.share is None or 0 <= found.share <= 1
