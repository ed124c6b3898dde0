"""The simulated judges that agree or drift: noise calls nobody, a fall is found, the page shows these figures."""

from __future__ import annotations

import json
import statistics
from typing import cast

import pytest

from benchmarks import drift
from recorder.queue.judging.switches import CHEAP


def committed() -> drift.Figures:
    return cast(drift.Figures, json.loads(drift.RESULTS.read_text("utf-8")))


@pytest.mark.parametrize("runs", drift.SIZES)
def test_simulated_groups_agree_as_much_as_they_are_said_to(runs: int) -> None:
    for agree in (0.0, 0.5, 0.7):
        assert statistics.fmean(drift.pool(agree, runs)) == pytest.approx(agree, abs=0.03)


def test_the_committed_figures_hold_what_the_page_says() -> None:
    kept = committed()
    good = [one for one in kept["steady"] if one["agree"] >= kept["bound"] + 0.1]
    assert good
    assert all(one["called"] <= 0.01 for one in good)
    gone = [one for one in kept["fallen"] if one["agree"] == 0]
    assert all(one["in_one"] >= 0.95 for one in gone)
    back = [one for one in kept["back"] if one["agree"] == 0.8]
    assert all(one["in_two"] >= 0.9 for one in back)
    page = drift.PAGE.read_text("utf-8")
    assert drift.MARKS.put(page, drift.tables(kept)) == page


def test_the_committed_figures_are_those_of_this_code() -> None:
    kept = committed()
    again = drift.changed(drift.GOOD, 0.0, 8, CHEAP, kept["trials"])
    assert again == next(one for one in kept["fallen"] if (one["agree"], one["runs"]) == (0, 8))
