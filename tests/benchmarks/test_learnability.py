"""The simulated campaigns of `choose` and `refill`: the page shows the committed figures, and the program runs."""

from __future__ import annotations

import json

import pytest

from benchmarks import learnability
from trainer.tasks import chances


def test_the_page_shows_the_committed_figures() -> None:
    page = learnability.PAGE.read_text("utf-8")
    kept = json.loads(learnability.RESULTS.read_text("utf-8"))
    assert learnability.MARKS.put(page, learnability.page_table(kept)) == page


def test_the_committed_figures_are_of_the_constants_of_today_which_waste_least() -> None:
    kept = json.loads(learnability.RESULTS.read_text("utf-8"))
    today = (chances.HALF_LIFE, chances.SHARPNESS)
    assert {(one["half_life"], one["sharpness"]) for one in kept["ways"]} == {today}
    by_constants = {(one["half_life"], one["sharpness"]): one["wasted"] for one in kept["constants"]}
    assert by_constants[today] <= min(by_constants.values()) + 0.02
    for uniform, chosen in zip(kept["ways"][::2], kept["ways"][1::2], strict=True):
        assert (uniform["choose"], chosen["choose"]) == ("uniform", "learnability")
        assert chosen["per_100_attempts"] > uniform["per_100_attempts"]


@pytest.mark.slow
def test_the_program_runs_at_a_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnability, "SHAPES", (learnability.Shape(12, 3),))
    monkeypatch.setattr(learnability, "OF_CONSTANTS", learnability.Shape(12, 2))
    figures = learnability.measure(1)
    assert len(figures["ways"]) == len(learnability.WAYS)
    assert figures["ways"][0]["attempts"] == 3 * 64
    assert learnability.page_table(figures).count("\n") > len(figures["ways"])
