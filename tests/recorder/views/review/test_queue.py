"""What waits for a person: why each pair is there, in which order, and that nobody is asked twice."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from recorder.curation.review_requests import request_review
from recorder.errors import Conflict, NotFound
from recorder.maintenance.deletion import delete_trajectory
from recorder.store.database import Project, Store
from recorder.store.schema import groups, projects, trajectories
from recorder.views.review.candidates import GROUPS, RANKED
from recorder.views.review.human_labels import ReviewAnswer, record_choice
from recorder.views.review.queue import QueueRequest, load_queue
from recorder.views.review.shapes import QueuedPair, ReviewQueue, ReviewReason
from recorder.views.review.trajectories import project_draw
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.views.review.waiting import ME, alarm, disputed_group, judged_twice, scored_task, two_versions

pytestmark = pytest.mark.slow


async def waits(store: Store, person: str = ME, **asked: object) -> ReviewQueue:
    return await load_queue(Project(store, PROJECT), QueueRequest(person, **asked))  # type: ignore[arg-type]


def pair(entry: QueuedPair) -> set[str]:
    return {entry.first, entry.second}


async def alarms(store: Store) -> list[QueuedPair]:
    return [one for one in (await waits(store)).entries if one.why is ReviewReason.ALARM]


async def said(store: Store, entry: QueuedPair, answered: ReviewAnswer = ReviewAnswer.A, by: str = ME) -> str:
    return await record_choice(Project(store, PROJECT), entry.first, entry.second, answered, by=by)


async def test_an_empty_store_has_nothing_to_ask(store: Store) -> None:
    assert await waits(store) == ReviewQueue([], 0, 0)


async def test_a_group_is_asked_about_until_its_runs_are_in_order(rows: Rows) -> None:
    group, members = await disputed_group(rows, 3, external_id="order-7")
    asked: list[set[str]] = []
    while (found := await waits(rows.store)).entries:
        [entry] = found.entries
        assert (entry.why, entry.group_id, entry.external_id, found.disputed) == ("disagreement", group, "order-7", 1)
        assert "agree by 0.10" in entry.about
        assert pair(entry) <= set(members)
        asked.append(pair(entry))
        await said(rows.store, entry)
    assert 2 <= len(asked) <= 3
    assert len({frozenset(one) for one in asked}) == len(asked)
    assert found.disputed == 1  # it waits for a judge to score it


async def test_of_a_group_that_waits_nobody_is_asked_what_somebody_answered(rows: Rows) -> None:
    await disputed_group(rows, 2)
    [entry] = (await waits(rows.store)).entries
    await said(rows.store, entry)
    assert (await waits(rows.store, "somebody else")).entries == []


async def test_those_that_judges_agree_about_least_come_first_and_of_many_runs_a_few_are_ranked(rows: Rows) -> None:
    await disputed_group(rows, 2, agreement=0.2)
    worse, members = await disputed_group(rows, 12, agreement=-0.5)
    first, _ = (await waits(rows.store)).entries
    assert first.group_id == worse
    seen: set[str] = set()
    while entries := (await waits(rows.store, group=worse)).entries:
        seen |= pair(entries[0])
        await said(rows.store, entries[0])
    assert len(seen) == RANKED < len(members)


async def test_runs_that_did_not_end_by_themselves_are_not_shown(rows: Rows) -> None:
    _, members = await disputed_group(rows, 3)
    await rows.set(trajectories, members[0], state="errored")
    [entry] = (await waits(rows.store)).entries
    assert pair(entry) == set(members[1:])


async def test_the_largest_gains_since_the_last_version_come_next_largest_first(rows: Rows) -> None:
    alias, base, live = await two_versions(rows)
    for task, before, after in (("fell", 0.9, 0.1), ("rose", 0.1, 0.5), ("rose more", 0.0, 1.0)):
        await scored_task(rows, alias, base, task, before)
        await scored_task(rows, alias, live, task, after)
    await disputed_group(rows, 2)
    found = (await waits(rows.store)).entries
    gains = [one.about for one in found if one.why is ReviewReason.GAIN]
    assert found[0].why is ReviewReason.DISAGREEMENT
    assert [about.split("by ")[1].split()[0] for about in gains] == ["1", "0.4"]
    assert not any("helpdesk@" in about for about in gains)


async def test_a_ranking_judges_rewards_are_not_held_against_another_groups(rows: Rows) -> None:
    alias, base, live = await two_versions(rows)
    old = await scored_task(rows, alias, base, "task", 0.0, absolute=False)
    new = await scored_task(rows, alias, live, "task", 1.0, absolute=False)
    [entry] = [one for one in (await waits(rows.store)).entries if one.why is ReviewReason.GAIN]
    assert pair(entry) == {*old, *new}
    assert "no rewards tell" in entry.about


async def test_what_an_alarm_names_comes_beside_another_run_of_its_group(rows: Rows) -> None:
    group = await rows.scored_group(members=3)
    named = (await rows.members(group))[1]
    await alarm(rows, named, "traj_gone")
    [entry] = [one for one in (await waits(rows.store)).entries if one.why is ReviewReason.ALARM]
    assert named in pair(entry)
    assert pair(entry) <= set(await rows.members(group))
    assert entry.about == "The alarm length after step 4 names one of the two"


async def test_while_judges_have_drifted_apart_what_they_order_least_alike_waits(rows: Rows) -> None:
    for _ in range(5):
        await judged_twice(rows, (0.5, 0.5, 0.5), (0.1, 0.5, 0.9))
    turned = [(await judged_twice(rows, (0.9, 0.5, 0.1), (0.1, 0.5, 0.8)))[0] for _ in range(4)]
    assert await alarms(rows.store) == []  # nine groups are no full window: nobody has drifted
    last, (first, second, _) = await judged_twice(rows, (0.1, 0.9, 0.5), (0.5, 0.1, 0.6))
    found = await alarms(rows.store)
    assert len(found) == GROUPS
    assert {one.group_id for one in found[:-1]} == set(turned)
    assert found[-1].group_id == last  # by -1/3: before it those by -1, and those by 0 are not among them
    assert pair(found[-1]) == {first, second}
    words = "judge_drift: the judge and the strong judge agree by -0.33 about the group, and order these two in reverse"
    assert found[-1].about == words


async def test_once_judges_agree_again_their_groups_wait_no_longer(rows: Rows) -> None:
    for _ in range(10):
        await judged_twice(rows, (0.9, 0.1), (0.1, 0.9))
    assert len(await alarms(rows.store)) == GROUPS
    for _ in range(8):
        await judged_twice(rows, (0.9, 0.1), (0.9, 0.1))
    assert len(await alarms(rows.store)) == 2  # of the window as it is now
    for _ in range(10):
        await judged_twice(rows, (0.9, 0.1), (0.9, 0.1))
    assert await alarms(rows.store) == []


async def test_where_judges_turn_no_two_around_or_runs_are_gone_two_are_drawn_or_none(rows: Rows) -> None:
    made = [await judged_twice(rows, (0.5, 0.5, 0.5), (0.1, 0.5, 0.9)) for _ in range(10)]
    for _, (_, *others) in made[1:]:
        for run in others:
            await rows.set(trajectories, run, state="errored")
    [entry] = await alarms(rows.store)
    assert pair(entry) < set(made[0][1])
    assert entry.about == "judge_drift: the judge and the strong judge agree by 0.00 about the group"


async def test_a_share_of_what_was_judged_is_drawn_and_stays_drawn(rows: Rows) -> None:
    async with rows.store.write() as conn:  # a key that everybody knows, so that it is known what it draws
        await conn.execute(update(projects).values(node_key=b"a key"))
    made = [await rows.scored_group(members=2) for _ in range(60)]
    draw = await project_draw(Project(rows.store, PROJECT))
    wanted = {group for group in made if draw.number("share", group) < 0.05}
    assert 0 < len(wanted) < 10
    found = await waits(rows.store)
    assert {one.group_id for one in found.entries} == wanted
    assert {one.why for one in found.entries} <= {ReviewReason.RANDOM}
    assert (await waits(rows.store)).entries == found.entries


async def test_what_one_person_answered_comes_to_another_and_not_again_to_the_same(rows: Rows) -> None:
    group = await rows.scored_group(members=2)
    await alarm(rows, (await rows.members(group))[0])
    [entry] = (await waits(rows.store)).entries
    await said(rows.store, entry, ReviewAnswer.SAME)
    again = await waits(rows.store)
    assert (again.entries, again.answered) == ([], 1)
    assert len((await waits(rows.store, "somebody else")).entries) == 1


async def test_a_pair_that_is_passed_over_comes_again_later(rows: Rows) -> None:
    await disputed_group(rows, 2)
    [entry] = (await waits(rows.store)).entries
    assert (await waits(rows.store, passed=frozenset({frozenset(pair(entry))}))).entries == []
    assert (await waits(rows.store)).entries == [entry]


async def test_a_group_that_is_named_is_put_in_order_by_each_person(rows: Rows) -> None:
    group = await rows.scored_group(members=2)
    [entry] = (await waits(rows.store, group=group)).entries
    assert entry.why is ReviewReason.GROUP
    await said(rows.store, entry)
    assert (await waits(rows.store, group=group)).entries == []
    assert len((await waits(rows.store, "somebody else", group=group)).entries) == 1


async def test_an_alias_narrows_it(rows: Rows) -> None:
    alias, _, _ = await two_versions(rows)
    group, _ = await disputed_group(rows, 2, alias_id=alias.id)
    await disputed_group(rows, 2)
    assert [one.group_id for one in (await waits(rows.store, alias="helpdesk")).entries] == [group]
    with pytest.raises(NotFound, match="no alias 'nobody'"):
        await waits(rows.store, alias="nobody")


async def test_nothing_that_waits_tells_version_or_reward_apart(rows: Rows) -> None:
    alias, base, live = await two_versions(rows)
    await scored_task(rows, alias, base, "task", 0.125)
    await scored_task(rows, alias, live, "task", 0.875)
    [entry] = (await waits(rows.store)).entries
    assert not {base.name, live.name, "0.125", "0.875"} & set(str(entry).replace("'", " ").split())


# --- one version against another


async def test_live_is_held_against_base_task_by_task_and_the_wins_are_counted(rows: Rows) -> None:
    alias, base, live = await two_versions(rows)
    ours: set[str] = set()
    for task in ("one", "two", "three", "four"):
        await scored_task(rows, alias, base, task, 0.0, 0.0)
        ours |= set(await scored_task(rows, alias, live, task, 0.0, 0.0))
    answers = iter([True, True, False, None])
    first = 0
    while (found := await waits(rows.store, against="base")).entries and (won := next(answers, "no more")) != "no more":
        entry = found.entries[0]
        assert (entry.why, len(pair(entry) & ours)) == (ReviewReason.AGAINST, 1)
        chosen = (
            ReviewAnswer.SAME if won is None else ReviewAnswer.A if (entry.first in ours) == won else ReviewAnswer.B
        )
        first += chosen is ReviewAnswer.A
        await said(rows.store, entry, chosen)
    assert found.against is not None
    tally = found.against
    assert (tally.live, tally.other, tally.wins, tally.ties, tally.losses) == (live.name, base.name, 2, 1, 1)
    assert (tally.rate, tally.pairs, tally.first, found.answered) == (0.625, 4, first, 4)
    assert tally.interval is not None
    assert tally.interval.low < 0.625 < tally.interval.high
    assert tally.sentence().startswith(f"{live.name} wins 62% against {base.name} (95 %: ")
    assert len(found.entries) == 4  # a second pair of each task
    assert (await waits(rows.store, "somebody else", against="base")).against.pairs == 0  # type: ignore[union-attr]


async def test_each_task_comes_once_before_any_comes_twice(rows: Rows) -> None:
    alias, base, live = await two_versions(rows)
    tasks: dict[str, str] = {}
    for task in ("one", "two", "three"):
        for version in (base, live):
            tasks |= dict.fromkeys(await scored_task(rows, alias, version, task, 0.0, 0.0), task)
    entries = (await waits(rows.store, against="helpdesk@0")).entries
    assert [sorted(tasks[one.first] for one in entries[at : at + 3]) for at in (0, 3)] == [["one", "three", "two"]] * 2
    assert all(tasks[one.first] == tasks[one.second] for one in entries)


async def test_a_run_is_of_the_version_that_answered_last(rows: Rows) -> None:
    alias, base, live = await two_versions(rows)
    [old] = await scored_task(rows, alias, live, "task", 0.0)
    [new] = await scored_task(rows, alias, live, "task", 0.0)
    call = await rows.call(old, version_id=base.id)
    await rows.set(trajectories, old, leaf_call_id=call)
    [entry] = (await waits(rows.store, against="0")).entries
    assert pair(entry) == {old, new}


async def test_versions_that_cannot_be_held_together_are_told(rows: Rows) -> None:
    _, _, live = await two_versions(rows)
    with pytest.raises(Conflict, match="is the live version itself"):
        await waits(rows.store, against=live.name)
    with pytest.raises(NotFound, match="no version 'helpdesk@9'"):
        await waits(rows.store, against="9")
    await rows.alias("another")
    with pytest.raises(NotFound, match="name an alias; the project has: another, helpdesk"):
        await waits(rows.store, against="base")


async def test_a_group_that_is_scored_waits_no_longer(rows: Rows) -> None:
    group, _ = await disputed_group(rows, 3)
    await rows.set(groups, group, state="ready", reason=None)
    await rows.score(group)
    found = await waits(rows.store)
    assert [one for one in found.entries if one.why is ReviewReason.DISAGREEMENT] == []
    assert found.disputed == 0


async def test_what_a_person_put_there_waits_until_each_person_has_answered(rows: Rows, store: Store) -> None:
    project = Project(store, PROJECT)
    wanted, other = await rows.members(await rows.ready_group())
    lone = await rows.trajectory(await rows.group(), state="completed")
    assert [await request_review(project, id_, ME) for id_ in (wanted, other, wanted, lone)] == [
        True,
        True,
        False,
        True,
    ]
    with pytest.raises(NotFound):
        await request_review(project, "traj_nobody", ME)
    [entry] = (await waits(store)).entries
    assert (entry.why, pair(entry)) == (ReviewReason.REQUESTED, {wanted, other})
    await said(store, entry)
    assert (await waits(store)).entries == []
    assert len((await waits(store, "you")).entries) == 1
    await delete_trajectory(project, wanted)
    assert (await waits(store, "you")).entries == []
