"""Groups whose rows do not hold what their state demands, and left-out ones that do not say why, are found."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.maintenance.integrity import groups as checks
from recorder.store.schema import attempts, campaigns, groups, scenarios
from recorder.store.sql import now
from tests.recorder.maintenance.integrity.sound import Sound
from tests.recorder.rows import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.repeats_statements]  # those of test_invariants.py


@pytest.mark.parametrize(
    ("state", "lease"),
    [
        ("judging", {}),
        ("judging", {"lease_owner": "judge", "lease_expires_at": now() - 1}),
        ("judging", {"lease_owner": "judge"}),
        ("ready", {"lease_owner": "judge", "lease_expires_at": now() + 60}),
    ],
    ids=["nobody", "ran out", "for ever", "not in hand"],
)
async def test_a_claim_that_does_not_fit_the_state(sound: Sound, state: str, lease: dict[str, Any]) -> None:
    group = await sound.rows.group(state=state, **lease)
    await sound.finds(checks.claimed_groups_have_a_holder, f"group {group}")


async def test_an_attempt_that_nobody_runs(sound: Sound) -> None:
    own = {"project_id": PROJECT, "campaign_id": "campaign_x"}
    campaign = {"id": "campaign_x", "project_id": PROJECT, "alias_id": sound.line.alias.id, "name": "c"}
    await sound.rows.insert(campaigns, {**campaign, "settings": {}, "state": "running", "started_at": now()})
    await sound.rows.insert(scenarios, {"id": "sc_x", **own, "external_id": "1", "split": "train", "input": "x"})
    attempt = {"id": "attempt_x", **own, "scenario_id": "sc_x", "step_number": 1, "purpose": "train", "number": 0}
    address = {"group_external_id": "g", "trajectory_external_id": "t"}
    await sound.rows.insert(attempts, {**attempt, **address, "state": "running"})
    await sound.finds(checks.running_attempts_have_a_holder, "attempt attempt_x")


@pytest.mark.parametrize("score", [None, "score_nowhere"])
async def test_a_scored_group_without_its_score(sound: Sound, score: str | None) -> None:
    await sound.rows.set(groups, sound.group, current_score_id=score)
    await sound.finds(checks.scored_groups_have_their_score, f"group {sound.group}")


async def test_a_run_that_its_group_closed_without(sound: Sound) -> None:
    group = await sound.rows.group(state="ready")
    run = await sound.rows.trajectory(group, answered=False)
    broken = await sound.broken()
    assert broken.pop("members_of_closed_groups_have_ended") == [f"trajectory {run}"]
    assert broken == {"excluded_members_say_why": [f"trajectory {run}"]}


@pytest.mark.parametrize("reason", [None, "too_few"])
async def test_a_group_that_was_left_out_without_a_word(sound: Sound, reason: str | None) -> None:
    group = await sound.rows.group(state="left_out", reason=reason)
    await sound.finds(checks.excluded_groups_say_why, f"group {group}")


async def test_a_member_that_was_not_judged_and_nobody_says_why(sound: Sound) -> None:
    group = await sound.rows.group(state="ready")
    run = await sound.rows.trajectory(group, answered=False, state="errored", ended_at=now())
    await sound.finds(checks.excluded_members_say_why, f"trajectory {run}")
