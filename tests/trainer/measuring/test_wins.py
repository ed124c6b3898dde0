"""Who won: attempts compared in pairs, ties, and attempts that came to nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainer.measuring.wins import TIE, Wins, Worth, compare, counted

worths = st.builds(Worth, st.none() | st.floats(-5, 5), st.booleans())


def test_the_higher_reward_wins_and_equals_tie() -> None:
    assert compare(Worth(0.9), Worth(0.2)) == 1.0
    assert compare(Worth(0.2), Worth(0.9)) == 0.0
    assert compare(Worth(0.5), Worth(0.5)) == TIE


def test_what_its_agent_spoilt_loses_against_what_it_did_not() -> None:
    assert compare(Worth(0.0), Worth(None, spoilt=True)) == 1.0
    assert compare(Worth(None, spoilt=True), Worth(0.0)) == 0.0
    assert compare(Worth(None, spoilt=True), Worth(None, spoilt=True)) == TIE


def test_what_nobody_scored_is_not_compared() -> None:
    groups = [([Worth(None), Worth(1.0)], Worth(0.5)), ([Worth(1.0)], Worth(None))]
    assert counted(groups) == Wins(1.0, 1)
    assert counted([]) == Wins(None, 0)


@given(worths, worths)
def test_one_sides_win_is_the_others_loss(one: Worth, other: Worth) -> None:
    won, lost = compare(one, other), compare(other, one)
    assert (won is None and lost is None) or (won is not None and lost is not None and won + lost == 1.0)


@given(st.lists(st.tuples(st.lists(worths, max_size=4), worths), max_size=4))
def test_a_share_is_a_share(groups: list[tuple[list[Worth], Worth]]) -> None:
    found = counted(groups)
    assert (found.share is None) == (found.compared == 0)
    assert found.share is None or 0 <= found.share <= 1
