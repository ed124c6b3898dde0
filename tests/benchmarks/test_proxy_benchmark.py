"""The benchmark of the proxy runs, measures every format that Hone serves, and checks that all was recorded."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks import load, proxy
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


def load_of(requests: int, failures: int) -> load.Load:
    return load.Load(requests, 0, 2.0, 1.0, 2.0, None, failures, "HTTP/1.1 500" if failures else "")


def test_a_rivals_failed_calls_are_counted_and_are_not_in_its_rate(capsys: pytest.CaptureFixture[str]) -> None:
    case = proxy.Case("chat", "/v1/chat/completions", b"{}", 4)
    alone = proxy.Sample(load_of(400, 0), load_of(200, 0), 1.0)
    rival = proxy.Sample(load_of(100, 3), load_of(50, 1), 1.0)
    rows = proxy.table({(case.name, proxy.ALONE): [alone], (case.name, "LiteLLM proxy"): [rival]})
    assert [row["failed_calls"] for row in rows] == [0, 4]
    assert rows[1]["requests_per_s"]["median"] == round((100 - 3) / 2.0)
    proxy.show(rows)
    assert "4 calls failed" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "requests"), [(proxy.HONE, 100), (proxy.ALONE, 100), ("LiteLLM proxy", 3)])
def test_a_failed_call_of_hone_or_all_of_a_rivals_end_the_run(
    monkeypatch: pytest.MonkeyPatch, name: str, requests: int
) -> None:
    answers = iter([load_of(1, 0), load_of(requests, 3), load_of(requests, 0)])
    monkeypatch.setattr(load, "drive", lambda *_: next(answers))
    case = proxy.Case("chat", "/v1/chat/completions", b"{}", 4)
    with pytest.raises(RuntimeError, match=f"{name} failed 3 of {requests} calls of chat: HTTP/1.1 500"):
        proxy.measure(proxy.Subject(name, 1, []), case, 2.0)


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
