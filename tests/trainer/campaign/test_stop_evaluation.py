"""A pause: what gained most and what paid for it, what was changed before going on; and a campaign that is paused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from judge.settings import JudgeSettings
from recorder.queue import campaigns
from recorder.queue.groups.disputes import list_disputed_groups
from recorder.queue.judging.scores import NewPart, StoredScore
from recorder.registry import versions
from recorder.states import CampaignState
from recorder.store.database import Project
from recorder.views.campaigns.events import Alarm, CampaignMeasure, SettingChanged
from recorder.views.campaigns.history import read_history
from tests.recorder.score_rows import stored_score
from tests.trainer.campaign.conftest import RingOf
from tests.trainer.ring import (
    PROJECT,
    RecordedProgress,
    Ring,
    Script,
    ledger_codes,
    run_campaign,
    write_user_folder,
)
from trainer.campaign.stop_evaluation import (
    changed_recipe,
    changed_settings,
    lowest_attempts,
    most_gained_attempts,
)
from trainer.errors import CampaignError

CODE = {"kind": "function", "function": "mine:check"}


def score(*parts: tuple[str, str, float | None, float | None]) -> StoredScore:
    made = tuple(NewPart(id_, name, value, weight) for id_, name, value, weight in parts)
    return stored_score(*made, absolute=True)


def test_what_lay_highest_above_its_group_gained_most_and_its_part_paid() -> None:
    one = score(
        ("a", "reward", 0.9, None), ("a", "polite", 1.0, 0.5), ("a", "right", 0.4, 1.0),
        ("b", "reward", 0.1, None), ("b", "polite", 0.0, 0.5), ("b", "right", 0.3, 1.0),
        ("a", "steps.turn.1", 1.0, 1.0), ("b", "steps.turn.1", 0.0, 1.0),  # values of turns pay for nothing
    )  # fmt: skip
    other = score(("c", "reward", 0.9, None), ("d", "reward", 0.85, None), ("e", "reward", None, None))
    assert list(most_gained_attempts([one, other])) == [
        {"trajectory": "a", "reward": 0.9, "part": "polite"},
        {"trajectory": "c", "reward": 0.9, "part": None},
        {"trajectory": "d", "reward": 0.85, "part": None},
    ]
    assert most_gained_attempts([]) == []


def test_what_was_changed_is_told_but_not_where_a_campaign_runs() -> None:
    was = {"steps": 3, "cwd": "/a", "goals": [], "target": None}
    now = {"steps": 5, "cwd": "/b", "goals": [], "target": 0.5}
    assert changed_settings(2, was, now) == [
        SettingChanged(2, "campaign.steps", "3", "5"), SettingChanged(2, "campaign.target", "null", "0.5"),
    ]  # fmt: skip
    (told,) = changed_recipe(2, {"rubric": "a"}, {"rubric": "b" * 900})
    assert (told.what, told.was, len(told.now)) == ("judge.rubric", "a", 501)


@pytest.mark.slow
async def test_a_paused_campaign_keeps_the_best_version_and_is_gone_on_with(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.75 if number == 1 else 0.5
    health = {"perfect_scores": {"at": 0.4, "then": "pause"}, "reward_hacking": {"then": "off"}}
    settings = user | {"success": "my_agent:solved", "val_every": 1, "val_attempts": 4, "steps": 4, "health": health}
    ended = await ring.train(settings | {"name": "mine"}, told)
    assert (ended.reason, ended.steps, ended.version) == ("paused", 3, "helpdesk@1")
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    assert (campaign.state, campaign.reason) == (CampaignState.STOPPED, "paused")
    (alarm,) = [event for event in told.events if isinstance(event, Alarm) and event.then == "pause"]
    assert (alarm.rule, alarm.step, len(alarm.evidence)) == ("perfect_scores", 3, 3)
    assert all(one["reward"] == 1.0 for one in alarm.evidence)
    assert any("hone train --resume mine" in text and "hone score --all" in text for text in told.warnings())
    again = RecordedProgress()
    judge = JudgeSettings.model_validate({"rewards": [CODE]})
    ended = await ring.train({"steps": 5}, again, resume="mine", judge=judge)
    assert (ended.reason, ended.steps) == ("steps", 5)
    changed = {event.what for event in again.events if isinstance(event, SettingChanged)}
    assert changed == {"campaign.steps", "judge.rewards"}
    best = await versions.get_version_by_name(Project(ring.store, PROJECT), "helpdesk@1")
    assert (await versions.get_version_by_name(Project(ring.store, PROJECT), "helpdesk@4")).parent_id == best.id
    codes = await ledger_codes(ring.store, campaign.id)
    assert [codes.count(code) for code in ("begun", "step", "change", "ended")] == [2, 5, 2, 2]


def test_what_is_shown_of_a_fall_are_the_lowest_rewards() -> None:
    one = score(("a", "reward", 0.9, None), ("b", "reward", 0.1, None))
    other = score(("c", "reward", 0.0, None), ("d", "reward", 0.2, None), ("e", "reward", None, None))
    assert [evidence["trajectory"] for evidence in lowest_attempts([one, other])] == ["c", "b", "d"]
    assert lowest_attempts([]) == []


@pytest.mark.slow
@pytest.mark.parametrize("by", ["reward", pytest.param("success", marks=pytest.mark.long)])
async def test_a_policy_that_is_ruined_pauses_the_campaign_without_any_validation(
    data: Path, tmp_path: Path, told: RecordedProgress, ring_of: RingOf, by: str
) -> None:
    ruler = JudgeSettings(model="openai/judge")
    script = Script(skill=lambda number: 0.25 if number >= 2 else 0.75)
    given = write_user_folder(tmp_path / "many", train=8) | {"steps": 9, "scenarios_per_step": 8, "val_scenarios": None}
    if by == "success":  # a ranking says nothing of versions
        script.judge, script.worker, given = False, ruler, given | {"success": "my_agent:solved"}
    async with ring_of(script) as ring:
        ended = await ring.train(given | {"name": "mine"}, told, **({"judge": ruler} if by == "success" else {}))
        (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
        (alarm,) = (await read_history(ring.store, campaign)).alarms
    assert (ended.reason, campaign.state, campaign.reason) == ("paused", CampaignState.STOPPED, "paused")
    assert ended.steps == 3  # the first step of helpdesk@2's attempts
    what = "the mean reward" if by == "reward" else "the share of successes"
    assert alarm.detail.startswith(f"{what} fell from 0.750 to 0.250 (by 0.50, ")
    assert alarm.detail.endswith("sampled by helpdesk@2, before by helpdesk@1")
    assert [one["reward"] for one in alarm.evidence] == [0.0] * 3
    assert "lower trainer.lr, and resume with `hone train --resume mine`" in told.warnings()[-1]


@pytest.mark.slow
async def test_a_campaign_ends_where_judging_has_cost_what_it_may(
    ring_of: RingOf, user: dict[str, Any], told: RecordedProgress
) -> None:
    ruler = JudgeSettings(model="openai/judge")
    async with ring_of(Script(worker=ruler, skill=lambda number: 0.5)) as ring:
        settings = user | {"steps": 9, "max_judge_usd": 1.4, "val_scenarios": None}
        ended = await ring.train(settings, told, judge=ruler)
        assert (ended.reason, ended.steps) == ("budget", 2)  # a dollar a step
        assert "max_judge_usd" in ended.detail


@pytest.mark.slow
async def test_a_campaign_ends_after_its_minutes_over_all_runs_of_its_program(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5
    settings = user | {"name": "mine", "steps": 2, "val_scenarios": None}
    script.hold, script.hold_after = asyncio.Event(), 12
    running = asyncio.create_task(ring.train(settings, RecordedProgress()))
    await ring.reached_hold.wait()  # in the second step
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    script.hold.set()
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    (step,) = (await read_history(ring.store, campaign)).steps
    spent = sum(step.seconds.values()) / 60
    ended = await ring.train({"max_minutes": spent, "steps": 9}, told, resume="mine")
    assert (ended.reason, ended.steps) == ("budget", 1)  # what the first run took counts: no second step begins
    assert "(max_minutes)" in ended.detail


@pytest.mark.slow
async def test_a_campaign_ends_after_its_epochs(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    ended = await ring.train(user | {"steps": 9, "epochs": 1, "val_scenarios": None}, told)
    assert (ended.reason, ended.steps) == ("epochs", 2)


async def test_a_target_that_rulers_scores_would_reach_is_refused(
    data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    mixed = JudgeSettings.model_validate({"model": "openai/judge", "rewards": [{"kind": "ruler"}, CODE]})
    with pytest.raises(CampaignError, match=r"campaign\.target cannot be reached"):
        await run_campaign(data, "http://127.0.0.1:9", user | {"target": 0.9}, told, judge=mixed)


@pytest.mark.slow
async def test_groups_that_judges_disagree_about_hold_up_no_step(
    data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    asked = {"model": "openai/judge", "repeats": 2, "min_agreement": 0.5}
    ruler = JudgeSettings.model_validate(asked)
    async with Ring.running(data, Script(worker=ruler, skill=lambda number: 0.5, quarrel=True)) as ring:
        settings = user | {"steps": 1, "val_scenarios": None, "judge_timeout_s": 600, "success": None}
        ended = await run_campaign(data, ring.url, settings, told, judge=ruler)
        assert (ended.reason, ended.steps, ended.trained) == ("steps", 1, 0)
        waiting = await list_disputed_groups(Project(ring.store, PROJECT))
        assert waiting
        assert {one.agreement for one in waiting} == {-1.0}
    assert any("judges_disagree" in text and "it waits for a person" in text for text in told.warnings())


@pytest.mark.slow
async def test_the_baseline_to_beat_is_measured_again_by_another_judge(
    ring: Ring, script: Script, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.providers = {"gpt-5": 1.0, "gpt-4": 1.0}
    script.skill = lambda number: 0.5
    script.recipe = lambda group: "new" if int(group.split(".")[1]) >= 2 else "old"
    beat = {"target": 0.4, "beat": {"baseline": "gpt-5"}, "baselines": ["gpt-4"]}
    settings = user | {"steps": 4, "val_every": 1, "val_attempts": 4} | beat
    ended = await ring.train(settings, told, models=["gpt-5", "gpt-4"])
    assert (ended.reason, ended.steps) == ("steps", 4)
    assert "gpt-5 (1.000) is not beaten" in ended.detail
    measured = [(one.version, one.step) for one in told.validations() if one.baseline]
    assert sorted(measured) == [("gpt-4", 0), ("gpt-5", 0), ("gpt-5", 3)]
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    history = await read_history(ring.store, campaign)
    assert (history.one_judge_from, len(history.changes)) == (2, 1)
    by_judge, by_label = (history.baseline("gpt-4", of) for of in (CampaignMeasure.REWARD, CampaignMeasure.SUCCESS))
    assert by_judge is None
    assert by_label is not None


@pytest.mark.slow
async def test_a_judge_that_changes_is_told_once(
    ring: Ring, script: Script, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.recipe = lambda group: "new" if int(group.split(".")[1]) >= 3 else "old"
    settings = user | {"steps": 5, "val_every": 1, "name": "mine", "success": "my_agent:solved"}
    await ring.train(settings, told)
    [change] = [event for event in told.events if isinstance(event, SettingChanged)]
    assert (change.what, change.step) == ("judge_changed", 2)
    assert (change.was, change.now) == ("no model by recipe old", "no model by recipe new")
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    codes = await ledger_codes(ring.store, campaign.id)
    assert (codes.count("judge_changed"), codes.count("judged_by")) == (1, 2)
    history = await read_history(ring.store, campaign)
    assert history.one_judge_from == 3
    assert {event.step for event in history.measured(CampaignMeasure.SUCCESS, regularly=True)} == {3, 4, 5}
