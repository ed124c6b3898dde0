"""n > 1: a first call with several choices, never gone on from, becomes as many trajectories when its run ends.

Shadow groups: their rows, that no agent's call joins them, what goes with a run, and where its turn is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recorder.capture.recorder import Recorder
from recorder.capture.resolver import Resolution
from recorder.errors import NotFound
from recorder.maintenance.deletion import delete_trajectory
from recorder.messages.calls import Address, Message, ParentCall
from recorder.queue import claims
from recorder.queue.groups.closure import close_trajectory
from recorder.queue.groups.same_request import (
    FORKED,
    ShadowGroup,
    counts_in_own_group,
    find_ended_trajectories,
    open_shadow,
    shadow_group_id,
)
from recorder.settings import RecorderSettings
from recorder.states import GroupState, Origin, Purpose, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import calls, groups, trajectories
from recorder.store.schema import groups as group_table
from recorder.views.trajectories.transcripts import load_group, load_trajectory
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, assistant, choice, turn, user
from tests.recorder.talk import request as asked


async def end(rows: Rows, trajectory: str, state: TrajectoryState = TrajectoryState.COMPLETED) -> None:
    async with rows.store.write() as conn:
        assert await close_trajectory(conn, trajectory, state, "done")


async def test_a_first_call_with_several_choices_becomes_as_many_trajectories(rows: Rows) -> None:
    group = await rows.group(declared_size=3)
    trajectory = await rows.trajectory(group, answered=False, external_id="run", tags={"a": "b"}, version_id="v7")
    call = await rows.call(trajectory, sampled=3)
    await end(rows, trajectory)
    made = [await rows.get(trajectories, t) for t in await rows.members(group)]
    assert sorted((r["leaf_call_id"], r["leaf_choice"]) for r in made) == [(call, 0), (call, 1), (call, 2)]
    siblings = [r for r in made if r["id"] != trajectory]
    assert {r["forked_from_call"] for r in siblings} == {call}
    assert {(r["state"], r["purpose"], r["version_id"], r["external_id"]) for r in siblings} == {
        ("completed", "train", "v7", None)
    }
    assert all(r["tags"] == {"a": "b"} and r["ended_at"] is not None for r in siblings)
    assert await rows.state(group_table, group) == "ready"


async def test_choices_of_a_call_that_was_continued_stay_one_trajectory(rows: Rows) -> None:
    group = await rows.group()
    trajectory = await rows.trajectory(group, answered=False)
    first = await rows.call(trajectory, sampled=3)
    await rows.call(trajectory, parent_call_id=first, parent_choice=1)
    await end(rows, trajectory)
    assert await rows.members(group) == [trajectory]


async def test_an_errored_run_is_not_split(rows: Rows) -> None:
    group = await rows.group()
    trajectory = await rows.trajectory(group, answered=False)
    await rows.call(trajectory, sampled=3)
    await end(rows, trajectory, TrajectoryState.ERRORED)
    assert await rows.members(group) == [trajectory]


FIRST = [user("Where is 4821?")]
SECOND = [*FIRST, assistant("Here."), user("And 4822?")]
THIRD = [*SECOND, assistant("There."), user("And 4823?")]
SHADOW = Address(origin=Origin.SHADOW, done=True)


async def ended_run(talk: Talk, alias_id: str) -> list[str]:
    """A run of three turns that has ended; its calls."""
    turns = [
        await talk.call(messages, answer, alias_id=alias_id, prompt_token_ids=list(range(300 + at)))
        for at, (messages, answer) in enumerate([(FIRST, "Here."), (SECOND, "There."), (THIRD, "Nowhere.")])
    ]
    await talk.recorder.close(PROJECT, turns[0].attribution.trajectory.id)
    return [one.call_id for one in turns]


async def answered(talk: Talk, group: ShadowGroup, texts: Sequence[str], parent: str) -> None:
    """Answer the second turn of `ended_run` again, as the proxy does."""
    for ref, text in zip(group.waiting, texts, strict=True):
        again = asked(SECOND, body_hash=ref.id.encode()[-16:])
        how: dict[str, Any] = {
            "source": "shadow",
            "parent": ParentCall(parent, 0),
            "prompt_token_ids": list(range(301)),
        }
        await talk.recorder.commit(turn(ref, again, [choice(assistant(text))], address=SHADOW, **how))


async def shadowed(rows: Rows, talk: Talk) -> tuple[list[str], ShadowGroup]:
    alias = await rows.alias()
    of_run = await ended_run(talk, alias.id)
    group = await open_shadow(rows.store, of_run[1], 2)
    assert group is not None
    await answered(talk, group, ["There.", "Elsewhere."], of_run[0])
    return of_run, group


async def test_the_live_answer_is_a_member_that_ends_at_the_turn_and_the_others_are_runs_of_one_call(
    rows: Rows, talk: Talk
) -> None:
    of_run, opened = await shadowed(rows, talk)
    group = await load_group(rows.store, opened.id, with_tokens=True)
    assert (group.id, group.state, group.declared_size) == (shadow_group_id(of_run[1]), GroupState.READY, 3)
    assert all(m.messages[:-1] == SECOND for m in group.members)
    assert group.members[0].answer == "There."
    assert sorted(m.answer or "" for m in group.members[1:]) == ["Elsewhere.", "There."]
    assert {(m.state, m.purpose, m.origin) for m in group.members} == {
        (TrajectoryState.COMPLETED, Purpose.TRAIN, Origin.SHADOW)
    }
    assert {m.forked_from_call for m in group.members} == {of_run[1]}
    fork, *others = group.members
    assert (fork.end_reason, [call.id for call in fork.calls]) == (FORKED, [of_run[1]])
    assert all(len(member.calls) == 1 for member in others)
    assert {tuple(m.calls[0].prompt_token_ids or ()) for m in group.members} == {tuple(range(301))}


async def test_a_turn_is_answered_again_once(rows: Rows, talk: Talk) -> None:
    of_run, _ = await shadowed(rows, talk)
    assert await open_shadow(rows.store, of_run[1], 2) is None
    assert await open_shadow(rows.store, "call_gone", 2) is None


async def found_anew(store: Store, messages: Sequence[Message]) -> Resolution:
    """Which run a conversation belongs to, for a proxy that has just started."""
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    found = await recorder.find.run(PROJECT, messages)
    await recorder.stop()
    return found


async def test_an_agent_goes_on_in_its_run_as_surely_as_without_the_shadows(rows: Rows, talk: Talk) -> None:
    """One of them said the very words that the agent got."""
    alias = await rows.alias()
    of_run = await ended_run(talk, alias.id)
    before = await found_anew(rows.store, THIRD)
    assert before.parent == ParentCall(of_run[1], 0)
    opened = await open_shadow(rows.store, of_run[1], 2)
    assert opened is not None
    await answered(talk, opened, ["There.", "Elsewhere."], of_run[0])
    after = await found_anew(rows.store, THIRD)
    assert (after.source, after.confidence, after.parent) == (before.source, before.confidence, before.parent)
    assert (await talk.recorder.find.run(PROJECT, THIRD)).parent == before.parent


async def test_no_call_joins_a_shadow(rows: Rows, talk: Talk) -> None:
    _, opened = await shadowed(rows, talk)
    shadows = {*await rows.members(opened.id)}
    elsewhere = [*SECOND, assistant("Elsewhere."), user("And 4823?")]
    retold = [*SECOND, assistant(" Elsewhere. "), user("And 4823?")]
    for messages in (elsewhere, retold):
        for found in (await found_anew(rows.store, messages), await talk.recorder.find.run(PROJECT, messages)):
            assert found.trajectory is None or found.trajectory.id not in shadows
        went = await talk.call(messages, "Nowhere.")
        assert went.attribution.trajectory.id not in shadows
        run = await rows.get(trajectories, (await rows.get(calls, went.call_id))["trajectory_id"])
        assert (run["origin"], run["forked_from_call"]) == ("live", None)
        assert not {run["id"], run["continues"]} & shadows


async def test_ended_live_runs_for_training_are_found_and_no_others(rows: Rows) -> None:
    alias = await rows.alias()
    good = await rows.trajectory(state="completed", alias_id=alias.id, ended_at=7.0)
    others: tuple[dict[str, Any], ...] = (
        {"state": "open"},
        {"state": "errored"},
        {"origin": "campaign"},
        {"origin": "shadow"},
        {"purpose": "none"},
        {"selection": "not_selected"},
        {"last_call_at": 1.0},
    )
    for values in others:
        await rows.trajectory(**{"state": "completed", "alias_id": alias.id, "ended_at": 7.0, **values})
    assert [run.id for run in await find_ended_trajectories(Project(rows.store, PROJECT), [alias.id], 3600)] == [good]
    assert await find_ended_trajectories(Project(rows.store, PROJECT), ["another"], 3600) == []
    assert await find_ended_trajectories(Project(rows.store, PROJECT), [alias.id], 3600, since=8.0) == []


@pytest.mark.parametrize(
    ("own", "claimed", "counted"),
    [
        ("open", False, False),
        ("ready", False, False),
        ("judging", False, False),
        ("scored", True, True),
        ("unscored", True, True),
        ("training", True, True),
        ("trained", True, True),
        ("left_out", True, False),
        (None, True, False),
    ],
)
async def test_the_turn_counts_in_its_runs_own_group_where_that_trains(
    rows: Rows, talk: Talk, own: str | None, claimed: bool, counted: bool
) -> None:
    of_run, opened = await shadowed(rows, talk)
    await rows.score(opened.id)
    run = (await rows.get(calls, of_run[1]))["trajectory_id"]
    if own is None:
        await rows.set(trajectories, run, group_id=None)
    else:
        home = (await rows.get(trajectories, run))["group_id"]
        await rows.set(groups, home, state=own, ready_at=1.0)
    alias = await rows.alias()
    took = await claims.claim_for_training(rows.store, alias.id, "trainer", 60, limit=10)
    assert (opened.id in {claim.group_id for claim in took}) is claimed
    assert await counts_in_own_group(rows.store, [opened.id]) == (frozenset({of_run[1]}) if counted else frozenset())


async def test_deleting_a_run_deletes_what_was_answered_again_of_it(rows: Rows, talk: Talk, store: Store) -> None:
    of_run, opened = await shadowed(rows, talk)
    members = await rows.members(opened.id)
    run = (await rows.get(calls, of_run[1]))["trajectory_id"]
    await delete_trajectory(Project(store, PROJECT), run)
    for member in (*members, run):
        with pytest.raises(NotFound):
            await load_trajectory(store, member)
    assert (await rows.get(groups, opened.id))["state"] == "left_out"


async def test_deleting_a_shadow_leaves_the_run_as_it_was(rows: Rows, talk: Talk, store: Store) -> None:
    of_run, opened = await shadowed(rows, talk)
    run = (await rows.get(calls, of_run[1]))["trajectory_id"]
    before = await load_trajectory(store, run, with_tokens=True)
    for member in await rows.members(opened.id):
        await delete_trajectory(Project(store, PROJECT), member)
    assert await load_trajectory(store, run, with_tokens=True) == before
