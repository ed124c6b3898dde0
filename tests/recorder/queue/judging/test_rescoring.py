"""Which groups may be scored again, by which recipe they were scored, and scores that are history from the start."""

import pytest

from recorder.errors import Conflict, NotFound
from recorder.queue import campaigns, claims
from recorder.queue.judging import rescoring, scores
from recorder.queue.judging.rescoring import KEEPING, OF_SCORES, list_rescorable
from recorder.queue.judging.scores import NewPart
from recorder.registry.ancestry import OF_VERSIONS
from recorder.states import GroupState
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import groups
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score


async def found(rows: Rows, *, anew: bool = False) -> set[str]:
    return {one.id for one in await list_rescorable(Project(rows.store, PROJECT), anew=anew)}


async def test_what_counts_goes_by_state(rows: Rows) -> None:
    by_state = {state: await rows.ready_group() for state in GroupState}
    for state, group_id in by_state.items():
        await rows.set(groups, group_id, state=state, reason="too_few" if state == "left_out" else None)
    unmeant = {by_state[GroupState.OPEN], by_state[GroupState.LEFT_OUT]}
    assert await found(rows) == await found(rows, anew=True) == set(by_state.values()) - unmeant


async def test_of_what_is_left_out_only_what_a_score_may_bring_back_counts(rows: Rows) -> None:
    of = {reason: await rows.ready_group() for reason in (*OF_SCORES, *OF_VERSIONS)}
    for reason, group_id in of.items():
        await rows.set(groups, group_id, state="left_out", reason=reason)
    assert await found(rows) == {of[reason] for reason in OF_SCORES}
    assert await found(rows, anew=True) == set(of.values())
    for reason, group_id in of.items():
        taken = await claims.claim_one_for_judging(
            rows.store, group_id, "me", 60, ended_for=rescoring.rescorable_reasons(anew=False)
        )
        assert (taken is not None) == (reason in OF_SCORES)


async def test_they_come_oldest_first_a_page_at_a_time(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescoring, "PAGE", 2)
    made = [await rows.ready_group() for _ in range(5)]
    assert [one.id for one in await list_rescorable(Project(rows.store, PROJECT))] == made


async def test_only_an_aliass_or_a_campaigns(rows: Rows) -> None:
    alias = await rows.alias()
    of_alias = await rows.ready_group(alias_id=alias.id)
    of_campaign = await rows.ready_group(campaign_id="camp_1")
    assert [one.id for one in await list_rescorable(Project(rows.store, PROJECT), alias_id=alias.id)] == [of_alias]
    assert [one.id for one in await list_rescorable(Project(rows.store, PROJECT), campaign_id="camp_1")] == [
        of_campaign
    ]
    assert await list_rescorable(Project(rows.store, "another")) == []


async def recipe(rows: Rows, group_id: str) -> str | None:
    return next(one.recipe_hash for one in await list_rescorable(Project(rows.store, PROJECT)) if one.id == group_id)


async def test_the_current_scores_recipe_counts_and_the_newest_where_the_score_stays(rows: Rows) -> None:
    group_id = await rows.scored_group()
    assert await recipe(rows, await rows.ready_group()) is None
    for state in KEEPING:
        await rows.set(groups, group_id, state=state)
        assert await scores.record_history(rows.store, group_id, new_score(f"newer {state}"), KEEPING)
        assert await recipe(rows, group_id) == f"newer {state}"
    await rows.set(groups, group_id, state="scored")
    assert await recipe(rows, group_id) == "recipe"


async def test_a_group_says_by_which_recipe_it_is_judged(rows: Rows) -> None:
    alias = await rows.alias()
    named_in: tuple[dict[str, str | None], ...] = (
        {"judge_recipe": "strict"},
        {"reward_recipe": "older"},
        {"judge_recipe": None},
        {"reward_recipe": None},
    )
    begun = [
        await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, f"c{n}", settings)
        for n, settings in enumerate(named_in)
    ]
    await rows.ready_group()
    for campaign_id in (campaign.id for campaign in begun):
        await rows.ready_group(alias_id=alias.id, campaign_id=campaign_id)
    named = [(one.alias, one.judge_recipe) for one in await list_rescorable(Project(rows.store, PROJECT))]
    assert named == [(None, None), *(("helpdesk", recipe) for recipe in ("strict", "older", None, None))]


async def test_history_moves_nothing_and_is_only_of_the_groups_own_runs(rows: Rows) -> None:
    group_id = await rows.scored_group()
    await rows.set(groups, group_id, state="trained")
    before = dict(await rows.get(groups, group_id))
    score_id = await scores.record_history(rows.store, group_id, new_score("newer"), KEEPING)
    assert [one.id for one in await scores.list_scores(rows.store, group_id)][-1] == score_id
    stranger = new_score("newest", parts=[NewPart("traj_x", "reward", 1.0)])
    with pytest.raises(Conflict, match="has no trajectory traj_x"):
        await scores.record_history(rows.store, group_id, stranger, KEEPING)
    assert await scores.record_history(rows.store, group_id, new_score("newest"), [GroupState.TRIED]) is None
    assert dict(await rows.get(groups, group_id)) == before
    assert len(await scores.list_scores(rows.store, group_id)) == 2


@pytest.mark.parametrize("state", ["scored", "unscored"])
async def test_a_group_is_put_before_the_judge_again_and_keeps_its_score(rows: Rows, state: str) -> None:
    group = await rows.scored_group()
    before = await rows.get(groups, group)
    await rows.set(groups, group, state=state)
    await rescoring.request_rescore(Project(rows.store, PROJECT), group, by="me", why="the rubric was wrong")
    after = await rows.get(groups, group)
    assert (after["state"], after["current_score_id"]) == (state, before["current_score_id"])
    claim = await claims.claim_for_judging(Project(rows.store, PROJECT), "judge", 60)
    assert claim is not None
    assert claim.group_id == group
    [entry] = await ledger.object_entries(rows.store, "group", group)
    assert (entry.code, entry.detail) == (rescoring.REQUESTED, {"by": "me", "why": "the rubric was wrong"})


async def test_a_group_that_was_left_out_for_its_score_waits_for_the_judge_again(rows: Rows) -> None:
    group = await rows.scored_group(state="ready")
    await rows.set(groups, group, state="left_out", reason="zero_variance")
    await rescoring.request_rescore(Project(rows.store, PROJECT), group, by="me", why="")
    row = await rows.get(groups, group)
    assert (row["state"], row["reason"], row["lease_owner"]) == ("ready", None, None)


@pytest.mark.parametrize(
    ("state", "reason", "why"),
    [
        ("open", None, "still open"),
        ("ready", None, "waits for the judge already"),
        ("trained", None, "keeps the score that it was trained on"),
        ("left_out", "deleted", "excluded for good"),
    ],
)
async def test_a_group_that_cannot_be_scored_again_says_why(
    rows: Rows, state: str, reason: str | None, why: str
) -> None:
    group = await rows.scored_group()
    await rows.set(groups, group, state=state, reason=reason)
    with pytest.raises(Conflict, match=why):
        await rescoring.request_rescore(Project(rows.store, PROJECT), group, by="me", why="")
    assert await ledger.object_entries(rows.store, "group", group) == []
    with pytest.raises(NotFound):
        await rescoring.request_rescore(Project(rows.store, "elsewhere"), group, by="me", why="")
