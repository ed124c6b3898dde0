"""Scores are immutable rows; a group points at its current one, and what failed says why."""

from __future__ import annotations

import pytest

from recorder.errors import Conflict, NotFound
from recorder.queue.claims import GroupClaim, claim_for_judging
from recorder.queue.judging import scores
from recorder.queue.judging.rescoring import request_rescore
from recorder.queue.judging.scores import NewPart
from recorder.states import GroupState
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import groups
from recorder.store.schema import scores as table
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score


async def claimed(rows: Rows, members: int = 2) -> GroupClaim:
    await rows.ready_group(members)
    claim = await claim_for_judging(Project(rows.store, PROJECT), "judge", 60)
    assert claim is not None
    return claim


async def test_a_score_and_its_group_change_together(rows: Rows) -> None:
    claim = await claimed(rows)
    first, second = await rows.members(claim.group_id)
    parts = [
        NewPart(first, "reward", 0.75, explanation="quick and right"),
        NewPart(first, "ruler", 0.5, weight=0.5),
        NewPart(second, "reward", None, explanation="the check timed out"),
    ]
    score = new_score(
        "recipe", parts=parts, judge_model="m", judge_version="m-1", prompt_hash="p", order_seed=7, reply="{}",
        tokens_in=10, tokens_out=2, cost_usd=0.01, latency_s=1.5,
    )  # fmt: skip
    score_id = await scores.record_score(rows.store, claim, score)
    row = await rows.get(groups, claim.group_id)
    assert (row["state"], row["current_score_id"], row["lease_owner"]) == ("scored", score_id, None)
    stored = await scores.get_score(rows.store, score_id)
    assert (stored.group_id, stored.judge_version, stored.order_seed, stored.cost_usd) == (
        claim.group_id,
        "m-1",
        7,
        0.01,
    )
    assert set(stored.parts) == set(parts)
    assert await scores.score_rewards(rows.store, score_id) == {first: 0.75, second: None}
    assert await scores.list_scores(rows.store, claim.group_id) == [stored]


async def test_the_cache_is_the_newest_row_with_the_same_prompt_and_recipe(rows: Rows) -> None:
    old = await claimed(rows)
    await scores.record_score(rows.store, old, await rows.judgement(old, reply="old"))
    new = await claimed(rows)
    score_id = await scores.record_score(rows.store, new, await rows.judgement(new, reply="new"))
    found = await scores.find_cached_score(Project(rows.store, PROJECT), "recipe", "prompt")
    assert found is not None
    assert (found.id, found.reply, len(found.parts)) == (score_id, "new", 2)
    assert await scores.find_cached_score(Project(rows.store, PROJECT), "other", "prompt") is None
    assert await scores.find_cached_score(Project(rows.store, PROJECT), "recipe", "other") is None
    assert await scores.find_cached_score(Project(rows.store, "other"), "recipe", "prompt") is None


@pytest.mark.parametrize("fault", ["stranger", "twice"])
async def test_a_score_about_the_wrong_trajectories_is_refused_whole(rows: Rows, fault: str) -> None:
    claim = await claimed(rows)
    first, _ = await rows.members(claim.group_id)
    other = await rows.trajectory(await rows.group())
    parts = [NewPart(first, "reward", 1.0), NewPart(other if fault == "stranger" else first, "reward", 0.0)]
    with pytest.raises(Conflict, match="nothing was scored"):
        await scores.record_score(rows.store, claim, new_score("r", parts=parts))
    assert await rows.all(table) == []
    assert await rows.state(groups, claim.group_id) == "judging"


async def test_an_unscored_group_says_why_and_when_it_is_tried_again(rows: Rows) -> None:
    claim = await claimed(rows)
    await scores.mark_unscored(rows.store, claim, "judge_timeout", {"message": "60 s"}, try_after_s=30)
    row = await rows.get(groups, claim.group_id)
    assert (row["state"], row["reason"], row["tries"], row["lease_owner"]) == ("unscored", "judge_timeout", 1, None)
    async with rows.store.read() as conn:
        assert 20 < row["try_after"] - (await conn.execute(now().select())).scalar_one() <= 30
    [entry] = await ledger.object_entries(rows.store, "group", claim.group_id)
    assert entry.code == "judge_timeout"
    assert entry.detail == {"detail": {"message": "60 s"}, "try_after_s": 30, "tries": 1}


async def test_a_group_scored_at_last_forgets_its_failures(rows: Rows) -> None:
    claim = await claimed(rows)
    await scores.mark_unscored(rows.store, claim, "down", None, try_after_s=-1)
    again = await claim_for_judging(Project(rows.store, PROJECT), "judge", 60)
    assert again is not None
    await scores.record_score(rows.store, again, await rows.judgement(again))
    row = await rows.get(groups, claim.group_id)
    assert (row["state"], row["reason"], row["try_after"]) == ("scored", None, None)


async def test_leaving_out_writes_the_reason_for_the_group_and_each_member(rows: Rows) -> None:
    claim = await claimed(rows, members=3)
    await scores.exclude_group(rows.store, claim, "unjudgeable", {"tries": 5})
    row = await rows.get(groups, claim.group_id)
    assert (row["state"], row["reason"]) == ("left_out", "unjudgeable")
    [entry] = await ledger.object_entries(rows.store, "group", claim.group_id)
    assert (entry.code, entry.detail) == ("unjudgeable", {"tries": 5})
    assert await ledger.count_codes(Project(rows.store, PROJECT), "trajectory") == {"unjudgeable": 3}


