"""Replies that were paid for: where they are read again, and where the judge is asked anew."""

from typing import Any

import pytest

from judge.scoring.group_score import GroupScore, score_group
from recorder.queue import claims
from recorder.queue.judging import scores
from recorder.store.database import Store
from recorder.views.trajectories.transcripts import load_group
from tests.judge.judge_server import (
    JudgeServer,
)
from tests.judge.recorded import Recorded
from tests.judge.scoring.judging import judged, rewards

pytestmark = pytest.mark.slow


async def save(store: Store, group_id: str, scored: GroupScore) -> str:
    claim = await claims.claim_one_for_judging(store, group_id, "test", 60)
    assert claim is not None
    return await scores.record_score(store, claim, scored.new)


async def test_the_same_prompt_is_not_paid_twice_whatever_the_order(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    first, _ = await recorded.group("first", ["worth 0.2", "worth 0.9", "worth 0.5"])
    await save(store, first, await judged(store, judging, first))
    again = await judged(store, judging, first)
    assert (rewards(again), again.new.tokens_in) == ([0.2, 0.9, 0.5], 0)
    second, _ = await recorded.group("second", ["worth 0.5", "worth 0.2", "worth 0.9", "worth 0.5"])
    other = await judged(store, judging, second)
    assert rewards(other) == [0.5, 0.2, 0.9, 0.5]
    assert (other.new.tokens_in, other.new.judge_version) == (0, "judge-2026-11-01 fp_7")
    assert len(server.requests) == 1
    await save(store, second, other)
    stored = await scores.list_scores(store, second)
    assert stored[0].prompt_hash == (await scores.list_scores(store, first))[0].prompt_hash


async def test_another_recipe_or_another_group_is_asked_anew(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    await save(store, group_id, await judged(store, judging, group_id))
    await judged(store, judging, group_id, rubric="Be brief.")
    other, _ = await recorded.group("other", ["worth 0.2", "worth 0.8"])
    await judged(store, judging, other)
    assert len(server.requests) == 3


async def test_a_reply_that_was_paid_for_is_at_hand_though_no_score_was_written(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9", "worth 0.5"])
    group = await load_group(store, group_id)
    async with judging() as context:
        first, again = await score_group(group, context), await score_group(group, context)
    assert rewards(again) == rewards(first) == [0.2, 0.9, 0.5]
    assert (len(server.requests), again.new.tokens_in, again.new.reply) == (1, 0, first.new.reply)
