"""What the examples share in running: the summary out of a report, its picture and tables, and the real commands."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from examples.running import picture, seeds, table
from examples.running.campaign import CampaignFailed, Project
from examples.running.command import SEEDS, ExampleRun, settings, told
from examples.running.programs import ROOT, new_run
from examples.running.summary import missing, rose, summarize
from recorder.queue.training.budgets import CampaignJudgingCost
from recorder.report.shapes import AlarmEvidence, MeasuredPoint
from recorder.stats.means import share_interval
from recorder.views.campaigns.events import Alarm, StepDone

CONFIG = ROOT / "examples" / "inbox" / "hone.toml"


def point(step: int, version: str, value: float | None, attempts: int = 200, errored: int = 0) -> dict[str, Any]:
    return {"step": step, "version": version, "value": value, "attempts": attempts, "errored": errored}


def report(before: float | None = 0.3, after: float | None = 0.9, **others: Any) -> dict[str, Any]:
    made = {
        "tests": [point(20, "inbox@9", after), point(20, "base", before), point(20, "scripted-frontier", 1.0)],
        "validations": [point(0, "inbox@0", 0.31), point(20, "inbox@9", 0.91)],
        "baselines": [point(0, "scripted-frontier", 1.0)],
        "served": "inbox@9",
        "judged": {"judgings": 150, "requests": 900, "tokens_in": 10, "tokens_out": 5, "in_vain": 0},
        "attempts": 1280,
        "errored": 0,
        "failed_steps": 0,
        "steps": [
            {"step": 1, "success": 0.25, "reward": 0.33333, "trained": 60},
            {"step": 2, "success": None, "reward": 0.5},
        ],
        "alarms": [{"alarm": {"step": 2, "rule": "tool_drift", "detail": "more calls", "then": "note"}}],
        "status": {"code": "finished", "text": "20 steps are done"},
        "trained": 900,
        "excluded": [{"code": "zero_variance", "trajectories": 380, "meaning": "all did equally well"}],
    }
    return {**made, **others}


def summary(short: bool = False, **changes: Any) -> dict[str, Any]:
    return summarize(report(**changes), example="inbox", seed=7, short=short, measured="exact answers", seconds=100.04)


def test_a_summary_says_before_and_after_by_the_test_part_with_wilson_s_intervals() -> None:
    told_ = summary()
    sure = share_interval(0.9, 200)
    assert sure is not None
    assert told_["after"] == {"success": 0.9, "attempts": 200, "low": round(sure.low, 4), "high": round(sure.high, 4)}
    assert told_["before"]["success"] == 0.3
    assert list(told_["baselines"]) == ["scripted-frontier"]
    assert told_["judge"] == {"requests": 900, "groups": 150, "in_vain": 0, "tokens": 15}
    assert told_["steps"][0] == {"step": 1, "success": 0.25, "reward": 0.3333}
    assert told_["alarms"] == [{"step": 2, "rule": "tool_drift", "words": "more calls", "then": "note"}]
    assert told_["left_out"] == {"zero_variance": 380}
    assert told_["faults"] == []
    assert json.loads(json.dumps(told_)) == told_


def test_judgings_by_functions_alone_are_no_requests_to_a_judge() -> None:
    said: dict[str, Any] = {"example": "x", "seed": 7, "short": False, "measured": "", "seconds": 1.0}
    assert summarize(report(), **said)["judge"]["requests"] == 900  # also of a judge that tells no tokens
    judge = summarize(report(), **said, judged=False)["judge"]
    assert (judge["requests"], judge["groups"]) == (0, 0)


def test_what_a_summary_reads_is_what_a_report_has() -> None:
    assert {"step", "version", "value", "attempts", "errored"} <= set(MeasuredPoint.__dataclass_fields__)
    assert {"step", "success", "reward"} <= set(StepDone.__dataclass_fields__)
    assert {"step", "rule", "detail", "then"} <= set(Alarm.__dataclass_fields__)
    assert "alarm" in AlarmEvidence.__dataclass_fields__
    assert {"judgings", "requests", "in_vain", "tokens_in", "tokens_out"} <= set(
        CampaignJudgingCost.__dataclass_fields__
    )


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"errored": 3}, "3 attempts of steps raised"),
        ({"failed_steps": 1}, "1 steps failed"),
        ({"baselines": [point(0, "x", 1.0, errored=2)]}, "2 attempts of measurements raised"),
        (
            {"judged": {"judgings": 1, "requests": 1, "tokens_in": 0, "tokens_out": 0, "in_vain": 4}},
            "4 requests to the judge",
        ),
    ],
)
def test_what_went_wrong_is_a_fault(changes: dict[str, Any], word: str) -> None:
    [fault] = summary(**changes)["faults"]
    assert word in fault
    assert fault in missing(summary(**changes))


def test_a_rise_is_one_whose_intervals_do_not_overlap() -> None:
    assert rose(summary())
    assert not rose(summary(after=0.38))
    assert rose(summary(after=0.38, short=True))
    assert not rose(summary(after=0.3, short=True))
    assert not rose(summary(before=None))
    assert not rose(summary(after=None))
    assert missing(summary(after=0.3))[0].startswith("no certain rise")
    assert missing(summary()) == []


def test_the_exit_status_tells_of_a_fault_and_of_no_rise(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert told(summary(), tmp_path) == 0
    assert "30.0% of 200" in capsys.readouterr().out
    assert told(summary(after=0.3), tmp_path) == 1
    assert told(summary(errored=1), tmp_path) == 1
    assert "attempts of steps raised" in capsys.readouterr().err


def test_the_same_summary_gives_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        picture.write(summary(), tmp_path / name)
    picture.write(summary(after=0.5), tmp_path / "c.svg")
    picture.write(summary(before=None, after=None, validations=[], alarms=[], steps=[]), tmp_path / "d.svg")
    a, b, c = ((tmp_path / f"{name}.svg").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_a_picture_says_what_a_validation_measures_and_names_each_alarm() -> None:
    def words(told_: dict[str, Any]) -> set[str]:
        figure = picture.draw(told_)
        legend = {text.get_text() for one in figure.legends for text in one.get_texts()}
        return legend | {text.get_text() for axes in figure.axes for text in axes.texts}

    own = words(summary())
    assert {"validation, 95 % interval", "held out, 95 % interval", "alarm", "tool_drift"} <= own
    wins = words(summary() | {"wins": {}})  # success is a check beside a campaign that knew of wins alone
    assert wins - own == {"validation: win rate against version 0, 95 % interval"}
    assert "alarm" not in words(summary(alarms=[]))


@pytest.mark.slow  # draws
@pytest.mark.parametrize("name", seeds.named())
def test_the_committed_pictures_are_drawn_of_the_committed_summaries(name: str, tmp_path: Path) -> None:
    folder = table.EXAMPLES / name
    picture.write(json.loads((folder / "measured" / f"{SEEDS[0]}.json").read_text()), tmp_path / "drawn.svg")
    assert (tmp_path / "drawn.svg").read_bytes() == (folder / "curve.svg").read_bytes()


def test_a_table_has_a_row_a_run() -> None:
    other = copy.deepcopy(summary()) | {"seed": 11}
    made = table.table([summary(), other])
    assert len(made.splitlines()) == 4
    assert "30.0% (24.1%–36.7%) → 90.0%" in made
    assert "`inbox`" in table.table_of_all({"inbox": [summary()]})
    assert "| 900 |" in made
    uncounted = summary() | {"judge": {"requests": None, "groups": 150}}
    assert "| 150 groups |" in table.table([uncounted])


def test_the_committed_tables_are_made_of_the_committed_summaries() -> None:
    for page, text in table.pages().items():
        assert page.read_text() == text, f"{page}: run python -m examples.running.table --write"


def test_every_committed_run_shows_what_its_example_claims() -> None:
    for name, summaries in table.all_measured().items():
        for one in summaries:
            assert missing(one) == [], (name, one["seed"])
            assert not one["short"]
            assert one["before"]["attempts"] >= 200 <= one["after"]["attempts"]


@pytest.mark.parametrize("name", ["inbox", "mcp_rl", "rlvr"])
def test_a_committed_rise_is_sure_even_if_two_attempts_at_one_thing_were_always_alike(name: str) -> None:
    """The intervals take attempts for independent ones: these have two a task, or two tasks about one thread."""
    for one in table.measured(table.EXAMPLES / name):
        before, after = (share_interval(at["success"], at["attempts"] // 2) for at in (one["before"], one["after"]))
        assert before is not None
        assert after is not None
        assert before.high < after.low, one["seed"]


def test_every_interval_of_a_committed_run_is_its_share_s() -> None:
    for name, summaries in table.all_measured().items():
        for one in summaries:
            points = [one["before"], one["after"], *one["baselines"].values(), *one["validations"]]
            for point_ in [*points, *one.get("wins", {}).values()]:
                sure = share_interval(point_["success"], point_["attempts"])
                assert sure is not None
                found = (point_["low"], point_["high"])
                assert found == pytest.approx((sure.low, sure.high), abs=1.5e-4), (name, one["seed"])


def test_what_is_kept_of_a_run_is_its_summary_and_the_first_seed_s_picture(tmp_path: Path) -> None:
    out, folder = tmp_path / "out", tmp_path / "example"
    out.mkdir()
    folder.mkdir()
    (out / "summary.json").write_text("{}")
    (out / "curve.svg").write_text("<svg/>")
    for seed in SEEDS:
        seeds.keep(out, folder, seed)
    assert sorted(path.name for path in (folder / "measured").iterdir()) == ["11.json", "23.json", "7.json"]
    assert (folder / "curve.svg").exists()


def test_examples_with_a_run_are_found() -> None:
    assert "inbox" in seeds.named()
    assert "helpdesk" not in seeds.named()


def test_every_run_has_a_folder_and_ports_of_its_own(tmp_path: Path) -> None:
    first = new_run(tmp_path)
    assert new_run(tmp_path) != first
    given = settings(ExampleRun(first, 11, short=False))
    assert given["HONE_CAMPAIGN__SEED"] == given["HONE_TRAINER__SEED"] == "11"
    assert given["HONE_PROXY__PORT"] != given["HONE_ENGINE__PORT"]


@pytest.mark.slow
def test_a_command_that_fails_says_what_and_where_its_logs_lie(tmp_path: Path) -> None:
    project = Project(CONFIG, tmp_path, {"HONE_CAMPAIGN__STEPS": "none"})
    with pytest.raises(CampaignFailed, match=r"exit status 2; its logs are in"):
        project.train()
    with pytest.raises(CampaignFailed, match=r"hone report: exit status"):
        project.report()
    assert sys.executable in project._command("report")
