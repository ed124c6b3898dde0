"""What there is of each part of a campaign's tasks, and `hone scenarios check`, which tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from proxy.cli import cli
from trainer.tasks.parts import DuplicateScenarios, PartCounts, count_parts, find_duplicates
from trainer.tasks.scenarios import Scenario


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines: list[dict[str, Any]] = [{"id": f"t{n}", "input": f"order {n}"} for n in range(40)]
    lines[0] |= {"adversarial": True, "reference": "no"}
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def hone(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["scenarios", *arguments])


def test_each_part_is_counted_and_what_asks_the_same_is_named() -> None:
    train = [Scenario("a", "X", 0, place="f, line 1"), Scenario("b", " x", None, ["polite"], True, "f, line 2")]
    parts = {"train": train, "val": [Scenario("c", 2)]}
    assert count_parts(parts) == [PartCounts("train", 2, 1, 1, 1), PartCounts("val", 1, 0, 0, 0)]
    assert find_duplicates(parts) == [DuplicateScenarios("train", ["a", "b"], ["f, line 1", "f, line 2"])]


def test_a_file_is_told_part_by_part() -> None:
    told = json.loads(hone("check", "all.jsonl", "--split", "0.5,0.25,0.25", "--json").stdout)
    assert [part["name"] for part in told["parts"]] == ["train", "val", "test"]
    assert sum(part["scenarios"] for part in told["parts"]) == 40
    assert sum(part["adversarial"] for part in told["parts"]) == 1
    assert told["alike"] == []
    shown = hone("check", "all.jsonl").stdout.splitlines()
    assert shown[0].split()[:3] == ["part", "scenarios", "adversarial"]
    assert shown[1].split() == ["train", "40", "1", "1", "0"]


def test_without_a_subcommand_the_settings_own_lists_are_told(folder: Path) -> None:
    nothing = hone()
    assert nothing.exit_code == 2
    assert "name a file (`hone scenarios check FILE`)" in nothing.output
    (folder / "hone.toml").write_text('[campaign]\nscenarios = "all.jsonl"\nsplit = [0.8, 0.2]\n')
    told = json.loads(hone("--json").stdout)
    assert [part["name"] for part in told["parts"]] == ["train", "val"]
    assert told["split"] == [0.8, 0.2]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("all.jsonl", "--split", "0.5,0.4"), 2, "its shares must be above 0 and come to 1 together"),
        (("all.jsonl", "--split", "most"), 2, "'most' is not a list of shares: write them as 0.8,0.1,0.1"),
        (("nowhere.jsonl",), 2, "nowhere.jsonl cannot be read"),
        (("twice.jsonl", "--split", "0.5,0.5"), 2, ") have the same input"),
    ],
)
def test_what_is_no_list_is_told_in_words(folder: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    lines = [json.dumps({"id": f"t{n}", "input": "the same"}) for n in range(40)]
    (folder / "twice.jsonl").write_text("\n".join(lines))
    done = hone("check", *arguments)
    assert done.exit_code == code
    assert said in done.output


def test_a_section_that_contradicts_itself_is_told_by_its_file(folder: Path) -> None:
    (folder / "hone.toml").write_text('[campaign]\nsplit = [0.8, 0.2]\nval_scenarios = "all.jsonl"\n')
    done = hone()
    assert "campaign.split makes parts of one file: leave out" in done.output
    assert "Value error" not in done.output
