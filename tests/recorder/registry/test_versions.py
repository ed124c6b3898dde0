"""Versions have numbers that are never used twice, states, parents and an age."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import Conflict, NotFound
from recorder.registry import versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView, parse_name, version_age
from recorder.states import VersionState
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import trajectories
from tests.recorder.rows import PROJECT, Rows


async def allocate(rows: Rows, alias: AliasView, parent: VersionView | None = None) -> VersionView:
    parent_id = parent.id if parent else alias.live_version_id
    assert parent_id is not None
    return await versions.allocate_version(rows.store, alias.id, parent_id)


async def test_a_number_is_taken_before_anything_is_written_and_never_again(rows: Rows) -> None:
    alias = await rows.alias()
    first = await allocate(rows, alias)
    assert (first.name, first.number, first.state, first.path) == ("helpdesk@1", 1, "allocated", None)
    assert (first.parent_id, first.base_fingerprint) == (alias.live_version_id, "fingerprint-1")
    await versions.mark_version(rows.store, first.id, VersionState.ABANDONED, "killed")
    assert (await allocate(rows, alias)).number == 2
    assert (await allocate(rows, await rows.alias("other"))).number == 1


async def test_allocations_at_once_take_different_numbers(rows: Rows) -> None:
    alias = await rows.alias()
    made = await asyncio.gather(*(allocate(rows, alias) for _ in range(8)))
    assert sorted(v.number for v in made) == list(range(1, 9))


async def test_an_unknown_alias_has_no_versions(rows: Rows) -> None:
    with pytest.raises(NotFound, match="no alias nothing"):
        await versions.allocate_version(rows.store, "nothing", "v")
    assert await versions.list_versions(rows.store, "nothing") == []


async def test_versions_are_found_by_what_users_call_them(rows: Rows) -> None:
    alias = await rows.alias()
    version = await allocate(rows, alias)
    assert await versions.get_version_by_name(Project(rows.store, PROJECT), "helpdesk@1") == version
    assert await versions.get_version(rows.store, version.id) == version
    for name in ("helpdesk@2", "helpdesk", "other@1"):
        with pytest.raises(NotFound, match="`hone versions`"):
            await versions.get_version_by_name(Project(rows.store, PROJECT), name)
    with pytest.raises(NotFound):
        await versions.get_version_by_name(Project(rows.store, "other"), "helpdesk@1")
    with pytest.raises(NotFound):
        await versions.get_version(rows.store, "nothing")


async def test_lists_are_newest_first_and_can_be_by_state(rows: Rows) -> None:
    alias = await rows.alias()
    first, _ = await allocate(rows, alias), await allocate(rows, alias)
    await versions.mark_version(rows.store, first.id, VersionState.WRITTEN, path="/adapters/x")
    assert [v.number for v in await versions.list_versions(rows.store, alias.id)] == [2, 1, 0]
    assert [v.number for v in await versions.get_versions(Project(rows.store, PROJECT))] == [0, 1, 2]
    written = await versions.get_versions(Project(rows.store, PROJECT), states={VersionState.WRITTEN})
    assert [(v.name, v.path) for v in written] == [("helpdesk@1", "/adapters/x")]


async def test_marking_sets_state_reason_and_columns(rows: Rows) -> None:
    version = await allocate(rows, await rows.alias())
    for state in (VersionState.WRITTEN, VersionState.LOADED):
        await versions.mark_version(rows.store, version.id, state)
    marked = await versions.mark_version(
        rows.store, version.id, VersionState.GATED, verified="logprobs", metrics={"win": 0.6}
    )
    assert (marked.state, marked.verified, marked.metrics) == (VersionState.GATED, "logprobs", {"win": 0.6})
    assert marked.state_at >= version.state_at
    with pytest.raises(Conflict):
        await versions.mark_version(rows.store, version.id, VersionState.WRITTEN)
    with pytest.raises(Conflict):
        await versions.mark_version(rows.store, version.id, VersionState.REJECTED, expect=VersionState.LOADED)
    with pytest.raises(ValueError, match="set_live"):
        await versions.mark_version(rows.store, version.id, VersionState.LIVE)


async def test_a_version_that_ends_badly_says_why_in_the_ledger(rows: Rows) -> None:
    version = await allocate(rows, await rows.alias())
    await versions.mark_version(rows.store, version.id, VersionState.REJECTED, "not_finite")
    [entry] = await ledger.object_entries(rows.store, "version", version.id)
    assert (entry.code, entry.detail) == ("rejected", {"reason": "not_finite"})


async def test_age_is_steps_along_ancestry(rows: Rows) -> None:
    alias = await rows.alias()
    one = await allocate(rows, alias)
    two = await allocate(rows, alias, one)
    side = await allocate(rows, alias, one)
    line = await versions.list_ancestors(rows.store, two.id)
    assert line == [two.id, one.id, alias.live_version_id]
    assert [version_age(line, v) for v in (two.id, one.id, alias.live_version_id)] == [0, 1, 2]
    assert version_age(line, side.id) is None  # a foreign version
    assert version_age(line, None) is None
    with pytest.raises(NotFound):
        await versions.list_ancestors(rows.store, "nothing")


async def test_pinned_are_the_versions_of_open_runs_and_groups(rows: Rows) -> None:
    group = await rows.group(version_id="v1")
    await rows.group(version_id="v2", state="trained")
    await rows.trajectory(group, version_id="v3")
    await rows.trajectory(group, version_id="v4", state="completed")
    await rows.trajectory(group)
    assert await versions.list_pinned_versions(Project(rows.store, PROJECT)) == {"v1", "v3"}
    assert await versions.list_pinned_versions(Project(rows.store, "other")) == set()


async def test_a_run_moved_to_another_version_is_mixed(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group(), version_id="v1")
    await versions.repin_trajectory(rows.store, trajectory, "v1")
    assert not (await rows.get(trajectories, trajectory))["mixed"]
    await versions.repin_trajectory(rows.store, trajectory, "v2")
    row = await rows.get(trajectories, trajectory)
    assert (row["version_id"], row["mixed"]) == ("v2", True)


@given(st.from_regex(r"[A-Za-z0-9._:~/-]{1,40}", fullmatch=True), st.integers(0, 10**6))
def test_names_are_split_where_they_were_joined(alias: str, number: int) -> None:
    assert parse_name(f"{alias}@{number}") == (alias, number)
    assert parse_name(alias) == (alias, None)


@pytest.mark.parametrize("name", ["a@", "a@01", "a@-1", "a@1.0", "a@latest", "@1", "a@1234567890"])
def test_what_is_no_version_is_a_plain_name(name: str) -> None:
    assert parse_name(name) == (name, None)
