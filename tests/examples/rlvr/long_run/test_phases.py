"""The long run's phases and prompts: the first form again at the end, and no prompt in two lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.rlvr.forms import read
from examples.rlvr.long_run.phases import FORMS, OPENING, form_name, plan_phases, write_prompts
from examples.rlvr.tasks import is_campaigns
from recorder.queue.training.drift_set import SHARE

COUNTS = (12, 6)


def inputs(path: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in path.read_text().splitlines()]


def test_the_forms_follow_one_another_and_the_first_comes_again() -> None:
    phases = plan_phases(400, 20)
    assert [phase.form for phase in phases] == ["note", "record", "things", "note"]
    assert [(phase.first, phase.last) for phase in phases] == [(0, 100), (100, 200), (200, 300), (300, 400)]
    assert len({phase.name for phase in phases}) == len(phases)


@pytest.mark.parametrize(("steps", "every"), [(0, 20), (402, 20), (400, 30), (-400, 20)])
def test_phases_that_end_between_two_measurements_are_refused(steps: int, every: int) -> None:
    with pytest.raises(ValueError, match="give n ×"):
        plan_phases(steps, every)


def test_no_prompt_is_in_two_lists_or_was_used_to_make_the_model(tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path, 7, *COUNTS)
    lists = [*(inputs(prompts.learn[form]) for form in FORMS), inputs(prompts.held_out), list(prompts.opening)]
    everything = [prompt for some in lists for prompt in some]
    assert len(set(everything)) == len(everything)
    assert all(map(is_campaigns, everything))
    for form in FORMS:
        assert {form_name(read(prompt)) for prompt in inputs(prompts.learn[form])} == {form}
    held_out = [form_name(read(prompt)) for prompt in inputs(prompts.held_out)]
    assert {form: held_out.count(form) for form in FORMS} == dict.fromkeys(FORMS, COUNTS[1])


def test_no_prompt_of_a_campaign_has_the_id_of_another(tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path, 7, *COUNTS)
    for path in prompts.learn.values():
        ids = [
            json.loads(line)["task_id"] for file in (path, prompts.held_out) for line in file.read_text().splitlines()
        ]
        assert len(set(ids)) == len(ids)


def test_a_seed_gives_the_same_prompts_again_and_another_one_others(tmp_path: Path) -> None:
    first, again, other = (
        write_prompts(tmp_path / name, seed, *COUNTS) for name, seed in (("a", 7), ("b", 7), ("c", 8))
    )
    assert inputs(first.held_out) == inputs(again.held_out)
    assert inputs(first.held_out) != inputs(other.held_out)


def test_the_opening_is_enough_traffic_for_a_drift_set() -> None:
    assert len(FORMS) * OPENING >= SHARE * 32
