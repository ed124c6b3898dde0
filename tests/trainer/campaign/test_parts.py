"""A campaign of one split file: each part is attempted for what it is there for, and what tempts is told apart."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from judge.settings import JudgeSettings
from recorder.store.database import Store
from recorder.store.schema import groups, scenarios, step_groups, trajectories
from tests.trainer.ring import RecordedProgress, Ring, Script, write_user_folder

pytestmark = pytest.mark.slow  # a whole campaign


def split_file(folder: Path) -> dict[str, Any]:
    """The settings of a campaign on 24 tasks; every third tempts. By seed 2 each part has some of both kinds."""
    user = write_user_folder(folder)
    tasks = [{"id": f"task-{n}", "input": f"ask {n}", "reference": f"answer ask {n}"} for n in range(24)]
    lines = [json.dumps(task | ({"adversarial": True} if at % 3 == 0 else {})) for at, task in enumerate(tasks)]
    (folder / "all.jsonl").write_text("\n".join(lines))
    own = {"scenarios": folder / "all.jsonl", "val_scenarios": None, "split": [0.6, 0.2, 0.2], "seed": 2}
    return user | own | {"adversarial_share": 0.5, "steps": 3, "val_every": 3, "success": "my_agent:solved"}


async def attempted(store: Store) -> Counter[tuple[str, str, bool]]:
    """How many groups there are of each part, purpose and kind."""
    query = (
        select(groups.c.id, scenarios.c.split, trajectories.c.purpose, scenarios.c.adversarial)
        .join(scenarios, scenarios.c.id == groups.c.scenario_id)
        .join(trajectories, trajectories.c.group_id == groups.c.id)
        .distinct()
    )
    async with store.read() as conn:
        return Counter((row.split, row.purpose, row.adversarial) for row in await conn.execute(query))


async def test_each_part_is_attempted_for_its_own_purpose_and_what_tempts_is_measured_apart(
    ring: Ring, script: Script, tmp_path: Path
) -> None:
    script.skill, told = lambda number: 1.0, RecordedProgress()
    await ring.train(split_file(tmp_path / "user"), told)
    found = await attempted(ring.store)
    # one of each kind in each of 3 steps; 6 to validate with, twice; 3 at the end, as what serves and as version 0
    assert {key: count for key, count in found.items() if key[0] == "train"} == {
        ("train", "train", False): 3,
        ("train", "train", True): 3,
    }
    assert {key: count for key, count in found.items() if key[0] == "val"} == {
        ("val", "val", False): 6,
        ("val", "val", True): 6,
    }
    assert {key: count for key, count in found.items() if key[0] == "test"} == {
        ("test", "eval", False): 4,
        ("test", "eval", True): 2,
    }
    measured = [(one.part, one.attempts, one.adversarial, one.adversarial_attempts) for one in told.validations()]
    assert measured == [("val", 3, 1.0, 3)] * 2 + [("test", 2, 1.0, 1)] * 2
    assert [step.success for step in told.steps()] == [1.0] * 3


@pytest.mark.parametrize("averaged", [pytest.param(True, marks=pytest.mark.long), False])
async def test_of_what_tempts_a_mean_is_told_only_where_one_says_something(
    ring: Ring, script: Script, tmp_path: Path, averaged: bool
) -> None:
    script.skill, told = lambda number: 1.0, RecordedProgress()
    settings = split_file(tmp_path / "user") | {"success": None, "steps": 1}
    beside = (
        [{"kind": "feedback", "name": "thumbs"}]
        if averaged
        else [{"kind": "ruler"}, {"kind": "feedback", "name": "thumbs"}]
    )
    judge = JudgeSettings.model_validate({"model": "openai/judge", "rewards": beside})
    await ring.train(settings, told, judge=judge)
    expected = (1.0, 1.0, 3) if averaged else (None, None, 0)
    measured = [one for one in told.validations() if one.part == "val"]
    assert [(one.reward, one.adversarial, one.adversarial_attempts) for one in measured] == [expected] * 2


async def test_what_is_learnt_from_is_the_train_part_alone(ring: Ring, script: Script, tmp_path: Path) -> None:
    script.skill = lambda number: 0.5
    await ring.train(split_file(tmp_path / "user") | {"steps": 1}, RecordedProgress())
    query = (
        select(scenarios.c.split)
        .join(groups, groups.c.scenario_id == scenarios.c.id)
        .join(step_groups, step_groups.c.group_id == groups.c.id)
    )
    async with ring.store.read() as conn:
        used = [row.split for row in await conn.execute(query)]
    assert used
    assert set(used) == {"train"}
