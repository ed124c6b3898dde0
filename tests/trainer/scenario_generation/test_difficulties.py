"""How many scenarios of each difficulty are asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainer.scenario_generation.difficulties import SHARES, Difficulty, difficulty_counts


@given(st.integers(1, 2000), st.floats(0, 1))
def test_the_kinds_add_up_and_none_is_more_than_one_off_its_share(wanted: int, adversarial: float) -> None:
    found = difficulty_counts(wanted, adversarial)
    assert sum(found.values()) == wanted
    for kind, share in SHARES.items():
        assert abs(found.get(kind, 0) - wanted * share * (1 - adversarial)) < 1
    assert abs(found.get(Difficulty.ADVERSARIAL, 0) - wanted * adversarial) < 1


def test_ten_are_of_every_kind_and_none_tempts_unless_asked_for() -> None:
    assert set(difficulty_counts(10)) == set(SHARES)
    assert difficulty_counts(10, 0.2)[Difficulty.ADVERSARIAL] == 2
