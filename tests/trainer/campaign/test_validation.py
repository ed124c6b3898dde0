"""What a campaign measures beside its steps: baselines, wins against version 0, and the test part at the end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from judge.settings import JudgeSettings
from recorder.queue import campaigns
from recorder.states import Purpose
from recorder.store.database import Project
from recorder.store.schema import groups, scenarios, step_groups
from recorder.views.trajectories import transcripts
from recorder.views.versions.detail import version_detail
from tests.trainer.campaign.conftest import RingOf
from tests.trainer.ring import PROJECT, RecordedProgress, Ring, Script, ledger_codes
from trainer.errors import CampaignError

pytestmark = pytest.mark.slow  # whole campaigns: left out of `make check`

SOLVED = {"success": "my_agent:solved", "steps": 1}
RULER = JudgeSettings(model="openai/judge")
RUBRIC = JudgeSettings.model_validate({"model": "openai/judge", "rewards": [{"kind": "rubric"}]})


def last_tasks(folder: Path, count: int = 2) -> Path:
    lines = [{"id": f"test-{i}", "input": f"test {i}", "reference": f"answer test {i}"} for i in range(count)]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "test.jsonl"


async def parts_trained_on(ring: Ring) -> set[str]:
    query = (
        select(scenarios.c.split)
        .join(groups, groups.c.scenario_id == scenarios.c.id)
        .join(step_groups, step_groups.c.group_id == groups.c.id)
    )
    async with ring.store.read() as conn:
        return set((await conn.execute(query)).scalars())


async def test_baselines_are_measured_once_before_the_first_step(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.providers = {"gpt-5": 1.0}
    settings = user | SOLVED | {"baselines": ["base", "gpt-5"], "val_attempts": 4}
    await ring.train(settings, told, models=["gpt-5"])
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    codes = await ledger_codes(ring.store, campaign.id)
    assert codes == ["begun", "validation", "baseline", "baseline", "judged_by", "step", "validation", "ended"]
    before, base, other = [one for one in told.validations() if one.step == 0]
    assert (before.version, base.version, other.version) == ("helpdesk@0", "base", "gpt-5")
    assert (base.success, base.attempts) == (before.success, 12)  # version 0 was live: nothing was attempted again
    assert (other.success, other.attempts) == (1.0, 12)
    assert [one.baseline for one in (before, base, other)] == [False, True, True]
    assert ring.asked["gpt-5"] == 12
    assert ring.asked["helpdesk@0"] == 0
    assert await parts_trained_on(ring) == {"train"}
    detail = await version_detail(Project(ring.store, PROJECT), "helpdesk@1")
    [compared] = detail.held_out  # each attempt's success is stored, so its validation is compared with the one before
    assert (compared.about.source, compared.about.beside, compared.about.unit) == (
        "validation",
        "helpdesk@0",
        "success",
    )
    assert (compared.won_count + compared.lost_count + compared.even_count, compared.unmeasured) == (3, 0)


async def test_the_base_is_attempted_by_its_name_where_the_alias_has_moved_on(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.75 if number else 0.25
    await ring.train(user | SOLVED, RecordedProgress())
    await ring.train(user | SOLVED | {"baselines": ["base"], "val_attempts": 4}, told)
    before, base, _ = told.validations()
    assert (before.version, before.success, base.success) == ("helpdesk@1", 0.75, 0.25)
    assert ring.asked["helpdesk@0"] == 12


async def test_an_unknown_baseline_is_refused_before_anything_begins(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    with pytest.raises(CampaignError, match=r"'gpt-9' .* there is: base, gpt-5"):
        await ring.train(user | {"baselines": ["gpt-9"]}, told, models=["gpt-5"])
    assert await campaigns.list_campaigns(Project(ring.store, PROJECT)) == []


async def test_where_ruler_is_the_reward_versions_are_compared_with_version_0_in_blind_groups(
    ring_of: RingOf, user: dict[str, Any], told: RecordedProgress
) -> None:
    script = Script(worker=RULER, skill=lambda number: 0.75 if number else 0.5)
    async with ring_of(script) as ring:
        settings = user | {"steps": 1, "val_attempts": 4}
        await ring.train(settings, told, judge=RULER)
        before, after = told.validations()
        assert before.win_rate is not None
        assert after.win_rate is not None
        assert (after.attempts, after.reward, after.success) == (3 * 4, None, None)
        # version 0's one attempt is its group's fifth, which the script lets succeed: 3 of 4 tie with it, one loses
        assert after.win_rate == pytest.approx(0.375)
        assert before.win_rate == pytest.approx(0.25)
        assert ring.asked["helpdesk@0"] == 2 * 3
        (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
        measured = await campaigns.group_states(ring.store, campaign.id, 1, Purpose.VAL)
        views = await transcripts.load_groups(ring.store, [group.group_id for group in measured])
        assert [len(view.members) for view in views] == [5, 5, 5]
        assert await parts_trained_on(ring) == {"train"}
        assert not any("helpdesk@" in prompt for prompt in ring.prompts)  # blind


async def test_the_test_part_is_measured_once_at_the_end_and_never_trained_on(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.providers = {"gpt-5": 1.0}
    script.skill = lambda number: 0.75 if number else 0.25
    more = {"test_scenarios": last_tasks(user["cwd"]), "val_attempts": 4, "baselines": ["gpt-5"]}
    await ring.train(user | SOLVED | more, told, models=["gpt-5"])
    tests = [one for one in told.validations() if one.part == "test"]
    assert [(one.version, one.baseline) for one in tests] == [("helpdesk@1", False), ("base", True), ("gpt-5", True)]
    assert [one.success for one in tests] == [0.75, 0.25, 1.0]
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    codes = await ledger_codes(ring.store, campaign.id)
    assert codes[-4:] == ["test", "test", "test", "ended"]
    assert Counter(codes)["test"] == 3
    assert await parts_trained_on(ring) == {"train"}


async def test_a_target_counts_only_where_the_baseline_is_beaten_and_goals_hold(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.providers = {"gpt-5": 1.0}
    script.skill = lambda number: 0.75
    settings = user | SOLVED | {"steps": 2, "target": 0.5, "val_every": 1, "val_attempts": 4}
    assert (await ring.train(settings, RecordedProgress())).reason == "target"
    beaten = settings | {"beat": {"baseline": "gpt-5", "margin": 0.1}}
    ended = await ring.train(beaten, RecordedProgress(), models=["gpt-5"])
    assert (ended.reason, ended.steps) == ("steps", 2)
    assert "gpt-5" in ended.detail
    bound = settings | {"goals": [{"metric": "turns", "at_most": 0.5}]}
    ended = await ring.train(bound, told)
    assert (ended.reason, ended.steps) == ("steps", 2)
    assert "turns 1 is above 0.5" in ended.detail


@pytest.mark.parametrize(
    "judge", [pytest.param(RULER, id="ruler"), pytest.param(RUBRIC, id="rubric", marks=pytest.mark.long)]
)
async def test_no_reference_reaches_a_prompt_of_the_judge(
    ring_of: RingOf, user: dict[str, Any], told: RecordedProgress, judge: JudgeSettings
) -> None:
    for part in ("train", "val", "test"):
        own = [{"id": f"{part}-{i}", "input": f"{part} {i}", "reference": f"SECRET-{part}-{i}"} for i in range(2)]
        lines = [line | ({"rubric": ["it answers"]} if judge is RUBRIC else {}) for line in own]
        (user["cwd"] / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    script = Script(worker=judge, skill=lambda number: 0.5)
    async with ring_of(script) as ring:
        settings = user | {"steps": 1, "val_attempts": 2, "test_scenarios": user["cwd"] / "test.jsonl"}
        await ring.train(settings, told, judge=judge)
        assert {step.reward for step in told.steps()} == {0.5}
        assert {part for part in ("train", "val", "test") if any(f"{part} 0" in one for one in ring.prompts)} == {
            "train", "val", "test",
        }  # fmt: skip
        assert not [prompt for prompt in ring.prompts if "SECRET" in prompt]
