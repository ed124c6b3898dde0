"""The benchmark of campaigns: its clock, its comparison, and the times of its slow tools. It is not run here."""

from __future__ import annotations

import asyncio
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks import campaigns, slow_helpdesk
from benchmarks.campaigns import Case, CaseResult, EventAt, StepAt, ValidatedAt
from examples.helpdesk.demo import CONFIG
from proxy.settings.loader import load_settings
from recorder.views.campaigns.events import BEGUN, STEP, VALIDATION
from recorder.views.campaigns.lengths import AttemptLengths
from tests.recorder.report.played import step, validated


def result(case: Case, *successes: float, each_s: float = 100.0) -> CaseResult:
    """A case with a validation after so many steps each."""
    every = campaigns.VAL_EVERY
    validations = [ValidatedAt(at * every, at * each_s, success, 200) for at, success in enumerate(successes)]
    steps = [StepAt(at, at * each_s / every, 0.5, 64, None, {}) for at in range(1, every * (len(successes) - 1) + 1)]
    return CaseResult(case, validations, steps, {"over_age": 3}, AttemptLengths(2.0, 10, 5, 8, 3))


def test_every_case_that_is_asked_for_is_there_and_differs_in_what_it_says() -> None:
    kinds = [(case.lag, case.choosing) for case in campaigns.CASES]
    assert {kind: kinds.count(kind) for kind in kinds} == {(0, False): 3, (1, True): 3, (1, False): 1, (0, True): 1}
    assert len({case.name for case in campaigns.CASES}) == 8
    assert Case(1, True, 7).name == "lag1-choosing-7"
    assert Case(1, False, 7).environment["HONE_CAMPAIGN__MAX_LAG"] == "1"
    assert Case(0, True, 7).environment.items() >= campaigns.CHOOSING[True].items()
    assert not Case(0, False, 7).environment.keys() & campaigns.CHOOSING[True].keys()


def test_hone_takes_the_settings_of_a_case(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in Case(1, False, 11).environment.items():
        monkeypatch.setenv(name, value)
    found = load_settings(CONFIG, {}).settings.campaign
    assert (found.max_lag, found.seed, found.steps, found.val_every) == (1, 11, campaigns.STEPS, campaigns.VAL_EVERY)
    assert found.health["converged"].then == "off"


def test_the_clock_stands_still_during_validations() -> None:
    events = [
        EventAt(1000.0, BEGUN, None),
        EventAt(1030.0, VALIDATION, validated(0, 0.25, seconds=20.0)),
        EventAt(1080.0, STEP, step(1, metrics={"stale_groups": 0.5})),
        EventAt(1140.0, STEP, step(2)),
        EventAt(1190.0, VALIDATION, validated(2, 0.5, seconds=40.0)),
        EventAt(1250.0, STEP, step(3)),
    ]
    steps, validations = campaigns.read_clock(events)
    assert [(one.step, one.seconds) for one in steps] == [(1, 60.0), (2, 120.0), (3, 190.0)]
    assert [(one.step, one.seconds, one.success) for one in validations] == [(0, 10.0, 0.25), (2, 130.0, 0.5)]
    assert [one.stale_groups for one in steps] == [0.5, None, None]


def test_cases_are_compared_seed_by_seed() -> None:
    slow = [result(Case(0, False, seed), 0.2, 0.5, 0.9, 0.96) for seed in (7, 11, 23)]
    soon = [result(Case(1, True, seed), 0.2, 0.7, 0.97, 0.95, each_s=75.0) for seed in (7, 11)]
    found = campaigns.compare([*slow, *soon], (0, False), (1, True))
    assert found["seeds"] == [7, 11]
    assert found["reached"] == [2, 2]
    assert found["sooner"] == pytest.approx(300 / 150)
    assert found["final"] == pytest.approx(-0.01)
    every = campaigns.VAL_EVERY
    lost = {str(at * every): pytest.approx(gap) for at, gap in enumerate((0.0, 0.2, 0.07, -0.01))}
    assert found["at_the_same_step"] == lost
    assert found["seconds"] == [pytest.approx(300.0), pytest.approx(225.0)]


def test_a_case_that_never_gets_there_has_no_ratio_and_is_counted() -> None:
    never, soon = result(Case(0, False, 7), 0.2, 0.3), result(Case(1, True, 7), 0.2, 0.96)
    found = campaigns.compare([never, soon], (0, False), (1, True))
    assert (found["reached"], found["sooner"]) == ([0, 1], None)
    nothing = campaigns.compare([never], (0, False), (1, True))
    assert (nothing["seeds"], nothing["sooner"], nothing["final"], nothing["seconds"]) == ([], None, None, None)


def test_results_are_kept_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = result(campaigns.CASES[0], 0.2, 0.96)
    path = campaigns.result_path(tmp_path, one.case)
    path.write_text(json.dumps(campaigns.encode_result(one)))
    assert campaigns.load_results(tmp_path) == [one]
    told = campaigns.summarize([one])
    assert json.loads(json.dumps(told))["cases"][0]["seconds_to_success"] == 100.0
    bare = replace(one, lengths=None)
    assert campaigns.decode_result(json.loads(json.dumps(campaigns.encode_result(bare)))) == bare
    campaigns.main(["--list"])
    assert capsys.readouterr().out.split() == [case.name for case in campaigns.CASES]
    campaigns.main(["--only", one.case.name, "--data", str(tmp_path)])  # it is there: nothing is run
    with pytest.raises(SystemExit):
        campaigns.main(["--only", "lag9-uniform-7"])


def test_tools_take_half_a_second_to_twenty_with_a_long_tail() -> None:
    times = [slow_helpdesk.tool_seconds(f"order {number}") for number in range(4000)]
    assert min(times) >= 0.5
    assert max(times) <= 20
    assert statistics.median(times) == pytest.approx(0.98, rel=0.1)
    assert statistics.fmean(times) == pytest.approx(1.9, rel=0.1)
    assert sum(one > 6.9 for one in times) / len(times) == pytest.approx(0.05, abs=0.015)
    assert slow_helpdesk.tool_seconds("order 1") == slow_helpdesk.tool_seconds("order 1")


def test_only_calls_of_tools_take_time() -> None:
    def call(method: str, order: str) -> bytes:
        return json.dumps({"method": method, "params": {"arguments": {"order_id": order}}}).encode()

    assert slow_helpdesk.call_seconds(call("tools/list", "1")) == 0
    assert slow_helpdesk.call_seconds(b"no json") == slow_helpdesk.call_seconds(b"[]") == 0
    assert slow_helpdesk.call_seconds(call("tools/call", "1")) >= 0.5
    assert slow_helpdesk.call_seconds(call("tools/call", "1")) != slow_helpdesk.call_seconds(call("tools/call", "2"))


async def test_a_slow_call_is_answered_as_a_fast_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def echo(request: Request) -> JSONResponse:
        return JSONResponse(await request.json())

    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    app: Any = slow_helpdesk.SlowCalls(Starlette(routes=[Route("/mcp", echo, methods=["POST", "GET"])]))
    body = {"method": "tools/call", "params": {"arguments": {"order_id": "4821"}}}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tools") as http:
        assert (await http.post("/mcp", json=body)).json() == body
    assert [one for one in slept if one] == [
        slow_helpdesk.call_seconds(json.dumps(body, separators=(",", ":")).encode())
    ]
