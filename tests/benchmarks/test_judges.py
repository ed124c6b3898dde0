"""The simulated judges: more of them rank better, repeats even out a love of places, the page shows these figures."""

from __future__ import annotations

import json
from typing import cast

import pytest

from benchmarks import judges

pytestmark = pytest.mark.slow


def committed() -> judges.Figures:
    return cast(judges.Figures, json.loads(judges.RESULTS.read_text("utf-8")))


def test_three_judges_of_70_percent_rank_better_than_one() -> None:
    alone, three = judges.panels()[:2]
    assert (alone["judges"], three["judges"], three["combine"]) == (1, 3, "mean")
    assert alone["tau"]["mean"] == pytest.approx(
        2 * judges.ACCURACY - 1, abs=0.04
    )  # at tau 0.4 70 % of pairs are right
    assert three["difference"]["low"] > 0
    assert alone["difference"] == {"mean": 0, "low": 0, "high": 0}


def test_repeats_even_out_a_love_of_places_as_large_as_the_spread() -> None:
    found = {one["repeats"]: one["tau"] for one in judges.places()}
    assert found[1]["mean"] == pytest.approx(0.5, abs=0.05)
    assert found[8]["mean"] >= 0.95
    assert found[1]["mean"] < found[2]["mean"] < found[4]["mean"] <= found[8]["mean"]


def test_the_committed_figures_are_those_of_this_code_and_on_the_page() -> None:
    kept = committed()
    assert (kept["groups"], kept["runs"]) == (500, 8)
    again = judges.measure()
    assert [one["tau"] for one in again["panels"]] == [one["tau"] for one in kept["panels"]]
    assert again["places"] == kept["places"]
    page = judges.PAGE.read_text("utf-8")
    assert judges.MARKS.put(page, judges.tables(kept)) == page
