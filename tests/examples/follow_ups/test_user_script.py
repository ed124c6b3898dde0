"""Who writes back, and what: shares, halves, and texts that only the reader can decide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.helpdesk.wording import QUESTIONS
from examples.live.follow_ups.corrections import find_facts
from examples.live.follow_ups.phrasings import FIRST_HALF, SECOND_HALF, Phrasings
from examples.live.follow_ups.user_script import LATEST_S, SOONEST_S, Shares, UserIntent, user_intent
from judge.rewards.follow_ups import is_thanks
from recorder.views.follow_ups.rules import normal_form

USERS = 4000
HALVES = {False: FIRST_HALF, True: SECOND_HALF}


def users(shares: Shares, seed: int = 7) -> list[UserIntent]:
    return [user_intent(seed, number, shares, second_half=number >= USERS // 2) for number in range(USERS)]


def texts(half: Phrasings) -> set[str]:
    return {*half.content, *half.discontent}


def test_no_phrasing_of_the_second_half_occurs_in_the_first() -> None:
    first, second = ({normal_form(text) for text in texts(half)} for half in HALVES.values())
    assert len(first) == len(second) == 16
    assert not first & second


@pytest.mark.parametrize("text", sorted(texts(FIRST_HALF) | texts(SECOND_HALF)))
def test_no_text_is_decided_by_rules_or_has_a_fact(text: str) -> None:
    assert not is_thanks(text)
    assert normal_form(text) not in {normal_form(question) for question in QUESTIONS}
    assert find_facts(text) == set()


@given(st.booleans(), st.booleans(), st.booleans(), st.floats(0, 1, exclude_max=True))
def test_a_lie_says_the_opposite_in_the_phrasings_of_its_half(
    right: bool, lies: bool, second_half: bool, pick: float
) -> None:
    half = HALVES[second_half]
    intent = UserIntent(True, lies, False, SOONEST_S, pick, second_half)
    assert intent.text(right=right) in (half.content if right != lies else half.discontent)


def test_half_of_the_users_write_and_15_percent_of_them_lie() -> None:
    writing = [one for one in users(Shares()) if one.writes]
    assert len(writing) / USERS == pytest.approx(0.5, abs=0.03)
    assert sum(one.lies for one in writing) / len(writing) == pytest.approx(0.15, abs=0.02)
    assert all(SOONEST_S <= one.after_s <= LATEST_S for one in writing)
    for second_half, half in HALVES.items():
        said = {one.text(right=True) for one in writing if one.second_half == second_half}
        assert said == texts(half)


def test_one_of_five_states_the_right_answer_and_half_of_the_others_write() -> None:
    every = users(Shares(states=0.2))
    stating = [one for one in every if one.states]
    assert len(stating) / USERS == pytest.approx(0.2, abs=0.02)
    assert not any(one.writes for one in stating)
    assert sum(one.writes for one in every) / (USERS - len(stating)) == pytest.approx(0.5, abs=0.03)


def test_the_same_users_write_whatever_the_share_of_lies() -> None:
    lying, truthful = users(Shares()), users(Shares(lies=0.0))
    assert [(one.writes, one.after_s, one.pick) for one in lying] == [
        (one.writes, one.after_s, one.pick) for one in truthful
    ]
    assert not any(one.lies for one in truthful)
    assert users(Shares(), seed=8) != lying
