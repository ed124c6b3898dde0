"""What a step draws: different scenarios, all in turn, and those that tempt to cheat in their share.

What there is of each part of a campaign's tasks, and `hone scenarios check`, which tells it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli import cli
from trainer.tasks.scenarios import Scenario
from trainer.tasks.selection import (
    DuplicateScenarios,
    PartCounts,
    count_parts,
    draw_in_passes,
    draw_scenarios,
    find_duplicates,
    most_refills,
    share_of_range,
    steps_of_a_pass,
)


@dataclass(frozen=True)
class Task:
    number: int
    adversarial: bool = False


def tasks(ordinary: int, adversarial: int) -> list[Task]:
    return [Task(n, n >= ordinary) for n in range(ordinary + adversarial)]


shares = st.integers(1, 99).map(lambda hundredths: hundredths / 100)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 60), st.integers())
def test_a_step_draws_different_scenarios_and_the_same_ones_again(n: int, per_step: int, step: int, seed: int) -> None:
    drawn = draw_in_passes(range(n), per_step, step, seed)
    assert len(set(drawn)) == len(drawn) == min(n, per_step)
    assert drawn == draw_in_passes(range(n), per_step, step, seed)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 3), st.integers())
def test_a_pass_repeats_nothing_and_leaves_out_less_than_a_step(n: int, per_step: int, pass_: int, seed: int) -> None:
    size = min(n, per_step)
    steps = range(pass_ * (n // size) + 1, (pass_ + 1) * (n // size) + 1)
    drawn: list[Any] = [x for step in steps for x in draw_in_passes(range(n), per_step, step, seed)]
    assert len(set(drawn)) == len(drawn) > n - size


def test_the_seed_changes_the_order() -> None:
    assert draw_in_passes(range(100), 10, 1, 0) != draw_in_passes(range(100), 10, 1, 1)
    assert draw_in_passes(range(100), 10, 1, 0) != draw_in_passes(range(100), 10, 2, 0)
    mixed = tasks(50, 50)
    assert draw_scenarios(mixed, 10, 1, 0, 0.5) != draw_scenarios(mixed, 10, 1, 1, 0.5)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 12), st.integers(1, 60), st.integers(), shares)
def test_a_step_of_both_kinds_draws_nothing_twice_and_the_same_again(
    ordinary: int, adversarial: int, per_step: int, step: int, seed: int, share: float
) -> None:
    there = tasks(ordinary, adversarial)
    drawn = draw_scenarios(there, per_step, step, seed, share)
    assert len(set(drawn)) == len(drawn) <= per_step
    assert set(drawn) <= set(there)
    assert bool(drawn) == bool(there)
    assert drawn == draw_scenarios(there, per_step, step, seed, share)


@given(st.integers(12, 30), st.integers(12, 30), st.integers(1, 12), st.integers(1, 30), shares)
def test_where_there_are_enough_steps_are_full_and_the_share_is_kept(
    ordinary: int, adversarial: int, per_step: int, steps: int, share: float
) -> None:
    drawn = [draw_scenarios(tasks(ordinary, adversarial), per_step, step, 7, share) for step in range(1, steps + 1)]
    assert {len(of_step) for of_step in drawn} == {per_step}
    adversarial = sum(task.adversarial for of_step in drawn for task in of_step)
    assert abs(adversarial - share * per_step * steps) < 1


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 12), st.integers(1, 30), shares)
def test_all_of_a_kind_are_drawn_in_turn(
    ordinary: int, adversarial: int, per_step: int, steps: int, share: float
) -> None:
    there = tasks(ordinary, adversarial)
    times = Counter(task for step in range(1, steps + 1) for task in draw_scenarios(there, per_step, step, 3, share))
    for kind in (False, True):
        of_kind = [times[task] for task in there if task.adversarial is kind]
        assert max(of_kind) - min(of_kind) <= 1


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 12), st.integers(1, 30), st.integers())
def test_with_no_share_or_none_of_them_the_others_are_drawn_as_ever(
    ordinary: int, adversarial: int, per_step: int, step: int, seed: int
) -> None:
    plain = tasks(ordinary, 0)
    ever = draw_in_passes(plain, per_step, step, seed)
    assert draw_scenarios(tasks(ordinary, adversarial), per_step, step, seed, 0.0) == ever
    assert draw_scenarios(plain, per_step, step, seed, 0.3) == ever


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 12), shares)
def test_in_the_steps_of_a_pass_each_ordinary_one_is_drawn_but_for_what_fills_no_step(
    ordinary: int, adversarial: int, per_step: int, share: float
) -> None:
    there = tasks(ordinary, adversarial)
    steps = steps_of_a_pass(there, per_step, share)
    drawn = Counter(task for step in range(1, steps + 1) for task in draw_scenarios(there, per_step, step, 5, share))
    left = sum(not task.adversarial and not drawn[task] for task in there)
    assert left == (0 if adversarial else ordinary % min(per_step, ordinary))


@given(st.integers(0, 100).map(lambda n: n / 100), st.integers(1, 20), st.integers(1, 60))
def test_a_share_of_all_steps_is_kept_to_less_than_one(share: float, each: int, steps: int) -> None:
    of_steps = [share_of_range(share, (step - 1) * each, step * each) for step in range(1, steps + 1)]
    assert all(0 <= count <= each for count in of_steps)
    assert 0 <= Fraction(str(share)) * each * steps - sum(of_steps) < 1


def test_the_refills_of_all_steps_are_the_share_of_what_begins_them() -> None:
    refills = [most_refills(tasks(30, 5), 4, step, 0.1, 0.3) for step in range(1, 11)]
    assert sum(refills) == 0.3 * 4 * 10
    assert set(refills) == {1, 2}


def test_of_few_in_a_step_only_some_steps_have_one_that_tempts() -> None:
    drawn = [draw_scenarios(tasks(30, 5), 4, step, 0, 0.1) for step in range(1, 11)]
    assert [sum(task.adversarial for task in of_step) for of_step in drawn] == [0, 0, 1, 0, 1, 0, 0, 1, 0, 1]
    assert math.fsum(len(of_step) for of_step in drawn) == 40


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


def test_columns_that_are_nearly_criteria_are_named(folder: Path) -> None:
    row = {"prompt": "p", "rubric - 1. criterion": "x", "Rubric - 2. Criterion": "y", "rubric - 1. weight": 3}
    (folder / "table.json").write_text(json.dumps([row]))
    told = json.loads(hone("check", "table.json", "--json").stdout)["ignored_columns"]
    assert [(one["name"], one["tasks"], one["place"], one["meant"]) for one in told] == [
        ("Rubric - 2. Criterion", 1, "table.json, line 1", "rubric - 2. criterion"),
        ("rubric - 1. weight", 1, "table.json, line 1", ""),
    ]
    shown = hone("check", "table.json").stdout.splitlines()
    assert [line.split("'")[1] for line in shown[2:]] == ["Rubric - 2. Criterion", "rubric - 1. weight"]
    assert all("is not read" in line for line in shown[2:])


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
        (("all.jsonl", "--split", "0.5,0.4"), 2, "its shares must be above 0 and add up to 1"),
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
    assert "campaign.split divides one file into parts: remove" in done.output
    assert "Value error" not in done.output
