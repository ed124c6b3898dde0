"""What the simulated users of `make live` ask, and when."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from examples.helpdesk.orders import demo_orders
from examples.live.traffic import IN_VOGUE, POOL, arrivals, one_each, repeats, unique

ORDERS = demo_orders().train
seeds = st.integers(0, 2**32)


@given(seeds)
def test_a_few_questions_of_a_pool_are_asked_again_and_again(seed: int) -> None:
    asked = [question.text for question in islice(repeats(ORDERS, random.Random(seed)), 400)]
    assert len(set(asked)) <= POOL
    assert Counter(asked).most_common(1)[0][1] >= 8
    for first in range(0, 400, 40):
        assert len(set(asked[first : first + 8])) <= 2 * IN_VOGUE


def test_no_question_comes_twice_and_twenty_minutes_at_two_and_a_half_a_second_are_not_too_long() -> None:
    asked = [question.text for question in unique(ORDERS, random.Random(7))]
    assert len(asked) == len(set(asked)) >= 2.5 * 60 * 20


def test_questions_name_the_order_that_they_are_about() -> None:
    for question in [*islice(unique(ORDERS, random.Random(1)), 50), *one_each(ORDERS[:50], random.Random(1))]:
        assert question.order.order_id in question.text


def test_one_seed_makes_one_traffic() -> None:
    first, again, other = (list(islice(repeats(ORDERS, random.Random(seed)), 60)) for seed in (3, 3, 4))
    assert first == again != other


def test_users_come_at_the_rate_that_was_asked_for() -> None:
    waits = list(islice(arrivals(4.0, random.Random(5)), 4000))
    assert 900 < sum(waits) < 1100
    assert any(later < earlier for earlier, later in pairwise(waits))
