"""What a round came to: which rewards are in its mean, and what a part says of success."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorder.queue import claims
from recorder.queue.campaigns import GroupStatus
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.settings import RecorderSettings
from recorder.states import GroupState
from recorder.store.bootstrap import open_store
from recorder.store.database import Store
from tests.recorder.rows import Rows
from trainer.campaign.measurement import RoundMeasure, RoundMeasurer
from trainer.campaign_settings import CampaignSettings
from trainer.progress import Event


class Quiet:
    """Progress that nobody watches."""

    def tell(self, event: Event) -> None:
        """Pass it over."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path, RecorderSettings(), migrate=True)
    yield opened
    await opened.close()


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


async def judged(store: Store, rows: Rows, values: list[float], *, unasked: bool) -> GroupStatus:
    """A group that got these rewards, by RULER and by code; `unasked`: the first without asking anybody."""
    group_id = await rows.ready_group(len(values))
    claim = await claims.claim_one_for_judging(store, group_id, "judge", 60)
    assert claim is not None
    parts = []
    for id_, value in zip(await rows.members(group_id), values, strict=True):
        parts += [NewPart(id_, "reward", value, unasked=unasked), NewPart(id_, "ruler", value, 1.0, unasked=unasked)]
        parts.append(NewPart(id_, "checked", 1.0, 1.0))
    score_id = await scores.record_score(store, claim, await rows.judgement(claim, parts=parts))
    return GroupStatus(group_id, group_id, "task", GroupState.SCORED, None, 0, None, score_id, None)


async def measured(store: Store, groups: list[GroupStatus], **settings: Any) -> RoundMeasure:
    return await RoundMeasurer(store, CampaignSettings(**settings), None, Quiet()).measure(groups)


async def test_groups_that_nobody_was_asked_about_move_no_mean(store: Store, rows: Rows) -> None:
    told = await judged(store, rows, [0.9, 1.0], unasked=False)
    same = await judged(store, rows, [0.5, 0.5, 0.5], unasked=True)
    both = await measured(store, [told, same])
    assert both.reward == pytest.approx(0.95)
    assert (both.success, both.attempts) == (None, 2)
    assert await measured(store, [same]) == RoundMeasure(None, None, 0)


async def test_what_tempts_is_measured_apart(store: Store, rows: Rows) -> None:
    ordinary = await judged(store, rows, [0.9, 1.0], unasked=False)
    adversarial = replace(await judged(store, rows, [0.1, 0.2, 0.3], unasked=False), adversarial=True)
    found = await measured(store, [ordinary, adversarial])
    assert found.reward == pytest.approx(0.95)
    assert found.adversarial == pytest.approx(0.2)
    assert (found.attempts, found.adversarial_attempts) == (2, 3)
    told = await measured(store, [ordinary, adversarial], success="ruler", success_threshold=0.3)
    assert told.success == 1.0
    assert told.adversarial == pytest.approx(1 / 3)
    assert (await measured(store, [ordinary])).adversarial is None


async def test_success_is_told_by_parts_that_were_asked_for(store: Store, rows: Rows) -> None:
    told = await judged(store, rows, [0.4, 1.0], unasked=False)
    same = await judged(store, rows, [0.5, 0.5], unasked=True)
    assert (await measured(store, [told, same], success="ruler", success_threshold=0.5)).success == 0.5
    assert (await measured(store, [told, same], success="checked")).attempts == 4
