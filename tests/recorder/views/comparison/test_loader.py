"""A comparison read from a store: recorded turns, scores, preferences, what steps compared with."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import insert

from benchmarks.pages import listening, walks
from recorder.errors import NotFound
from recorder.queue import feedback
from recorder.queue.groups.disputes import PairChoice
from recorder.store.database import Project
from recorder.store.schema import step_baselines, step_groups, steps
from recorder.views.comparison.judge_records import NEWEST, PromptMessage, load_judgings
from recorder.views.comparison.loader import MOST_COLUMNS, load_comparison, load_with_two
from recorder.views.comparison.word_changes import TextPart
from tests.recorder.attempts import group_of, scored
from tests.recorder.rows import PROJECT, Rows

FIND = ("find", {"q": "4821"}, "Leipzig")


async def test_recorded_attempts_stand_side_by_side(rows: Rows) -> None:
    group, (one, other) = await group_of(rows.store, [[FIND, "Monday"], [("find", {"q": "9"}, "none"), "Monday"]])
    await scored(rows.store, group, {one: 0.2, other: 0.9})
    found = await load_comparison(rows.store, group)
    assert [(a.trajectory.id, a.reward) for a in found.attempts] == [(other, 0.9), (one, 0.2)]
    assert [a.advantage for a in found.attempts] == pytest.approx([0.35, -0.35])
    assert [cell.role for cell in found.beginning] == ["system", "user"]
    assert [[cell.state for cell in row] for row in found.rows] == [["differs", "differs"], ["shared", "shared"]]
    assert found.rows[0][1].differences == ("arguments of find", "result of find")
    assert (found.group.judge, found.group.members, found.group.external_id) == ("judge-model", 2, "orders")
    assert all(cell.call_id for cell in found.rows[0])


async def test_two_are_compared_where_two_are_chosen_by_whichever_id(rows: Rows) -> None:
    group, ids = await group_of(rows.store, [["a"], ["b"], ["c"]])
    found = await load_comparison(rows.store, group, left="run-2", right=ids[0])
    assert [found.attempt(number).trajectory.id for number in found.columns] == [ids[0], ids[2]]
    found = await load_comparison(rows.store, group, left=ids[1][-8:])
    assert [found.attempt(number).trajectory.id for number in found.columns] == [ids[0], ids[1]]
    with pytest.raises(NotFound, match="no attempt 'nobody'"):
        await load_comparison(rows.store, group, left="nobody")


async def test_of_many_attempts_the_best_and_the_worst_come_first(rows: Rows) -> None:
    group, ids = await group_of(rows.store, [[str(at)] for at in range(MOST_COLUMNS + 2)])
    await scored(rows.store, group, {id_: at / 10 for at, id_ in enumerate(ids)})
    found = await load_comparison(rows.store, group)
    last = MOST_COLUMNS + 2
    assert (found.columns, len(found.attempts)) == ((1, last, *range(2, MOST_COLUMNS)), last)
    assert found.attempt(1).trajectory.id == ids[-1]


async def test_identical_attempts_share_a_column_unless_two_are_chosen(rows: Rows) -> None:
    group, ids = await group_of(rows.store, [["a"], ["b"], ["a"], ["a"], ["c"]])
    await scored(rows.store, group, dict(zip(ids, (0.9, 0.1, 0.9, 0.3, 0.5), strict=True)))
    found = await load_comparison(rows.store, group)
    assert (found.columns, found.identical) == ((1, 5, 3, 4), ((2,), (), (), ()))
    assert [len(row) for row in found.rows] == [4]
    chosen = await load_comparison(rows.store, group, left=ids[0], right=ids[2])
    assert (chosen.columns, chosen.identical) == ((1, 2), ())


async def test_all_identical_attempts_are_one_column(rows: Rows) -> None:
    group, _ = await group_of(rows.store, [["a"], ["a"], ["a"]])
    found, narrow = await load_with_two(rows.store, group)
    assert (found.columns, found.identical, found.rows, narrow) == ((1,), ((2, 3),), (), None)


async def test_what_differs_is_said_by_words(rows: Rows) -> None:
    near = ("find", {"q": "near Leipzig"}, "on its way to Leipzig")
    far = ("find", {"q": "near Bonn"}, "on its way to Bonn")
    group, (one, other) = await group_of(rows.store, [[near, "It comes on Monday."], [far, "It comes on Friday."]])
    await scored(rows.store, group, {one: 0.9, other: 0.2})
    found = await load_comparison(rows.store, group)
    asked, answer = found.rows[0][1], found.rows[1][1]

    def gone(changes: Sequence[TextPart]) -> list[tuple[str, str]]:
        return [(part.kind, part.text) for part in changes if part.kind != "same"]

    [call] = asked.calls
    assert gone(call.arguments[0].changes) == gone(call.result_changes) == [("removed", "Leipzig"), ("added", "Bonn")]
    assert gone(answer.changes) == [("removed", "Monday"), ("added", "Friday")]
    assert found.rows[1][0].changes == ()


async def test_a_group_that_is_not_there_is_not_found(rows: Rows) -> None:
    with pytest.raises(NotFound, match="no group 'none'"):
        await load_comparison(rows.store, "none")


async def test_an_open_group_is_compared_as_it_stands(rows: Rows) -> None:
    group, _ = await group_of(rows.store, [["a"], ["b"]], ended=False)
    found = await load_comparison(rows.store, group)
    assert (found.group.state, found.group.score_id, found.rule) == ("open", None, "there are no rewards yet")


async def test_what_people_prefer_is_told_by_the_numbers_of_attempts(rows: Rows) -> None:
    group, (one, other) = await group_of(rows.store, [["a"], ["b"]])
    await scored(rows.store, group, {one: 0.2, other: 0.9})
    await feedback.write_preferences(Project(rows.store, PROJECT), group, [(one, other)], by="me", comment="kinder")
    [found] = (await load_comparison(rows.store, group)).preferences
    assert (found.winner, found.loser, found.by, found.comment) == (2, 1, "me", "kinder")
    assert (found.tie, found.sentence()) == (False, "attempt 2 is better than attempt 1")


async def test_a_tie_is_told_as_one_and_what_was_taken_back_is_not(rows: Rows) -> None:
    group, (one, other) = await group_of(rows.store, [["a"], ["b"]])
    await scored(rows.store, group, {one: 0.2, other: 0.9})
    tags = {"loser": other, "group": group, "by": "me"}
    await feedback.add_feedback(Project(rows.store, PROJECT), one, "preference", False, tags=tags)
    await feedback.write_choice(
        Project(rows.store, PROJECT), PairChoice(one, other, tie=True), by="me", shown="first", comment="alike"
    )
    [found] = (await load_comparison(rows.store, group)).preferences
    assert (found.winner, found.loser, found.tie, found.comment) == (2, 1, True, "alike")
    assert found.sentence() == "attempts 2 and 1 are equally good"


async def test_a_trained_group_says_what_its_step_compared_with(rows: Rows) -> None:
    alias = await rows.alias()
    group, (one, other) = await group_of(rows.store, [["a"], ["b"]])
    score = await scored(rows.store, group, {one: 0.2, other: 0.9})
    step = {"id": "step_1", "project_id": PROJECT, "alias_id": alias.id, "number": 1, "parent_version_id": "v0"}
    await rows.insert(steps, {**step, "state": "done", "metrics": {}, "started_at": 1.0})
    compared = {"step_id": "step_1", "reward": 0.9, "mean": 0.5, "std": 0.1, "rewards": 64, "same_tools": True}
    async with rows.store.write() as conn:
        await conn.execute(insert(step_groups).values(step_id="step_1", group_id=group, score_id=score))
        await conn.execute(insert(step_baselines).values(trajectory_id=other, **compared))
    found = await load_comparison(rows.store, group)
    assert [a.advantage for a in found.attempts] == [pytest.approx(0.4), None]
    assert (found.group.step, found.group.step_version) == (1, None)


@pytest.mark.sqlite_only("its plans")
async def test_no_query_walks_a_table_that_grows(rows: Rows) -> None:
    group, (one, other) = await group_of(rows.store, [["a"], ["b"]])
    await scored(rows.store, group, {one: 0.2, other: 0.9})
    await feedback.write_preferences(Project(rows.store, PROJECT), group, [(one, other)], by="me")
    with listening(rows.store) as heard:
        await load_comparison(rows.store, group)
        await load_judgings(rows.store, group)
    assert len(heard) > 10
    assert await walks(rows.store, heard) == []


async def test_judgings_come_newest_first_with_reply_and_reasons(rows: Rows) -> None:
    group, (one, other) = await group_of(rows.store, [["a"], ["b"]])
    for at in range(NEWEST + 1):
        await scored(rows.store, group, {one: 0.2, other: 0.9}, reply=f"reply {at}")
    found = await load_judgings(rows.store, group)
    assert [judging.reply for judging in found] == [f"reply {at}" for at in range(NEWEST, 0, -1)]
    assert [judging.current for judging in found] == [True] + [False] * (NEWEST - 1)
    assert [(run.trajectory_id, run.reward, run.explanation) for run in found[0].trajectories] == [
        (other, 0.9, "worth 0.9"),
        (one, 0.2, "worth 0.2"),
    ]
    assert found[0].trajectories[0].parts[0].explanation == "because of 0.9"
    assert [judging.prompt for judging in found] == [None] * NEWEST
    told = await load_judgings(rows.store, group, prompt=found[1].id)
    assert [judging.prompt for judging in told] == [
        None,
        (PromptMessage("user", "which is best?"),),
        *[None] * (NEWEST - 2),
    ]
