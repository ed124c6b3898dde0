"""Which version did best, by what its newest validation says."""

from __future__ import annotations

from trainer.campaign.serving import by_worth
from trainer.measuring.yardstick import Yardstick
from trainer.progress import Validated


def validated(step: int, success: float | None, *, wins: float | None = None, version: str | None = None) -> Validated:
    return Validated(step, version or f"helpdesk@{step}", success, None, 20, 0, 1.0, win_rate=wins)


def test_the_best_comes_first_and_of_equals_the_newest() -> None:
    seen = [validated(0, 0.2), validated(1, 0.8), validated(2, 0.8), validated(3, 0.5)]
    assert [name for name, _ in by_worth(seen, Yardstick.SUCCESS)] == [f"helpdesk@{n}" for n in (2, 1, 3, 0)]


def test_a_versions_newest_measure_counts_and_only_by_the_yardstick() -> None:
    seen = [validated(0, 0.9), validated(5, 0.1, version="helpdesk@0"), validated(6, None, wins=0.7)]
    assert by_worth(seen, Yardstick.SUCCESS) == [("helpdesk@0", 0.1)]
    assert by_worth(seen, Yardstick.WINS) == [("helpdesk@6", 0.7)]
    assert by_worth(seen, Yardstick.NOTHING) == []
