"""Tags of a run, set and removed by hand."""

from __future__ import annotations

import pytest

from recorder.errors import InvalidId, NotFound
from recorder.queue.feedback import MAX_CHARS, MOST, set_tag
from recorder.store.database import Project
from recorder.store.schema import trajectories
from tests.recorder.rows import PROJECT, Rows


async def test_a_tag_is_set_changed_and_removed(rows: Rows) -> None:
    run = await rows.trajectory(tags={"client": "x"})
    for value, kept in (("blue", {"team": "blue"}), ("red", {"team": "red"}), (None, {})):
        await set_tag(Project(rows.store, PROJECT), run, "team", value)
        assert (await rows.get(trajectories, run))["tags"] == {"client": "x", **kept}


async def test_a_clients_tag_of_any_name_can_be_removed(rows: Rows) -> None:
    run = await rows.trajectory(tags={"odd name!": "x"})
    await set_tag(Project(rows.store, PROJECT), run, "odd name!", None)
    assert (await rows.get(trajectories, run))["tags"] == {}


@pytest.mark.parametrize(("name", "value"), [("odd name!", "x"), ("", "x")])
async def test_a_tags_name_is_an_id(rows: Rows, name: str, value: str) -> None:
    with pytest.raises(InvalidId):
        await set_tag(Project(rows.store, PROJECT), await rows.trajectory(), name, value)


async def test_tags_are_bounded(rows: Rows) -> None:
    run = await rows.trajectory(tags={f"t{n}": "" for n in range(MOST)})
    with pytest.raises(ValueError, match="remove one first"):
        await set_tag(Project(rows.store, PROJECT), run, "more", "x")
    with pytest.raises(ValueError, match="at most"):
        await set_tag(Project(rows.store, PROJECT), run, "t1", "x" * (MAX_CHARS + 1))
    await set_tag(Project(rows.store, PROJECT), run, "t1", "another")


async def test_another_projects_run_is_not_there(rows: Rows) -> None:
    with pytest.raises(NotFound):
        await set_tag(Project(rows.store, "another"), await rows.trajectory(), "team", "blue")
