"""The order in which runs are shown: every run stands in every place as equally often as the requests allow."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from judge.llm.prompt import ALONE, JudgeRequest, id_key, judge_requests, shown_order

SIZES = {"runs": st.integers(2, 12), "members": st.integers(1, 5), "repeats": st.integers(1, 16)}


def keys_of(runs: int) -> list[str]:
    return [f"k{number}" for number in range(runs)]


@given(**SIZES, seed=st.integers(0, 2**31 - 1))
def test_over_a_judges_repeats_each_run_stands_in_each_place_equally_often(
    runs: int, members: int, repeats: int, seed: int
) -> None:
    keys = keys_of(runs)
    for member in range(members):
        orders = [shown_order(keys, seed, JudgeRequest(member, repeat, members, repeats)) for repeat in range(repeats)]
        assert all(sorted(order) == sorted(keys) for order in orders)
        stood = Counter((key, place) for order in orders for place, key in enumerate(order))
        counts = [stood[key, place] for key in keys for place in range(runs)]
        assert max(counts) - min(counts) <= 1


@given(**SIZES, seed=st.integers(0, 2**31 - 1))
def test_so_it_is_over_all_judges_together(runs: int, members: int, repeats: int, seed: int) -> None:
    keys = keys_of(runs)
    stood = Counter(
        (key, at) for turn in judge_requests(members, repeats) for at, key in enumerate(shown_order(keys, seed, turn))
    )
    counts = [stood[key, place] for key in keys for place in range(runs)]
    assert max(counts) - min(counts) <= 1


@given(**SIZES, seed=st.integers(0, 2**31 - 1))
def test_every_request_has_ids_of_its_own(runs: int, members: int, repeats: int, seed: int) -> None:
    made = [id_key(seed, turn) for turn in judge_requests(members, repeats)]
    assert len(set(made)) == len(made) == members * repeats
    assert [turn.number for turn in judge_requests(members, repeats)] == list(range(members * repeats))


def test_few_repeats_are_spread_over_the_whole_circle() -> None:
    keys = keys_of(8)
    one, other = (shown_order(keys, 7, JudgeRequest(0, repeat, 1, 2)) for repeat in range(2))
    assert one[4:] + one[:4] == other
    assert shown_order(keys, 7, ALONE) == one
    assert shown_order(keys, 8, ALONE) != one
