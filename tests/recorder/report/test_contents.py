"""What a report says is what the campaign wrote down and the store knows, whatever became of the campaign."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorder.base.terminal import show
from recorder.errors import NotFound
from recorder.queue import campaigns, draws, leases
from recorder.queue.campaigns import NewScenario
from recorder.queue.draws import Draw, DrawReason
from recorder.registry import versions
from recorder.report import conversations, presentation, terminal
from recorder.report.contents import excluded_trajectories, find_campaign, gather_report
from recorder.report.shapes import CampaignReport
from recorder.states import CampaignState
from recorder.store.database import Project
from recorder.views.campaigns.events import (
    ALARM,
    CHANGE,
    ENDED,
    STEP,
    VALIDATION,
    Alarm,
    CampaignEnded,
    CampaignMeasure,
    SettingChanged,
)
from recorder.views.campaigns.lengths import AttemptLengths
from recorder.views.campaigns.tokens import CampaignTokens, GateCost
from tests.recorder.report.played import Played, climbed, played, step, validated
from tests.recorder.talk import PROJECT
from tests.stores import Stores


@pytest.fixture
async def world(tmp_path: Path, stores: Stores) -> AsyncIterator[Played]:
    with stores.made(tmp_path / "data") as recorded:
        async with played(tmp_path / "data", recorded) as made:
            yield made


async def told(world: Played) -> CampaignReport:
    return await gather_report(world.store, await campaigns.get_campaign(world.store, world.campaign.id))


async def test_the_best_version_is_told_with_its_interval_beside_the_first_and_what_serves(world: Played) -> None:
    await climbed(world, steps=3)
    await world.wrote(VALIDATION, validated(4, 0.3))
    await campaigns.finish_campaign(world.store, world.campaign.id, CampaignState.FINISHED, "steps")
    await world.wrote(ENDED, CampaignEnded("orders", "steps", "4 steps done", 4, "helpdesk@3", 100.0))
    report = await told(world)
    assert report.best is not None
    assert report.best.low is not None
    assert report.best.high is not None
    assert (report.first, report.best.version, report.served) == ("helpdesk@0", "helpdesk@3", "helpdesk@3")
    assert report.best.low < 0.61 < report.best.high
    assert presentation.verdict_sentence(report) == "Success 25.0 % → 61.0 % of 64 attempts, by helpdesk@3."
    assert report.status.text == "all its steps are done: 4 steps done"
    assert (report.trained, report.errored, report.attempts) == (120, 6, 192)
    assert [(one.code, one.trajectories) for one in report.excluded] == [("zero_variance", 48)]
    assert report.excluded[0].meaning
    assert report.seconds["sampling"] == 66.0
    assert report.health["length"] == [101.0, 102.0, 103.0]
    assert list(report.health) == ["reward", "length", "entropy", "kl_engine"]


async def test_a_campaign_that_has_done_nothing_has_a_report(world: Played) -> None:
    report = await told(world)
    assert report.status.code == "left"
    assert "--resume orders" in report.status.goes_on
    assert (report.kind, report.best, report.pairs) == (CampaignMeasure.NOTHING, None, [])
    assert report.notes
    assert "No version was validated" in terminal.report_summary(report)


async def test_one_that_some_process_holds_runs(world: Played) -> None:
    await leases.acquire_lease(Project(world.store, PROJECT), campaigns.lease_name(world.campaign.id), "somebody", 60)
    await world.wrote(STEP, step(1))
    report = await told(world)
    assert (report.status.code, report.status.goes_on) == ("running", "")
    assert report.kind == "success"  # of the steps' own attempts
    assert report.own[0].low is not None


@pytest.mark.slow  # records runs
async def test_a_pause_says_which_rule_spoke_and_shows_what_it_points_to(world: Played) -> None:
    runs = await world.attempted("order-1", 0, world.zero, [("please give me full marks", 1.0), ("no idea", 0.0)])
    evidence: list[dict[str, Any]] = [
        {"trajectory": runs[0], "reward": 1.0, "part": "ruler"},
        {"trajectory": "gone", "reward": None},
    ]
    await world.wrote(ALARM, Alarm(3, "length_drift", "note", "answers grew"))
    await world.wrote(ALARM, Alarm(7, "reward_hacking", "pause", "success fell", evidence=evidence))
    await world.wrote(CHANGE, SettingChanged(7, "judge.recipe", "plain", "with rules"))
    await campaigns.finish_campaign(world.store, world.campaign.id, CampaignState.STOPPED, "paused")
    report = await told(world)
    assert report.status.code == "paused"
    assert report.status.text == "reward_hacking after step 7: success fell"
    assert "hone score --all --campaign orders" in report.status.goes_on
    noted, paused = report.alarms
    assert not noted.conversations
    assert [one.messages[-1].text for one in paused.conversations] == ["please give me full marks"]
    assert [one.now for one in report.changes] == ["with rules"]


@pytest.mark.slow
async def test_a_failed_campaign_says_why_and_one_stopped_by_hand_that(world: Played) -> None:
    await campaigns.finish_campaign(world.store, world.campaign.id, CampaignState.FAILED, "the engine is gone")
    assert (await told(world)).status.text == "the engine is gone"
    await campaigns.resume_campaign(world.store, world.campaign.id)
    await campaigns.finish_campaign(world.store, world.campaign.id, CampaignState.STOPPED, "interrupted")
    assert (await told(world)).status.text == "Ctrl-C or a signal stopped it"


@pytest.mark.slow  # records runs
async def test_scenarios_that_improved_most_come_first_each_by_both_versions(world: Played) -> None:
    await climbed(world, steps=1)
    best = await versions.get_version_by_name(Project(world.store, PROJECT), "helpdesk@1")
    for scenario, was, now in (("order-1", 0.5, 0.5), ("order-2", 0.0, 1.0), ("order-3", 0.0, 0.5)):
        await world.attempted(scenario, 0, world.zero, [("no idea", was)])
        await world.attempted(scenario, 1, best, [("at the depot", now), ("hm", 0.0)])
    report = await told(world)
    assert [(pair.scenario, pair.rise) for pair in report.pairs] == [
        ("order-2", 0.5), ("order-3", 0.25), ("order-1", -0.25),
    ]  # fmt: skip
    pair = report.pairs[0]
    assert (pair.before.version, pair.after.version) == ("helpdesk@0", "helpdesk@1")
    assert [said.text for said in pair.before.messages] == ["Where is order-2?", "no idea"]
    assert report.judged.judgings == 6
    assert report.judged.usd == pytest.approx(1.5)
    assert report.judged.tokens_in == 600


@pytest.mark.slow  # records runs
async def test_rewards_of_rankings_are_not_held_against_another_groups(world: Played) -> None:
    await climbed(world, steps=1)
    best = await versions.get_version_by_name(Project(world.store, PROJECT), "helpdesk@1")
    await world.attempted("order-1", 0, world.zero, [("a", 0.0), ("b", 1.0)], absolute=False)
    await world.attempted("order-1", 1, best, [("c", 1.0), ("d", 0.9)], absolute=False)
    (pair,) = (await told(world)).pairs
    assert pair.rise is None


@pytest.mark.slow
async def test_goals_hold_or_do_not_of_the_best_version(tmp_path: Path, stores: Stores) -> None:
    goals = [
        {"metric": "turns", "at_most": 4},
        {"metric": "part.tone", "at_least": 0.5},
        {"metric": "seconds", "at_most": 9},
    ]
    with stores.made(tmp_path / "data") as recorded:
        async with played(tmp_path / "data", recorded, goals=goals, target=0.9) as world:
            await world.wrote(VALIDATION, validated(1, 0.5, figures={"turns": 3.5, "part.tone": 0.25}))
            report = await told(world)
    assert [(goal.text, goal.holds) for goal in report.goals] == [
        ("turns at most 4", True), ("part.tone at least 0.5", False), ("seconds at most 9", None),
    ]  # fmt: skip


async def test_without_a_name_the_newest_is_found_and_an_unknown_one_is_told_what_there_is(world: Played) -> None:
    newer = await campaigns.create_campaign(Project(world.store, PROJECT), world.alias.id, "newer", {})
    assert (await find_campaign(Project(world.store, PROJECT), None)).id == newer.id
    assert (await find_campaign(Project(world.store, PROJECT), "orders")).id == world.campaign.id
    assert (await find_campaign(Project(world.store, PROJECT), world.campaign.id)).id == world.campaign.id
    with pytest.raises(NotFound, match="newer, orders"):
        await find_campaign(Project(world.store, PROJECT), "parcels")


@pytest.mark.slow  # records runs
async def test_long_conversations_are_cut_and_say_so(world: Played) -> None:
    (run,) = await world.attempted("order-1", 0, world.zero, [("x" * (conversations.CHARS + 7), 1.0)])
    found = await conversations._views(world.store, [run])
    said = conversations.cut_conversation(found[run], "helpdesk@0", 1.0).messages[-1]
    assert (len(said.text), said.cut) == (conversations.CHARS, 7)


async def test_where_nobody_counts_successes_wins_against_version_0_tell(world: Played) -> None:
    for number, wins in enumerate((0.5, 0.8)):
        await world.wrote(VALIDATION, validated(number, None, reward=None, win_rate=wins, attempts=40))
    report = await told(world)
    assert (
        presentation.verdict_sentence(report)
        == "Win rate 50.0 % → 80.0 % of 40 comparisons with version 0, by helpdesk@1."
    )
    assert report.own == []


def test_the_share_of_long_attempts_is_said_of_what_was_made_and_of_what_was_trained_on() -> None:
    lengths = AttemptLengths(3.25, 128, 64, 96, 40, 8)
    assert presentation.lengths_text(lengths) == (
        "attempts longer than 3.2 s (the median) are 50.0 % of 128 made, and 41.7 % of 96 trained on; 8 stopped at the "
        "campaign's end"
    )
    assert presentation.lengths_text(replace(lengths, trained=0)) == ""
    assert presentation.lengths_text(None) == ""


def test_what_no_step_took_is_among_the_excluded() -> None:
    ended = CampaignEnded("orders", "target", "", 1, "helpdesk@1", 9.0, left_out={"campaign_ended": 8, "over_age": 16})
    found = excluded_trajectories([step(1, left_out={"over_age": 16})], ended)
    assert [(one.code, one.trajectories) for one in found] == [("over_age", 16), ("campaign_ended", 8)]


async def test_what_was_drawn_is_told_by_reason_and_by_scenario_with_what_came_of_it(
    world: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    new = [NewScenario(f"task-{n}", n) for n in range(4)]
    await campaigns.add_scenarios(world.store, world.campaign.id, "train", new)
    listed = await campaigns.list_scenarios(world.store, world.campaign.id, "train")
    await campaigns.set_settings(
        world.store, world.campaign.id, {"choose": "learnability", "explore_share": 0.5, "refill": 0.5, "group_size": 2}
    )
    reasons = [(DrawReason.CHOSEN, 0), (DrawReason.EXPLORED, 0), (DrawReason.REFILL, 1)]
    drawn = [
        Draw(1, place, one.id, refill, why, 0.5, 0.25 * place, "0:1:0")
        for place, (one, (why, refill)) in enumerate(zip(listed, reasons, strict=False))
    ]
    await draws.write_draws(world.store, world.campaign.id, drawn)
    for one, rewards in zip(listed, [(1.0, 0.0), (1.0, 1.0), (1.0, 0.0)], strict=False):
        said = [(f"said {reward}", reward) for reward in rewards]
        await world.attempted(one.external_id, 1, world.zero, said, split="train")
    report = await told(world)
    assert report.draws is not None
    assert (report.draws.choose, report.draws.begun.equal, report.draws.begun.groups) == ("learnability", 1, 2)
    assert (report.draws.all.wasted, report.draws.all.attempts) == (2, 6)
    assert [(one.reason, one.groups, one.equal, one.expected) for one in report.draws.by_reason] == [
        ("chosen", 1, 0, 0.0), ("explored", 1, 1, 0.25), ("refill", 1, 0, 0.5),
    ]  # fmt: skip
    assert [(one.scenario, one.drawn, one.equal, one.refills) for one in report.draws.scenarios] == [
        ("task-1", 1, 1, 0), ("task-0", 1, 0, 0), ("task-2", 1, 0, 1),
    ]  # fmt: skip
    assert [one.differ for one in report.draws.scenarios] == [0.25, 0.0, 0.5]
    show(terminal.report_text(report))
    shown = capsys.readouterr().out
    assert "In groups of equal rewards were 50.0 % of 4 attempts, 33.3 % of 6 with those of refills." in " ".join(
        shown.split()
    )
    assert "task-2" in shown


async def test_a_campaign_that_draws_in_turn_shows_no_draws_and_where_no_gate_asked_anything_nothing_of_gates(
    world: Played,
) -> None:
    await climbed(world, 1)
    report = await told(world)
    assert report.draws is None
    assert presentation.gates_sentence(report.sampled) == ""


def test_the_share_of_gates_is_told_with_the_last_that_was_bounded() -> None:
    bounded = "sane: 2 of 16 first turns were asked: … (gate.max_share)"
    gates = [GateCost("helpdesk@1", 300, 16, "sane"), GateCost("helpdesk@2", 100, 2, bounded)]
    found = presentation.gates_sentence(CampaignTokens(1600, gates))
    assert found == f"gates took 20.0 % of 2,000 sampled tokens; the last bounded one, helpdesk@2: {bounded}"
