"""A list that is watched tells what came and what changed, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from recorder.commands.lists import iterate_changes
from recorder.states import TrajectoryState
from recorder.store.database import Project, Store
from recorder.views.lists.paging import Page
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, user

Seen = AsyncIterator[tuple[Sequence[TrajectoryLine], Sequence[TrajectoryLine]]]


async def newest(project: Project) -> Page[TrajectoryLine]:
    return await list_trajectories(project, limit=2)


async def test_what_comes_and_what_changes_is_told(store: Store, rows: Rows, talk: Talk) -> None:
    seen: Seen = iterate_changes(Project(store, PROJECT), newest)
    async with asyncio.timeout(20):
        assert await anext(seen) == ([], [])
        first = (await talk.call([user("Where is order 4821?")], "On its way.")).attribution.trajectory.id
        lines, changed = await anext(seen)
        assert [one.id for one in lines] == [one.id for one in changed] == [first]
        second = (await talk.call([user("When?")], "Tomorrow.")).attribution.trajectory.id
        lines, changed = await anext(seen)
        assert ([one.id for one in lines], [one.id for one in changed]) == ([second, first], [second])
        await talk.recorder.close(PROJECT, first, TrajectoryState.COMPLETED, "closed")
        lines, changed = await anext(seen)
        assert [(one.id, one.state) for one in changed] == [(first, "completed")]


def test_a_watched_list_that_nobody_would_see_is_refused(hone: Hone) -> None:
    assert "Add --json" in hone("trajectories", "--watch", fails=True).output


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        ("trajectories", ("--since", "yesterday"), "--since: since: 'yesterday' is not a time"),
        ("trajectories", ("--reward-from", "much"), "'much' is not a number"),
        ("trajectories", ("--tag", "=x"), "is not a tag"),
        ("groups", ("--spread-to", "wide"), "--spread-to"),
        ("groups", ("--search", "x"), "No such option"),
    ],
)
def test_a_bad_value_is_told_with_its_option(hone: Hone, command: str, options: tuple[str, ...], says: str) -> None:
    assert says in hone(command, *options, fails=True).output
