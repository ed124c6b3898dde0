"""How an evaluation reads: its table, its JSON and its picture; hostile names are text."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from recorder.base.terminal import to_json
from recorder.queue.training.budgets import CampaignJudgingCost
from recorder.stats.charts import draw_svg
from recorder.stats.means import Interval
from recorder.stats.significance_tests import PairedEstimate
from trainer.evaluation.display import evaluation_chart, evaluation_json, show_evaluation
from trainer.evaluation.figures import REWARD, SUCCESS, WIN_RATE, AttemptUsage, VersionFigures
from trainer.evaluation.runner import EvaluationResult

EVIL = "\x1b]0;owned\x07\u202e<script>alert(1)</script>[bold]"


def estimate(value: float, low: float, high: float) -> PairedEstimate:
    return PairedEstimate(value, Interval(low, high), 20)


def evaluated(
    *versions: VersionFigures,
    judging: CampaignJudgingCost | None = None,
    adversarial_scenarios: int = 0,
    unscored: int = 0,
    error: str | None = None,
) -> EvaluationResult:
    failed = {"agent_error": 2} if error else {}
    return EvaluationResult(
        "camp_1", "helpdesk", 20, adversarial_scenarios, 4, 2, versions, 40, unscored, judging, 12.5, failed, error
    )


LIVE = VersionFigures(
    "live", "helpdesk@3", 160, 2, {SUCCESS: estimate(0.75, 0.6, 0.9)}, usage=AttemptUsage(1200, 80.4, None, 3.25)
)
BASE = VersionFigures(
    "base", "helpdesk@0", 160, 0, {SUCCESS: estimate(0.5, 0.35, 0.65)}, {SUCCESS: estimate(-0.25, -0.4, -0.1)},
    usage=AttemptUsage(1100, 90.0, 0.00021, 3.0),
)  # fmt: skip


def printed(found: EvaluationResult, capsys: pytest.CaptureFixture[str]) -> str:
    show_evaluation(found)
    return capsys.readouterr().out


def test_the_table_tells_measures_differences_and_what_they_mean(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(evaluated(LIVE, BASE), capsys)
    first, second = (next(line for line in text.splitlines() if line.startswith(name)) for name in ("live", "base"))
    assert first.split() == ["live", "helpdesk@3", "75.0", "%", "(60.0", "to", "90.0)", "–"]
    assert "50.0 % (35.0 to 65.0)" in second
    assert "-25.0 points (-40.0 to -10.0)" in second
    assert second.rstrip().endswith("worse")
    assert "difference from live" in text
    assert "1,200" in text
    assert "0.00021" in text
    assert "20 scenarios, 4 attempts of each version at each, for each of 2 seeds." in text


def test_what_does_not_count_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    wins = VersionFigures(
        "base", "helpdesk@0", 4, 0, {WIN_RATE: estimate(0.5, 0.3, 0.7)}, {WIN_RATE: estimate(0, -0.4, 0.4)},
        {WIN_RATE: estimate(1, 0.5, 1)},
    )  # fmt: skip
    judged = CampaignJudgingCost(38, 38, 10_000, 0, 500, 0.25, 0, 0)
    text = printed(
        evaluated(
            VersionFigures("live", "helpdesk@3", 4, 0), wins, judging=judged, adversarial_scenarios=3, unscored=2
        ),
        capsys,
    )
    assert "no significant difference" in text
    assert "2 of 40 groups have no score" in text
    assert "3 adversarial scenarios are excluded from these figures: live –; base wins 1." in text
    assert "Judging: 38 groups, 10,000 tokens in, 500 out, 0.2500 USD." in text
    assert "Wins are against live" in text


def test_one_version_alone_differs_from_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(
        evaluated(VersionFigures("base", "helpdesk@0", 4, 0, {REWARD: PairedEstimate(0.5, None, 1)})), capsys
    )
    assert "more than" not in text
    assert "0.500" in text


def test_json_has_all_of_it() -> None:
    told = json.loads(
        to_json(evaluation_json(evaluated(LIVE, BASE, judging=CampaignJudgingCost(1, 1, 2, 0, 3, 0.5, 0, 0))))
    )
    assert told["against"] == "live"
    live, base = told["versions"]
    assert live["measures"]["success"] == {"value": 0.75, "interval": {"low": 0.6, "high": 0.9}, "scenarios": 20}
    assert (live["differences"], base["differences"]["success"]["value"]) == ({}, -0.25)
    assert base["usage"] == {"tokens_in": 1100, "tokens_out": 90.0, "usd": 0.00021, "seconds": 3.0}
    assert told["judging"]["usd"] == 0.5


@pytest.mark.slow  # draws
def test_the_picture_has_each_version() -> None:
    found = evaluation_chart(evaluated(LIVE, BASE))
    assert (found.places, found.series[0].values, found.share) == (("live", "base"), (0.75, 0.5), True)
    ElementTree.fromstring(draw_svg(found))


def test_hostile_names_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(
        evaluated(VersionFigures(EVIL, EVIL, 1, 0, {SUCCESS: PairedEstimate(1, None, 1)}), error=EVIL), capsys
    )
    assert "2 attempts failed (agent_error 2). The first: " in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]" in text
