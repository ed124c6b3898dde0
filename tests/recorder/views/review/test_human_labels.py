"""What a person answered: feedback on the better run, with where it stood; drawn sides; ties; runs of two groups."""

from __future__ import annotations

import pytest

from recorder.errors import Conflict, NotFound
from recorder.queue import claims, feedback
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.store import schema
from recorder.store.database import Project
from recorder.store.schema import groups
from recorder.store.sql import now
from recorder.views.review.human_labels import PreferenceLabel, ReviewAnswer, list_preferences, record_choice
from recorder.views.review.trajectories import StableDraw, project_draw
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.views.review.waiting import ME, disputed_group


async def shown(rows: Rows, one: str, other: str, person: str = ME) -> tuple[str, str]:
    return (await project_draw(Project(rows.store, PROJECT))).sides(person, one, other)


async def marked(rows: Rows, group: str) -> bool:
    return (await rows.get(groups, group))["try_after"] is not None


@pytest.mark.parametrize(("said", "where"), [(ReviewAnswer.A, "first"), (ReviewAnswer.B, "second")])
async def test_the_better_run_has_a_preference_that_says_where_it_stood(
    rows: Rows, said: ReviewAnswer, where: str
) -> None:
    group = await rows.ready_group(members=2)
    first, second = await shown(rows, *await rows.members(group))
    better, worse = (first, second) if said is ReviewAnswer.A else (second, first)
    id_ = await record_choice(Project(rows.store, PROJECT), first, second, said, by=ME, comment="kinder")
    [written] = await feedback.list_feedback(rows.store, better)
    assert (written.id, written.name, written.value, written.comment) == (id_, "preference", True, "kinder")
    assert written.tags == {"loser": worse, "group": group, "by": ME, "shown": where}
    assert await feedback.list_feedback(rows.store, worse) == []


async def test_neither_is_a_tie_on_the_run_that_was_shown_first(rows: Rows) -> None:
    group = await rows.ready_group(members=2)
    first, second = await shown(rows, *await rows.members(group))
    await record_choice(Project(rows.store, PROJECT), first, second, ReviewAnswer.SAME, by=ME)
    [written] = await feedback.list_feedback(rows.store, first)
    assert (written.name, written.tags["other"], written.tags["shown"]) == ("tie", second, "first")
    assert await list_preferences(Project(rows.store, PROJECT)) == [PreferenceLabel(group, first, second, tie=True)]


async def test_only_what_was_shown_can_be_answered(rows: Rows) -> None:
    group = await rows.ready_group(members=2)
    first, second = await shown(rows, *await rows.members(group))
    with pytest.raises(Conflict, match="open the pair again"):
        await record_choice(Project(rows.store, PROJECT), second, first, ReviewAnswer.A, by=ME)
    sides = await shown(rows, first, "traj_gone")
    with pytest.raises(NotFound, match="no trajectory 'traj_gone'"):
        await record_choice(Project(rows.store, PROJECT), *sides, ReviewAnswer.A, by=ME)
    assert await rows.all(schema.feedback) == []


async def test_runs_of_two_groups_are_noted_with_both_and_score_neither(rows: Rows) -> None:
    group, [one, _] = await disputed_group(rows, 2)
    elsewhere = await rows.ready_group(members=1)
    [other] = await rows.members(elsewhere)
    first, second = await shown(rows, one, other)
    await record_choice(Project(rows.store, PROJECT), first, second, ReviewAnswer.A, by=ME)
    [written] = await feedback.list_feedback(rows.store, first)
    own, others = (group, elsewhere) if first == one else (elsewhere, group)
    assert (written.tags["group"], written.tags["other_group"]) == (own, others)
    assert not await marked(rows, group)
    assert await list_preferences(Project(rows.store, PROJECT)) == []  # no judge compares runs of two groups


async def test_a_group_that_waits_is_scored_once_nobody_chose_for_a_while(rows: Rows) -> None:
    group, members = await disputed_group(rows, 2)
    first, second = await shown(rows, *members)
    await record_choice(Project(rows.store, PROJECT), first, second, ReviewAnswer.SAME, by=ME)
    in_s = await claims.next_try_in(Project(rows.store, PROJECT))
    assert in_s is not None
    assert feedback.SETTLES_S < in_s <= feedback.CHOICE_SETTLES_S
    await rows.set(groups, group, try_after=now())
    claim = await claims.claim_for_judging(Project(rows.store, PROJECT), "j", 60)
    assert claim is not None
    assert claim.group_id == group


@pytest.mark.parametrize("of_person", [True, False])
async def test_a_later_choice_has_a_group_scored_again_that_a_person_scored_and_no_other(
    rows: Rows, of_person: bool
) -> None:
    group = await rows.ready_group(members=3)
    members = await rows.members(group)
    claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
    assert claim is not None
    part = "ruler.person" if of_person else "ruler.tone"
    new = await rows.judgement(claim)
    chosen = [NewPart(members[0], part, 1.0), NewPart(members[1], part, 0.0)]
    await scores.record_score(rows.store, claim, await rows.judgement(claim, parts=[*new.parts, *chosen]))
    first, second = await shown(rows, members[1], members[2])
    await record_choice(Project(rows.store, PROJECT), first, second, ReviewAnswer.A, by=ME)
    assert await marked(rows, group) == of_person


def test_sides_are_drawn_for_each_person_stay_and_come_out_even() -> None:
    draw = StableDraw(b"key")
    pairs = [(f"traj_{number}", f"traj_{number}x") for number in range(400)]
    mine = [draw.sides(ME, *pair) for pair in pairs]
    assert [draw.sides(ME, *reversed(pair)) for pair in pairs] == mine
    assert 150 < sum(shown == pair for shown, pair in zip(mine, pairs, strict=True)) < 250
    assert [draw.sides("another", *pair) for pair in pairs] != mine
    assert [StableDraw(b"another key").sides(ME, *pair) for pair in pairs] != mine
