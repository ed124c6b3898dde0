"""The parts of a campaign's tasks: whole, stable, and with no task in two of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ScenariosInvalid
from trainer.tasks.scenarios import Scenario
from trainer.tasks.selection import PARTS, comparison_form, require_apart, scenario_part, split_scenarios

names = st.text("abcdefgh0123456789", min_size=1, max_size=8)
shares = st.lists(st.integers(1, 20), min_size=2, max_size=3).map(lambda ws: [w / sum(ws) for w in ws])
inputs = st.recursive(
    st.text(max_size=8) | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@given(st.sets(names, min_size=1, max_size=40), names, shares, st.integers())
def test_one_that_is_added_moves_no_other(there: set[str], added: str, of: list[float], seed: int) -> None:
    before = {id_: scenario_part(id_, of, seed) for id_ in there}
    after = {id_: scenario_part(id_, of, seed) for id_ in there | {added}}
    assert before.items() <= after.items()
    assert set(after.values()) <= set(PARTS[: len(of)])


@given(st.sets(names, max_size=40), shares, st.integers())
def test_each_scenario_is_in_one_part_in_the_files_order_or_an_empty_part_is_refused(
    there: set[str], of: list[float], seed: int
) -> None:
    given_ = [Scenario(id_, id_) for id_ in sorted(there)]
    by = Counter(scenario_part(id_, of, seed) for id_ in there)
    if len(by) < len(of):
        with pytest.raises(ScenariosInvalid, match="part"):
            split_scenarios(given_, of, seed)
        return
    parts = split_scenarios(given_, of, seed)
    assert list(parts) == list(PARTS[: len(of)])
    assert sorted((one for found in parts.values() for one in found), key=lambda one: one.id) == given_
    assert all(found == sorted(found, key=lambda one: one.id) for found in parts.values())


def test_the_parts_are_as_large_as_their_shares() -> None:
    by = Counter(scenario_part(f"task-{n}", [0.8, 0.1, 0.1], 0) for n in range(10_000))
    # 3 standard deviations of a share of 0.1 in 10,000 draws are 90
    assert abs(by["train"] - 8000) < 120
    assert abs(by["val"] - 1000) < 90
    assert abs(by["test"] - 1000) < 90


def test_another_seed_splits_otherwise() -> None:
    ids = [f"task-{n}" for n in range(100)]
    assert [scenario_part(i, [0.5, 0.5], 0) for i in ids] != [scenario_part(i, [0.5, 0.5], 1) for i in ids]


def test_an_empty_part_is_told_with_what_to_do() -> None:
    with pytest.raises(ScenariosInvalid) as refused:
        split_scenarios([Scenario("a", 1)], [0.8, 0.1, 0.1], 0)
    assert "of 1 scenarios none is in the val and the test part (campaign.split [0.8, 0.1, 0.1]" in str(refused.value)
    assert "add scenarios" in str(refused.value)


def test_an_id_in_two_parts_is_refused_with_both_places() -> None:
    one, other = Scenario("a", 1, place="train.jsonl, line 3"), Scenario("a", 2, place="val.jsonl, line 1")
    with pytest.raises(ScenariosInvalid) as refused:
        require_apart({"train": [one], "val": [other]})
    assert "'a' (train, train.jsonl, line 3) and 'a' (val, val.jsonl, line 1) have the same id" in str(refused.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Where is my order?", " where is\nmy  ORDER?"),
        ({"a": 1, "b": ["x"]}, {"b": ["X "], "a": 1}),
        ("\ufb01ne", "fine"),  # a ligature
        (5, 5),
    ],
)
def test_an_input_in_two_parts_is_refused_however_it_is_written(one: Any, other: Any) -> None:
    with pytest.raises(ScenariosInvalid, match="'a' \\(train\\) and 'b' \\(test\\) have the same input"):
        require_apart({"train": [Scenario("a", one)], "val": [], "test": [Scenario("b", other)]})


def test_twice_in_one_part_is_no_fault() -> None:
    require_apart({"train": [Scenario("a", 1), Scenario("b", 1)], "val": [Scenario("c", 2)]})


def test_numbers_tell_tasks_apart_and_kinds_of_values_do() -> None:
    told = ["order 1", "order 2", 1, "1", True, ["1"], {"a": "1"}, None]
    assert len({comparison_form(value) for value in told}) == len(told)


@given(st.dictionaries(st.text("ab ", min_size=1, max_size=3), inputs, max_size=4))
def test_the_order_of_keys_and_the_space_around_texts_tell_none_apart(value: dict[str, Any]) -> None:
    assert comparison_form(value) == comparison_form(dict(reversed(value.items())))
    assert comparison_form([f" {key}\n" for key in value]) == comparison_form(list(value))


def test_many_are_cut() -> None:
    twice = [Scenario(str(n), n) for n in range(20)]
    with pytest.raises(ScenariosInvalid, match="and 15 more"):
        require_apart({"train": twice, "val": twice})
