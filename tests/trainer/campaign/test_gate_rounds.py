"""Which held-out scenarios a gate's rounds hold: the rule alone. What is done with them: programs/test_examiner.py."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from trainer.campaign.gate_rounds import AGAIN, ROUND, gate_rounds


@given(st.integers(1, 40), st.integers(1, 200), st.text(max_size=8))
def test_rounds_have_as_many_pairs_as_are_allowed_and_each_scenario_about_as_often(
    tasks: int, pairs: int, seed: str
) -> None:
    found = gate_rounds(range(tasks), pairs, seed)
    drawn = Counter(chain.from_iterable(found))
    assert drawn.total() == min(pairs, AGAIN * tasks)
    assert max(drawn.values()) - min(drawn[task] for task in range(tasks)) <= 1
    assert all(0 < len(one) <= ROUND for one in found)
    assert all(len(set(one)) == len(one) for one in found), "one round attempts a scenario once"
    assert found == gate_rounds(range(tasks), pairs, seed), "whoever goes on finds the same rounds"


def test_another_version_meets_other_scenarios_first() -> None:
    assert gate_rounds(range(100), 8, "helpdesk@1") != gate_rounds(range(100), 8, "helpdesk@2")
