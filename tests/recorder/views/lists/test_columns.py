"""How what runs were given to do begins, as lists show it."""

from __future__ import annotations

from recorder.store.database import Project, Store
from recorder.views.lists.groups import list_groups
from recorder.views.lists.trajectories import list_trajectories
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, user


async def test_runs_and_groups_are_told_by_the_first_words_of_their_user(store: Store, talk: Talk) -> None:
    system = {"role": "system", "content": "You help."}
    parts = {"role": "user", "content": [{"type": "text", "text": "Where  is\norder 4821?"}]}
    await talk.call([system, parts], "On its way.")
    await talk.call([system, parts, assistant("On its way."), user("When?")], "Tomorrow.")
    long = await talk.call([user("Book a flight, " * 400)], "Done.")
    runs = {run.id: run.task for run in (await list_trajectories(Project(store, PROJECT))).lines}
    told = runs.pop(long.attribution.trajectory.id)
    assert set(runs.values()) == {"Where is order 4821?"}
    assert told is not None
    assert told.startswith("Book a flight, Book")
    assert (len(told), told[-1]) == (48, "…")
    assert {group.task for group in (await list_groups(Project(store, PROJECT))).lines} == {
        "Where is order 4821?",
        told,
    }


async def test_what_nobody_said_anything_in_has_no_words(store: Store, rows: Rows) -> None:
    await rows.trajectory(await rows.group())
    await rows.group()
    assert [run.task for run in (await list_trajectories(Project(store, PROJECT))).lines] == [None]
    assert [group.task for group in (await list_groups(Project(store, PROJECT))).lines] == [None, None]
