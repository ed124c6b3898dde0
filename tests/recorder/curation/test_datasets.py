"""Datasets: what is in them, what narrows by them, and what a deletion leaves of them."""

from __future__ import annotations

import pytest

from recorder.curation import datasets
from recorder.curation.datasets import Change, add_to_dataset, create_dataset, dataset_ids, get_dataset
from recorder.errors import Conflict, InvalidId, NotFound
from recorder.maintenance import export
from recorder.maintenance.deletion import RETENTION, delete_trajectory
from recorder.messages.calls import Address
from recorder.store.database import Project, Store
from recorder.views.lists.filter_values import trajectory_filter_values
from recorder.views.lists.filters import parse_trajectory_filter, with_usual_trajectories
from recorder.views.lists.trajectories import list_trajectories
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, user


@pytest.fixture
def project(store: Store) -> Project:
    return Project(store, PROJECT)


async def listed(project: Project, **said: str) -> list[str]:
    wanted = with_usual_trajectories(parse_trajectory_filter(said.items()))
    return [line.id for line in (await list_trajectories(project, wanted)).lines]


async def test_trajectories_are_added_once_and_removed(project: Project, rows: Rows) -> None:
    one, two, three = [await rows.trajectory(answered=False) for _ in range(3)]
    made = await create_dataset(project, "hard-cases", "me")
    assert (made.name, made.trajectories, made.deleted, made.made_by) == ("hard-cases", 0, 0, "me")
    assert await add_to_dataset(project, "hard-cases", [two, one, two, "traj_nobody"]) == {
        two: Change.DONE,
        one: Change.DONE,
        "traj_nobody": Change.MISSING,
    }
    assert await add_to_dataset(project, "hard-cases", [one, three]) == {one: Change.UNCHANGED, three: Change.DONE}
    assert await dataset_ids(project, "hard-cases") == [three, two, one]
    removed = await datasets.remove_from_dataset(project, "hard-cases", [two, two, "traj_nobody"])
    assert removed == {two: Change.DONE, "traj_nobody": Change.UNCHANGED}
    assert [(one.name, one.trajectories) for one in await datasets.list_datasets(project)] == [("hard-cases", 2)]
    await datasets.delete_dataset(project, "hard-cases")
    assert await datasets.list_datasets(project) == []
    assert await listed(project) == [three, two, one]


async def test_names_are_ids_and_taken_once(project: Project) -> None:
    await create_dataset(project, "a", "me")
    with pytest.raises(Conflict, match="already"):
        await create_dataset(project, "a", "me")
    with pytest.raises(InvalidId):
        await create_dataset(project, "<b>", "me")
    for change in (datasets.delete_dataset(project, "b"), add_to_dataset(project, "b", []), dataset_ids(project, "b")):
        with pytest.raises(NotFound, match="no dataset 'b'"):
            await change


async def test_a_dataset_has_a_largest_size(project: Project, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "MOST_TRAJECTORIES", 2)
    monkeypatch.setattr(datasets, "_AT_ONCE", 1)
    ids = [await rows.trajectory(answered=False) for _ in range(3)]
    await create_dataset(project, "small", "me")
    with pytest.raises(Conflict, match="more than 2"):
        await add_to_dataset(project, "small", ids)
    assert await dataset_ids(project, "small") == []
    await add_to_dataset(project, "small", ids[:2])
    assert await dataset_ids(project, "small") == ids[1::-1]


async def test_lists_are_narrowed_by_a_dataset_whatever_the_origin(project: Project, rows: Rows) -> None:
    live, shadow, other = [
        await rows.trajectory(answered=False, origin=origin) for origin in ("live", "shadow", "live")
    ]
    await create_dataset(project, "kept", "me")
    await add_to_dataset(project, "kept", [live, shadow])
    assert await listed(project, dataset="kept") == [shadow, live]
    assert await listed(project, dataset="kept", origin="live") == [live]
    assert await listed(project, dataset="kept", state="completed") == []
    assert await listed(project, dataset="another") == []
    assert await listed(project) == [other, live]
    assert (await trajectory_filter_values(project)).datasets == ["kept"]


async def test_a_large_dataset_is_checked_candidate_by_candidate(
    project: Project, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recorder.views.lists.scans._FEW", 2)
    ids = [await rows.trajectory(answered=False) for _ in range(4)]
    await create_dataset(project, "kept", "me")
    await add_to_dataset(project, "kept", ids[:3])
    assert await listed(project, dataset="kept") == ids[2::-1]


@pytest.mark.parametrize("why", ["asked", RETENTION])
async def test_a_deleted_trajectory_leaves_its_datasets_and_is_counted(project: Project, rows: Rows, why: str) -> None:
    gone, stays = [await rows.trajectory(answered=False, state="completed") for _ in range(2)]
    for name in ("one", "two", "three"):
        await create_dataset(project, name, "me")
    await add_to_dataset(project, "one", [gone, stays])
    await add_to_dataset(project, "two", [gone])
    await add_to_dataset(project, "three", [stays])
    await delete_trajectory(project, gone, why)
    found = {one.name: (one.trajectories, one.deleted) for one in await datasets.list_datasets(project)}
    assert found == {"one": (1, 1), "two": (0, 1), "three": (1, 0)}
    assert (await get_dataset(project, "one")).deleted == 1


async def test_exports_are_narrowed_by_a_dataset(project: Project, talk: Talk) -> None:
    kept = await talk.call([user("Where is order 1?")], "Here.", Address(trajectory="a", done=True))
    await talk.call([user("Where is order 2?")], "There.", Address(trajectory="b", done=True))
    await create_dataset(project, "kept", "me")
    await add_to_dataset(project, "kept", [kept.attribution.trajectory.id])
    raw = [line async for line in export.raw_lines(project, dataset="kept")]
    assert [line["trajectory_external_id"] for line in raw] == ["a"]
    tuned = [line async for line in export.openai_lines(project, dataset="kept")]
    assert [line["messages"][0]["content"] for line in tuned] == ["Where is order 1?"]
    assert [line async for line in export.tool_lines(project, dataset="kept")] == []
    assert len([line async for line in export.raw_lines(project)]) == 2
