"""Which version did best, by what its newest validation says, and that a campaign leaves it in service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from recorder.queue import campaigns
from recorder.registry import alias_moves, aliases, moves, versions
from recorder.states import VersionState
from recorder.store.database import Project
from recorder.store.schema import groups, ledger
from recorder.views.campaigns.events import CampaignMeasure, Validation
from recorder.views.campaigns.measures import rank_versions
from tests.trainer.ring import ALIAS, PROJECT, RecordedProgress, Ring, Script


def validated(step: int, success: float | None, *, wins: float | None = None, version: str | None = None) -> Validation:
    return Validation(step, version or f"helpdesk@{step}", success, None, 20, 0, 1.0, win_rate=wins)


def test_the_best_comes_first_and_of_equals_the_newest() -> None:
    seen = [validated(0, 0.2), validated(1, 0.8), validated(2, 0.8), validated(3, 0.5)]
    assert [name for name, _ in rank_versions(seen, CampaignMeasure.SUCCESS)] == [f"helpdesk@{n}" for n in (2, 1, 3, 0)]


def test_a_versions_newest_measure_counts_and_only_by_the_measure() -> None:
    seen = [validated(0, 0.9), validated(5, 0.1, version="helpdesk@0"), validated(6, None, wins=0.7)]
    assert rank_versions(seen, CampaignMeasure.SUCCESS) == [("helpdesk@0", 0.1)]
    assert rank_versions(seen, CampaignMeasure.WINS) == [("helpdesk@6", 0.7)]
    assert rank_versions(seen, CampaignMeasure.NOTHING) == []


HILL = {0: 0.25, 1: 0.75}  # by version: the first one learns, those after it forget


@pytest.fixture
def hill(script: Script) -> None:
    script.skill = lambda number: HILL.get(number, 0.5)


async def states(ring: Ring) -> dict[str, tuple[VersionState, str | None]]:
    found = await versions.get_versions(Project(ring.store, PROJECT), list(VersionState))
    return {one.name: (one.state, one.reason) for one in found}


@pytest.mark.slow
@pytest.mark.usefixtures("hill")
async def test_the_best_validated_version_serves_at_the_end_and_the_next_step_goes_on_from_it(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    settings = user | {"success": "my_agent:solved", "val_every": 1, "val_attempts": 4}
    ended = await ring.train(settings, told)
    assert [v.version for v in told.validations()] == [f"helpdesk@{n}" for n in range(4)]
    assert ended.version == "helpdesk@1"
    live = await versions.get_version_by_name(Project(ring.store, PROJECT), "helpdesk@1")
    assert (await aliases.get_alias(Project(ring.store, PROJECT), ALIAS)).live_version_id == live.id
    found = await states(ring)
    assert found["helpdesk@1"] == (VersionState.LIVE, None)
    assert found["helpdesk@3"] == (VersionState.RETIRED, "rollback")
    (move,) = await moves.list_moves(Project(ring.store, PROJECT), version_ids=[live.id], limit=1)
    assert (move.move, move.who, move.why) == ("rollback", "campaign train", "the campaign ended: steps")
    await _what_came_after_is_untrained(ring)
    await ring.train(settings | {"steps": 1}, RecordedProgress())
    assert (await versions.get_version_by_name(Project(ring.store, PROJECT), "helpdesk@4")).parent_id == live.id


async def _what_came_after_is_untrained(ring: Ring) -> None:
    """Runs that the versions after the best were trained on count as untrained; those of the best do not."""
    (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    query = select(groups.c.external_id, groups.c.state, groups.c.reason).where(groups.c.external_id.like("%.train.%"))
    said = select(ledger.c.code, func.count()).where(ledger.c.object_kind == "trajectory").group_by(ledger.c.code)
    async with ring.store.read() as conn:
        rows = list(await conn.execute(query))
        counted = {row[0]: row[1] for row in await conn.execute(said)}
    by_step = {n: {(r.state, r.reason) for r in rows if f"{campaign.id}.{n:04d}." in r.external_id} for n in (1, 2, 3)}
    assert by_step == {
        1: {("trained", None)}, 2: {("left_out", "version_rejected")}, 3: {("left_out", "version_rejected")},
    }  # fmt: skip
    assert counted.get("untrained", 0) * 3 == counted.get("trained", 0) * 2


@pytest.mark.slow
@pytest.mark.usefixtures("hill")
async def test_the_last_version_serves_where_that_is_asked_for(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    settings = user | {"success": "my_agent:solved", "val_every": 1, "val_attempts": 4, "serve": "last"}
    assert (await ring.train(settings | {"steps": 2}, told)).version == "helpdesk@2"


@pytest.mark.slow
async def test_version_0_serves_where_training_made_it_worse(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.25 if number else 0.75
    settings = user | {"success": "my_agent:solved", "val_attempts": 4, "steps": 2}
    assert (await ring.train(settings, told)).version == "helpdesk@0"


@pytest.mark.slow
@pytest.mark.usefixtures("hill")
async def test_a_version_that_somebody_took_out_of_service_is_not_brought_back(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    settings = user | {"success": "my_agent:solved", "val_every": 1, "val_attempts": 4, "serve": "last"}
    await ring.train(settings | {"name": "first", "steps": 1}, RecordedProgress())
    alias = await aliases.get_alias(Project(ring.store, PROJECT), ALIAS)
    await alias_moves.rollback(ring.store, alias.id)
    assert (await states(ring))["helpdesk@1"] == (VersionState.RETIRED, "rollback")
    ended = await ring.train(settings | {"serve": "best", "steps": 2}, told)
    assert ended.version not in (None, "helpdesk@1")
