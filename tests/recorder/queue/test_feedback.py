"""Feedback is about a trajectory of the project, and carries a number, a truth or a text; a score that it
changes is made again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import InvalidId, NotFound
from recorder.queue import claims, feedback
from recorder.queue.feedback import check_value
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import groups
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score


async def test_feedback_is_read_back_in_order(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group(), answered=False)
    call = await rows.call(trajectory)
    first = await feedback.add_feedback(
        Project(rows.store, PROJECT), trajectory, "resolved", True, comment="fine", tags={"by": "qa"}
    )
    second = await feedback.add_feedback(Project(rows.store, PROJECT), trajectory, "score", 0.5, call_id=call)
    assert await feedback.list_feedback(rows.store, trajectory) == [first, second]
    assert (first.value, first.comment, first.tags, first.call_id) == (True, "fine", {"by": "qa"}, None)
    assert (second.value, second.call_id) == (0.5, call)


async def test_what_is_not_there_gets_no_feedback(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group())
    stranger = await rows.call(await rows.trajectory(await rows.group()))
    with pytest.raises(NotFound, match="no trajectory 'nothing'"):
        await feedback.add_feedback(Project(rows.store, PROJECT), "nothing", "score", 1)
    with pytest.raises(NotFound, match="in project 'other'"):
        await feedback.add_feedback(Project(rows.store, "other"), trajectory, "score", 1)
    with pytest.raises(NotFound, match="has no call"):
        await feedback.add_feedback(Project(rows.store, PROJECT), trajectory, "score", 1, call_id=stranger)
    with pytest.raises(InvalidId):
        await feedback.add_feedback(Project(rows.store, PROJECT), trajectory, "a name with spaces", 1)
    assert await feedback.list_feedback(rows.store, trajectory) == []


@given(st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(max_size=50) | st.integers())
def test_numbers_truths_and_texts_pass_unchanged(value: object) -> None:
    assert check_value("resolved", value) == value
    assert type(check_value("resolved", value)) is type(value)


@pytest.mark.parametrize("value", [None, [], {"a": 1}, float("nan"), float("inf"), "x" * 100_001])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="feedback 'score'"):
        check_value("score", value)


@pytest.mark.parametrize("name", ["comment", "demonstration"])
def test_reserved_names_take_text(name: str) -> None:
    assert check_value(name, "like this") == "like this"
    with pytest.raises(ValueError, match="takes text"):
        check_value(name, 1.0)


async def marked(rows: Rows, group: str) -> bool:
    return (await rows.get(groups, group))["try_after"] is not None


async def liked_group(rows: Rows, alias_id: str | None = None) -> tuple[str, list[str]]:
    """A scored group whose recipe asks for the feedback `liked`, which nobody gave."""
    group = await rows.ready_group(alias_id=alias_id)
    claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
    assert claim is not None
    members = await rows.members(group)
    parts = [NewPart(id_, name, value) for id_ in members for name, value in (("reward", 0.5), ("liked", None))]
    await scores.record_score(rows.store, claim, new_score("recipe", parts=parts))
    return group, members


async def test_feedback_that_comes_after_the_score_has_the_group_scored_again_before_it_is_trained(rows: Rows) -> None:
    alias = await rows.alias()
    group, (one, _) = await liked_group(rows, alias.id)
    await feedback.add_feedback(Project(rows.store, PROJECT), one, "liked", True)
    assert await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9) == []
    assert (await claims.waiting_for_training(rows.store, alias.id)).groups == 0
    in_s = await claims.next_try_in(Project(rows.store, PROJECT))
    assert in_s is not None
    assert in_s <= feedback.SETTLES_S
    await rows.set(groups, group, try_after=now())
    claim = await claims.claim_for_judging(Project(rows.store, PROJECT), "j", 60)
    assert claim is not None
    assert claim.group_id == group
    await scores.record_score(rows.store, claim, await rows.judgement(claim))
    assert await claims.next_try_in(Project(rows.store, PROJECT)) is None
    assert len(await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9)) == 1


async def test_feedback_that_no_part_asks_for_moves_no_group(rows: Rows) -> None:
    group, (one, _) = await liked_group(rows)
    await feedback.add_feedback(Project(rows.store, PROJECT), one, "seen", True)
    await feedback.add_feedback(Project(rows.store, PROJECT), one, "comment", "liked")
    assert not await marked(rows, group)
    ready = await rows.ready_group()
    await feedback.add_feedback(Project(rows.store, PROJECT), (await rows.members(ready))[0], "liked", True)
    assert not await marked(rows, ready)


async def test_feedback_that_comes_while_a_judge_is_at_it_is_not_lost(rows: Rows) -> None:
    group = await rows.ready_group()
    claim = await claims.claim_for_judging(Project(rows.store, PROJECT), "j", 60)
    assert claim is not None
    await feedback.add_feedback(Project(rows.store, PROJECT), (await rows.members(group))[0], "liked", True)
    await scores.record_score(rows.store, claim, await rows.judgement(claim))
    assert await marked(rows, group)
    assert await rows.state(groups, group) == "scored"


@pytest.mark.parametrize("state", ["training", "tried", "trained"])
async def test_feedback_that_comes_in_training_is_told_to_be_late(rows: Rows, state: str) -> None:
    group, (one, _) = await liked_group(rows)
    await rows.set(groups, group, state=state)
    await feedback.add_feedback(Project(rows.store, PROJECT), one, "liked", True)
    [entry] = await ledger.object_entries(rows.store, "trajectory", one)
    assert (entry.code, entry.detail) == ("feedback_late", {"name": "liked", "group": group, "state": state})
    assert await rows.state(groups, group) == state
    assert await marked(rows, group) == (state != "trained")  # scored again, should its version come to nothing


async def test_a_preference_is_feedback_on_the_better_one_with_the_ids_of_the_other_and_the_group(rows: Rows) -> None:
    group = await rows.ready_group(members=2)
    better, worse = await rows.members(group)
    await feedback.write_preferences(Project(rows.store, PROJECT), group, [(better, worse)], by="me", comment="kinder")
    [written] = await feedback.list_feedback(rows.store, better)
    assert (written.name, written.value, written.comment) == ("preference", True, "kinder")
    assert written.tags == {"loser": worse, "group": group, "by": "me"}
    assert await feedback.list_feedback(rows.store, worse) == []


async def test_preferences_are_written_all_or_none(rows: Rows) -> None:
    group, elsewhere = await rows.ready_group(members=2), await rows.ready_group(members=1)
    (one, other), [stranger] = await rows.members(group), await rows.members(elsewhere)
    with pytest.raises(NotFound, match=f"has no attempt {stranger}"):
        await feedback.write_preferences(
            Project(rows.store, PROJECT), group, [(one, other), (other, stranger)], by="me"
        )
    with pytest.raises(ValueError, match="not better than itself"):
        await feedback.write_preferences(Project(rows.store, PROJECT), group, [(one, one)], by="me")
    assert await feedback.list_feedback(rows.store, one) == []


async def test_a_preference_has_a_group_scored_again_whose_score_asks_for_preferences(rows: Rows) -> None:
    group = await rows.ready_group(members=2)
    one, other = await rows.members(group)
    claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
    assert claim is not None
    parts = [NewPart(one, "preference", 0.5), NewPart(one, "reward", 0.5)]
    await scores.record_score(rows.store, claim, await rows.judgement(claim, parts=parts))
    await feedback.write_preferences(Project(rows.store, PROJECT), group, [(one, other)], by="me")
    assert await marked(rows, group)


@pytest.mark.parametrize(
    ("places", "pairs"),
    [
        ({}, []),
        ({"a": 1}, []),
        ({"b": 2, "a": 1, "c": 3}, [("a", "b"), ("b", "c")]),
        ({"a": 1, "b": 2, "c": 2, "d": 9}, [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]),
        ({"a": 1, "b": 1}, []),
    ],
)
def test_a_ranking_makes_the_pairs_of_neighbouring_places(places: dict[str, int], pairs: list[tuple[str, str]]) -> None:
    assert feedback.ranking_pairs(places) == pairs
