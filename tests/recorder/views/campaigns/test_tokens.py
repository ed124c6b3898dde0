"""What was sampled for a campaign: its attempts' tokens, and what each of its gates took."""

from __future__ import annotations

import pytest

from recorder.queue import attempts, campaigns
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import GroupBinding
from recorder.queue.training import steps
from recorder.registry import versions
from recorder.registry.versions import VersionView
from recorder.states import Purpose, VersionState
from recorder.store.database import Project
from recorder.views.campaigns.tokens import CampaignTokens, GateCost, load_campaign_tokens
from tests.recorder.learning import Learned
from tests.recorder.rows import PROJECT, Rows


async def attempted(rows: Rows, campaign_id: str, alias_id: str, scenario: str, purpose: Purpose, *tokens: int) -> None:
    """A group of attempts, each a call that sampled so many tokens."""
    name = f"{campaign_id}.{purpose}"
    (group,) = await campaigns.bind_groups(
        Project(rows.store, PROJECT), campaign_id, alias_id, [GroupBinding(name, scenario, len(tokens))]
    )
    planned = [NewAttempt(scenario, 1, purpose, number, name, f"{number}") for number in range(len(tokens))]
    await attempts.new_attempts(rows.store, campaign_id, planned)
    for count in tokens:
        run = await rows.trajectory(group, answered=False, purpose=purpose)
        await rows.call(run, usage={"prompt_tokens": 50, "completion_tokens": count})


async def decided(rows: Rows, alias_id: str, live: str, campaign_id: str, **figures: float) -> VersionView:
    """A version of a campaign's step that passed its gate."""
    step = await steps.begin_step(rows.store, alias_id, live, campaign_id)
    made = await versions.allocate_version(rows.store, alias_id, live, step_id=step.id)
    await steps.finish_step(
        rows.store, step.id, version_id=made.id, path="/nowhere", engine_name=made.engine_name, manifest_sha256="0",
        metrics={}, checkpoint_path=None, groups=[],
    )  # fmt: skip
    await versions.mark_version(rows.store, made.id, VersionState.LOADED)
    return await versions.pass_gate(rows.store, made.id, "sane: few", who="controller", figures=figures)


@pytest.mark.slow
async def test_attempts_of_all_purposes_and_gates_that_asked_are_counted(rows: Rows) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    learned = Learned(rows.store, alias.id)
    campaign = await learned.campaign()
    scenario = await learned.scenario(campaign)
    assert await load_campaign_tokens(rows.store, campaign) == CampaignTokens(0, [])
    await attempted(rows, campaign, alias.id, scenario, Purpose.TRAIN, 30, 40)
    await attempted(rows, campaign, alias.id, scenario, Purpose.VAL, 20)
    other = await rows.trajectory(answered=False)
    await rows.call(other, usage={"completion_tokens": 1000})
    version = await decided(rows, alias.id, alias.live_version_id, campaign, gate_tokens=10, gate_questions=2)
    found = await load_campaign_tokens(rows.store, campaign)
    assert found == CampaignTokens(90, [GateCost(version.name, 10, 2, "sane: few")])
    assert (found.of_gates, found.gate_share) == (10, 0.1)


def test_of_nothing_there_is_no_share() -> None:
    assert CampaignTokens(0).gate_share is None
