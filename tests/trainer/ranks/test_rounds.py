"""Packs dealt to ranks: each once, every rank as many passes, and rounds that cost as little as the packs allow."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.building import random_ids
from trainer.batch.packing import Pack, pack
from trainer.ranks.rounds import deal_rounds, even_budget, pack_cost, rounds_cost

LENGTHS = st.lists(st.integers(1, 90), min_size=1, max_size=30)


def packs_of(lengths: list[int], budget: int) -> list[Pack]:
    return pack([np.array(random_ids(length, i), np.int32) for i, length in enumerate(lengths)], budget)


@given(LENGTHS, st.integers(1, 5))
def test_every_pack_counts_once_and_every_rank_makes_as_many_passes(lengths: list[int], count: int) -> None:
    packs = packs_of(lengths, 64)
    rounds = deal_rounds(packs, count)
    assert {len(one) for one in rounds} == {count}
    assert len(rounds) == -(-len(packs) // count)
    counted = [id(dealt.pack) for one in rounds for dealt in one if dealt.counts]
    assert sorted(counted) == sorted(map(id, packs))


@given(LENGTHS, st.integers(1, 5))
def test_a_pass_that_does_not_count_costs_no_round_more(lengths: list[int], count: int) -> None:
    for one in deal_rounds(packs_of(lengths, 64), count):
        costs = [pack_cost(dealt.pack) for dealt in one]
        assert costs == sorted(costs, reverse=True)


@given(LENGTHS, st.integers(1, 5))
def test_one_budget_for_all_rounds_is_not_larger_than_what_fits(lengths: list[int], count: int) -> None:
    packs = packs_of(lengths, 64)
    budget = even_budget(packs, 64, count)
    assert 1 <= budget <= 64
    assert budget * count * -(-sum(map(len, packs)) // (64 * count)) >= sum(map(len, packs))


def test_one_pass_is_divided_among_all_ranks() -> None:
    """Four rows that fit into one pass leave three of four ranks without work."""
    packs = packs_of([20, 20, 20, 20], 128)
    assert len(packs) == 1
    divided = packs_of([20, 20, 20, 20], even_budget(packs, 128, 4))
    assert [len(one) for one in divided] == [20] * 4
    assert rounds_cost(divided, 4) < rounds_cost(packs, 4)


def test_context_costs_more_than_tokens() -> None:
    long, short = packs_of([80], 128), packs_of([40, 40], 40)
    assert sum(map(len, long)) == sum(map(len, short))
    assert sum(map(pack_cost, long)) > sum(map(pack_cost, short))
