"""The committed tables of prompts: what the program makes, in a form that Hone reads, and no prompt in two parts."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from examples.rlvr.forms import read
from examples.rlvr.making.mixture import conversations
from examples.rlvr.tasks import FOLDER, LEARN, TEST, VALIDATION, files, is_campaigns, write
from trainer.tasks import scenarios
from trainer.tasks.scenarios import Scenario

PARTS = {"learn": LEARN, "validation": VALIDATION, "test": TEST}


def part(name: str, folder: Path = FOLDER) -> list[Scenario]:
    return scenarios.read_scenarios(getattr(files(folder), name))


def test_they_are_what_the_program_makes(tmp_path: Path) -> None:
    made = write(tmp_path)
    for name in PARTS:
        assert getattr(made, name).read_bytes() == getattr(files(), name).read_bytes()


@pytest.mark.parametrize("name", PARTS)
def test_hone_reads_them_as_prompts_with_criteria(name: str) -> None:
    found = part(name)
    assert len(found) == PARTS[name]
    for scenario in found:
        assert [one["text"] for one in scenario.rubric] == read(scenario.input).criteria()


def test_there_are_at_least_60_to_learn_from() -> None:
    assert len(part("learn")) >= 60


def test_no_prompt_is_in_two_parts_and_none_was_taught() -> None:
    prompts = [scenario.input for name in PARTS for scenario in part(name)]
    assert len(set(prompts)) == len(prompts)
    assert all(map(is_campaigns, prompts))
    taught = {messages[0]["content"] for messages, _ in islice(conversations(11), 2_000)}
    assert not any(map(is_campaigns, taught))


def test_another_seed_makes_other_prompts_and_hundreds_of_them(tmp_path: Path) -> None:
    write(tmp_path, seed=8, counts=(400, 1, 1))
    other = {scenario.input for scenario in part("learn", tmp_path)}
    assert len(other) == 400
    assert len(other & {scenario.input for scenario in part("learn")}) < 40
