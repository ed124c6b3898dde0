"""The benchmark of the proxy runs, measures every format that Hone serves, and checks that all was recorded."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks import proxy
from benchmarks.formats import formats, upstream_answers
from proxy.dialects import DIALECTS


def test_every_format_that_is_served_has_a_request_of_its_own() -> None:
    served = [one for one in formats() if one.path in DIALECTS]
    assert {one.path for one in served} == DIALECTS.keys()
    for one in formats():
        assert orjson.loads(one.request(stream=True))["stream"] is True
        assert "stream" not in orjson.loads(one.request(stream=False))
        assert orjson.loads(upstream_answers()[one.path].plain)["model"] == "bench"


def test_the_spread_is_the_median_and_what_it_lies_between() -> None:
    assert proxy.spread([3.0, 1.0, 2.0]) == {"median": 2.0, "least": 1.0, "most": 3.0}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_short_run_gives_figures_for_every_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: int
) -> None:
    kinds = proxy.cases([one for one in formats() if one.path in DIALECTS], connections=2)
    with proxy.subjects_running(tmp_path, with_rivals=False, workers=workers) as subjects:
        assert len(subjects[1].processes) == workers
        samples = proxy.run_rounds(subjects, kinds, rounds=1, seconds=0.1)
    rows = proxy.table(samples)
    assert [row["served"] for row in rows] == [True] * 2 * len(kinds)
    assert {row["case"] for row in rows if "first_event_ms" in row} == {
        k.name for k in kinds if "stream" in k.name or "events" in k.name
    }
    assert proxy.require_recorded(tmp_path / "data")["recorded_calls"] > 0
    proxy.show(rows)
    assert "upstream alone" in capsys.readouterr().out
    assert proxy.bars(rows).keys() == {f"times {proxy.ALONE}"}
