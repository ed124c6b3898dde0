"""Saved filters: of a project and a list, by name."""

from __future__ import annotations

import pytest

from recorder.curation import saved_filters
from recorder.curation.saved_filters import FilteredList, list_saved_filters, remove_saved_filter, save_filter
from recorder.errors import Conflict, NotFound
from recorder.store.database import Project, Store
from tests.recorder.rows import PROJECT

RUNS, GROUPS = FilteredList.TRAJECTORIES, FilteredList.GROUPS


@pytest.fixture
def project(store: Store) -> Project:
    return Project(store, PROJECT)


async def test_filters_are_kept_by_list_and_name_and_replaced(project: Project) -> None:
    first = await save_filter(project, RUNS, " my   <b>errors</b> ", "state=errored", "me")
    assert (first.name, first.query, first.list, first.made_by) == ("my <b>errors</b>", "state=errored", RUNS, "me")
    await save_filter(project, GROUPS, "my <b>errors</b>", "state=unscored", "me")
    again = await save_filter(project, RUNS, "my <b>errors</b>", "state=errored&alias=a", "you")
    assert (again.id, again.query, again.made_by) == (first.id, "state=errored&alias=a", "you")
    assert [one.list for one in await list_saved_filters(project)] == [GROUPS, RUNS]
    assert await list_saved_filters(Project(project.store, "other"), RUNS) == []
    with pytest.raises(NotFound):
        await remove_saved_filter(Project(project.store, "other"), first.id)
    await remove_saved_filter(project, first.id)
    assert await list_saved_filters(project, RUNS) == []
    assert len(await list_saved_filters(project, GROUPS)) == 1


@pytest.mark.parametrize(("name", "query"), [(" ", "a=b"), ("x" * 101, "a=b"), ("a\x00", "a=b"), ("a", "")])
async def test_a_filter_needs_a_name_and_a_query(project: Project, name: str, query: str) -> None:
    with pytest.raises(ValueError, match="saved"):
        await save_filter(project, RUNS, name, query, "me")


async def test_a_list_has_a_largest_number_of_them(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_filters, "MOST", 1)
    await save_filter(project, RUNS, "one", "state=open", "me")
    await save_filter(project, RUNS, "one", "state=errored", "me")
    with pytest.raises(Conflict, match="remove one"):
        await save_filter(project, RUNS, "two", "state=open", "me")
    assert [one.name for one in await list_saved_filters(project)] == ["one"]
