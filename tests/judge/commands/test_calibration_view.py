"""`hone calibrate` at the terminal: its labels, its table, its JSON, its picture."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from judge.calibration.comparison import CalibrationResult, GroupProgress, JudgeChoice, JudgeResult
from judge.calibration.figures import FIGURES, Figure
from judge.calibration.judged_groups import JudgedGroup
from judge.commands import calibrate as commands
from judge.commands.calibration_view import calibration_chart, calibration_json, show, watch_progress
from judge.errors import JudgeUsage, LabelsInvalid
from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from recorder.queue import feedback
from recorder.queue.judging.calibrations import load_agreements
from recorder.settings import RecorderSettings
from recorder.stats.means import Interval
from recorder.store.database import Project, Store
from tests.judge.conftest import context_of
from tests.judge.judge_server import JudgeServer
from tests.judge.recorded import PROJECT, Recorded

EVIL = "\x1b]0;owned\x07\u202e[bold]"
slow = pytest.mark.slow  # a server


@pytest.fixture
def calibrate(
    settings: Callable[..., JudgeSettings], tmp_path: Path, recording: RecorderSettings
) -> Callable[..., Any]:
    """Run `hone calibrate` in a thread of its own, as it starts an event loop."""

    async def run(*args: str, as_json: bool = False, **more: Any) -> Result:
        given = HoneSettings(data=tmp_path / "data", judge=settings(**more), recorder=recording)
        context = context_of(given, as_json=as_json)
        return await asyncio.to_thread(CliRunner().invoke, commands.calibrate, args, obj=context)

    return run


@slow
async def test_a_file_of_labels_is_held_against_a_judge(
    store: Store, recorded: Recorded, calibrate: Any, tmp_path: Path
) -> None:
    for name in ("g", "h"):
        await recorded.group(name, ["worth 0.2", "worth 0.9"])
    path, picture = tmp_path / "labels.jsonl", tmp_path / "judges.svg"
    path.write_text(
        "".join(f'{{"group": "{g}", "pair": ["0", "1"], "winner": "{w}"}}\n' for g, w in (("g", 1), ("h", 0)))
    )
    result = await calibrate(str(path), "--picture", str(picture), as_json=True)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["groups"], told["taken"], told["more_pairs"]) == (2, None, 28)
    assert told["judges"][0]["figures"]["accuracy"]["value"] == 0.5
    assert ElementTree.fromstring(picture.read_text("utf-8")).tag.endswith("svg")


@slow
async def test_what_it_measured_is_stored_for_steps(
    store: Store, recorded: Recorded, calibrate: Any, tmp_path: Path
) -> None:
    names = [f"g{number}" for number in range(10)]  # 30 pairs
    for name in names:
        await recorded.group(name, ["worth 0.2", "worth 0.5", "worth 0.9"])
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(f'{{"group": "{name}", "scores": {{"0": 0, "1": 1, "2": 2}}}}\n' for name in names))
    result = await calibrate(str(path), as_json=True)
    assert result.exit_code == 0, result.output
    (stored,) = json.loads(result.stdout)["judges"][0]["stored"]
    assert (stored["judge"], stored["agreement"], stored["pairs"]) == ("default", 1.0, 30)
    found = await load_agreements(Project(store, PROJECT), [stored["judge_hash"]])
    assert asdict(found[stored["judge_hash"]]) == stored
    assert "default orders 100 % of 30 pairs as people do" in " ".join((await calibrate(str(path))).stdout.split())


@slow
async def test_it_says_how_far_each_judge_is(
    store: Store, recorded: Recorded, calibrate: Any, server: JudgeServer, tmp_path: Path
) -> None:
    for name in ("g", "h"):
        await recorded.group(name, ["worth 0.2", "worth 0.9"])
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(f'{{"group": "{g}", "pair": ["0", "1"], "winner": "1"}}\n' for g in "gh"))
    result = await calibrate(str(path), "--judges", "default,openai/other", as_json=True)
    assert result.exit_code == 0, result.output
    told = [line for line in result.stderr.splitlines() if "groups" in line]
    assert told == [f"{name}: {done} of 2 groups" for name in ("default", "openai/other") for done in (1, 2)]
    assert json.loads(result.stdout)["groups"] == 2


@slow
async def test_what_people_preferred_and_said_are_labels_without_a_file(
    store: Store, recorded: Recorded, calibrate: Any, server: JudgeServer
) -> None:
    assert "there are no labels" in (await calibrate()).stderr
    group_id, (worse, better) = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    await feedback.write_preferences(Project(store, PROJECT), group_id, [(better, worse)], by="ada")
    result = await calibrate()
    assert result.exit_code == 0, result.output
    assert "about 29 more pairs" in result.stdout
    for run, stars in ((worse, 1), (better, 5)):
        await feedback.add_feedback(Project(store, PROJECT), run, "stars", stars)
    assert "about 28 more pairs" in (await calibrate("--feedback", "stars")).stdout
    assert len(server.requests) == 2  # one group each time


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("labels.jsonl", "--feedback", "stars"), "name one of them"),
        (("--judges", " , "), "--judges names no judge"),
        (("--picture", "no/such/folder/x.svg"), "its folder does not exist"),
    ],
)
async def test_a_wrong_argument_is_told(args: tuple[str, ...], why: str, calibrate: Any) -> None:
    result = await calibrate(*args)
    assert result.exit_code == 2
    assert why in result.stderr


async def test_a_file_that_is_not_there_is_named(calibrate: Any, tmp_path: Path) -> None:
    result = await calibrate(str(tmp_path / "none.jsonl"))
    assert isinstance(result.exception, LabelsInvalid)


def test_a_group_that_was_not_judged_is_counted_and_a_hostile_name_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    with watch_progress() as tell:
        for name in ("default", EVIL):
            tell(GroupProgress(name, 2, JudgedGroup("g")))
            tell(GroupProgress(name, 2, JudgedGroup("h", why="it did not answer")))
    first, second, *evil = capsys.readouterr().err.splitlines()
    assert (first, second) == ("default: 1 of 2 groups", "default: 2 of 2 groups, 1 not judged")
    assert len(evil) == 2
    assert all(line.isprintable() for line in evil)


def found(choice: JudgeChoice) -> CalibrationResult:
    known = {name: Figure(0.8, Interval(0.7, 0.9)) for name in FIGURES} | {"position_bias": Figure(None, None)}
    good = JudgeResult("good", "openai/good", 120, 40, known, {EVIL: EVIL}, JudgeUsage(4000, 0, 800, 0.4), 1.25)
    return CalibrationResult([good, JudgeResult(EVIL, EVIL, 0, 0, known, {}, JudgeUsage(), 0.0)], choice, 0.05)


def test_it_says_which_judge_to_take_or_how_many_labels_lack(capsys: pytest.CaptureFixture[str]) -> None:
    show(found(JudgeChoice("dear", "good")))
    said = capsys.readouterr().out
    assert "good is the cheapest judge that is significantly within 5 points of the best (dear)." in said
    assert "0.80 (0.70 to 0.90)" in said
    assert "0.01000" in said
    show(found(JudgeChoice("dear", None, 1234)))
    assert "about 1,234 more pairs are needed" in capsys.readouterr().out


def test_what_judges_say_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(found(JudgeChoice(None, None, 1)))
    said = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in said)
    assert "good could not judge 1 groups" in said
    assert calibration_json(found(JudgeChoice(None, None, 1)))["judges"][0]["unjudged"] == {EVIL: EVIL}


def test_the_picture_has_a_row_for_each_judge() -> None:
    made = calibration_chart(found(JudgeChoice("good", "good")))
    assert made.places == ("good", EVIL)
    assert made.series[0].low == (0.7, 0.7)