@pytest.mark.parametrize("purpose", ["val", "eval"])
async def test_a_judged_validation_is_measured_and_is_judged_again_after_feedback(rows: Rows, purpose: str) -> None:
    group = await rows.scored_group(1, purpose=purpose)
    row = await rows.get(groups, group)
    assert (row["state"], row["reason"]) == ("measured", None)
    assert await scores.current_scores(rows.store, [group]) == ({group: row["current_score_id"]}, 0)
    project = Project(rows.store, PROJECT)
    assert await claim_for_judging(project, "judge", 60) is None
    await request_rescore(project, group, by="ada", why="a new rubric")
    claim = await claim_for_judging(project, "judge", 60)
    assert claim is not None
    assert claim.group_id == group
    await scores.record_score(rows.store, claim, await rows.judgement(claim))
    assert await rows.state(groups, group) == "measured"


async def test_a_validation_that_no_judge_can_score_is_no_exclusion(rows: Rows) -> None:
    group = await rows.ready_group(1, purpose="val")
    trained = await rows.ready_group(1)
    project = Project(rows.store, PROJECT)
    assert await scores.exclude_lone_groups(project, "ruler_needs_two", {"detail": "alone"}) == 1
    assert await rows.state(groups, trained) == "left_out"
    row = await rows.get(groups, group)
    assert (row["state"], row["reason"]) == ("measured", "ruler_needs_two")
    assert await ledger.object_entries(rows.store, "group", group) == []
    (member,) = await rows.members(group)
    assert await ledger.object_entries(rows.store, "trajectory", member) == []


@pytest.mark.parametrize(("code", "entries"), [("ruler_needs_two", 0), ("check_undecided", 1)])
async def test_what_a_judge_could_not_do_for_a_validation_is_told_once(rows: Rows, code: str, entries: int) -> None:
    group = await rows.ready_group(2, purpose="val")
    claim = await claim_for_judging(Project(rows.store, PROJECT), "judge", 60)
    assert claim is not None
    await scores.exclude_group(rows.store, claim, code, "why")
    row = await rows.get(groups, group)
    assert (row["state"], row["reason"], row["lease_owner"]) == ("measured", code, None)
    assert [one.code for one in await ledger.object_entries(rows.store, "group", group)] == [code] * entries
    for member in await rows.members(group):
        assert await ledger.object_entries(rows.store, "trajectory", member) == []


async def test_many_scores_are_read_at_once(rows: Rows) -> None:
    ids = [await rows.score(await rows.ready_group()) for _ in range(3)]
    found = await scores.get_scores(rows.store, [*ids, "nothing"])
    assert found == {id_: await scores.get_score(rows.store, id_) for id_ in ids}
    assert [len(score.parts) for score in found.values()] == [2, 2, 2]
    assert await scores.get_scores(rows.store, []) == {}


async def test_scores_beyond_a_page_are_read_too(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "PAGE", 2)
    ids = [await rows.score(await rows.ready_group()) for _ in range(5)]
    assert set(await scores.get_scores(rows.store, ids)) == set(ids)


async def test_a_score_that_is_not_there_is_not_found(rows: Rows) -> None:
    with pytest.raises(NotFound, match="no score nothing"):
        await scores.get_score(rows.store, "nothing")
    assert await scores.score_rewards(rows.store, "nothing") == {}


async def test_groups_that_were_complete_long_ago_are_left_out(rows: Rows) -> None:
    alias = await rows.alias()
    old = await rows.ready_group(ready_at=now() - 100, alias_id=alias.id)
    fresh = await rows.ready_group()
    measured = await rows.ready_group(ready_at=now() - 100, purpose="eval")
    planned = await rows.ready_group(ready_at=now() - 100, campaign_id="campaign_1")
    ready = (GroupState.READY, GroupState.UNSCORED)
    assert await scores.exclude_old_groups(Project(rows.store, PROJECT), ready, 60, alias_id="another") == 0
    assert await scores.exclude_old_groups(Project(rows.store, PROJECT), ready, 60) == 1
    states = [await rows.state(groups, g) for g in (old, fresh, measured, planned)]
    assert states == ["left_out", "ready", "ready", "ready"]
    assert {e.code for e in await ledger.object_entries(rows.store, "group", old)} == {"too_old"}
    assert (
        await scores.exclude_old_groups(Project(rows.store, PROJECT), [GroupState.SCORED], 60, alias_id=alias.id) == 0
    )


async def test_groups_of_one_are_left_out_and_of_late_only_the_new_ones(rows: Rows) -> None:
    old = await rows.ready_group(members=1, ready_at=now() - 100)
    new = await rows.ready_group(members=1, ready_at=now() - 10)
    two = await rows.ready_group(members=2)
    assert await scores.exclude_lone_groups(Project(rows.store, PROJECT), "alone", {}, 60) == 1
    assert [await rows.state(groups, g) for g in (old, new, two)] == ["ready", "left_out", "ready"]
    assert await scores.exclude_lone_groups(Project(rows.store, PROJECT), "alone", {}) == 1
    assert [await rows.state(groups, g) for g in (old, new, two)] == ["left_out", "left_out", "ready"]


async def test_text_that_a_database_cannot_hold_is_escaped(rows: Rows) -> None:
    claim = await claimed(rows)
    first, _ = await rows.members(claim.group_id)
    odd = "half \ud83d of a \x00 pair"
    parts = [NewPart(first, "reward", 0.5, explanation=odd)]
    new = new_score("recipe", judge_version=odd, reply='{"explanation": "\ud83d"}', parts=parts)
    stored = await scores.get_score(rows.store, await scores.record_score(rows.store, claim, new))
    assert stored.parts[0].explanation == stored.judge_version == r"half \ud83d of a \u0000 pair"
    assert stored.reply == r'{"explanation": "\ud83d"}'  # which JSON reads as before
