"""An alias points at one live version; every move is guarded, counted and written down."""

from __future__ import annotations

import asyncio

import pytest

from recorder.errors import Conflict, InvalidId, NotFound
from recorder.registry import alias_moves, aliases, versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.states import VersionState
from recorder.store import ledger
from recorder.store.database import Project, Store
from tests.recorder.rows import PROJECT, Rows

GATED = (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED)


async def gated(store: Store, alias: AliasView) -> VersionView:
    assert alias.live_version_id is not None
    version = await versions.allocate_version(store, alias.id, alias.live_version_id)
    for state in GATED:
        version = await versions.mark_version(store, version.id, state)
    return version


async def now_live(store: Store, alias: AliasView) -> str:
    found = await aliases.get_alias(Project(store, PROJECT), alias.name)
    assert found.live_version_id is not None
    return (await versions.get_version(store, found.live_version_id)).name


async def test_an_alias_begins_on_the_base_as_version_0(rows: Rows) -> None:
    alias = await rows.alias()
    assert (alias.name, alias.base_model, alias.base_fingerprint) == ("helpdesk", "base-model", "fingerprint-1")
    assert alias.live_version_id is not None
    zero = await versions.get_version(rows.store, alias.live_version_id)
    assert (zero.name, zero.state, zero.engine_name, zero.path) == ("helpdesk@0", "live", "base-model", None)
    assert zero.base_fingerprint == "fingerprint-1"
    assert await aliases.get_aliases(Project(rows.store, PROJECT)) == [alias]


async def test_asking_again_changes_nothing(rows: Rows) -> None:
    first = await rows.alias()
    assert await asyncio.gather(*(rows.alias() for _ in range(5))) == [first] * 5
    assert await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "base-model", None) == first
    assert len(await versions.list_versions(rows.store, first.id)) == 1


@pytest.mark.parametrize("name", ["", "a@1", "a b", "x" * 129, "../../etc\n"])
async def test_names_that_could_not_be_asked_for_are_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidId, match="the model name"):
        await aliases.ensure_alias(Project(store, PROJECT), name, "base", None)


async def test_a_hubs_name_is_a_name(store: Store) -> None:
    assert (await aliases.ensure_alias(Project(store, PROJECT), "Qwen/Qwen3-4B", "base", None)).name == "Qwen/Qwen3-4B"


async def test_a_base_may_change_as_long_as_nothing_was_trained_on_it(rows: Rows) -> None:
    before = await rows.alias()
    after = await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "other-model", "fingerprint-2")
    assert (after.base_model, after.base_fingerprint) == ("other-model", "fingerprint-2")
    assert after.generation == before.generation + 1
    assert (await versions.get_version_by_name(Project(rows.store, PROJECT), "helpdesk@0")).engine_name == "other-model"
    [entry] = await ledger.object_entries(rows.store, "alias", after.id)
    assert entry.code == "base_changed"


async def test_a_base_that_adapters_were_trained_on_stays(rows: Rows) -> None:
    alias = await rows.alias()
    version = await gated(rows.store, alias)
    with pytest.raises(Conflict, match="use another alias name"):
        await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "base-model", "fingerprint-2")
    await versions.mark_version(rows.store, version.id, VersionState.REJECTED, "behaviour")
    assert (
        await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "m", "fingerprint-2")
    ).base_model == "m"


async def test_a_base_of_another_name_and_unknown_fingerprint_is_another(rows: Rows) -> None:
    await gated(rows.store, await rows.alias())
    with pytest.raises(Conflict, match=r"trained on the base base-model .*, not on other \(fingerprint unknown\)"):
        await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "other", None)
    renamed = await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "moved/base", "fingerprint-1")
    assert (renamed.base_model, renamed.base_fingerprint) == ("moved/base", "fingerprint-1")


async def test_a_fingerprint_that_was_unknown_is_learnt(store: Store) -> None:
    alias = await aliases.ensure_alias(Project(store, PROJECT), "helpdesk", "base", None)
    await gated(store, alias)
    learnt = await aliases.ensure_alias(Project(store, PROJECT), "helpdesk", "base", "fingerprint-1")
    assert learnt.base_fingerprint == "fingerprint-1"


async def test_a_gated_version_goes_live_and_the_old_one_retires(rows: Rows) -> None:
    alias = await rows.alias()
    version = await gated(rows.store, alias)
    moved = await alias_moves.set_live(rows.store, alias.id, version.id, why="gate")
    assert (moved.live_version_id, moved.previous_version_id) == (version.id, alias.live_version_id)
    assert moved.generation == alias.generation + 1
    assert (await versions.get_version_by_name(Project(rows.store, PROJECT), "helpdesk@1")).state is VersionState.LIVE
    old = await versions.get_version_by_name(Project(rows.store, PROJECT), "helpdesk@0")
    assert (old.state, old.reason) == (VersionState.RETIRED, None)
    [entry] = await ledger.object_entries(rows.store, "version", version.id)
    assert (entry.code, entry.detail) == (
        "gate", {"alias": "helpdesk", "from": alias.live_version_id, "to": version.id, "who": "hand"},
    )  # fmt: skip


async def test_making_the_live_version_live_changes_nothing(rows: Rows) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    assert await alias_moves.set_live(rows.store, alias.id, alias.live_version_id, why="promote") == alias


@pytest.mark.parametrize("state", [VersionState.REJECTED, VersionState.ABANDONED, VersionState.WRITTEN])
async def test_a_version_that_did_not_pass_is_never_made_live(rows: Rows, state: VersionState) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    version = await versions.allocate_version(rows.store, alias.id, alias.live_version_id)
    await versions.mark_version(rows.store, version.id, state, "weights are not finite")
    with pytest.raises(Conflict, match=rf"helpdesk@1 is {state} \(weights are not finite\) and cannot be made live"):
        await alias_moves.set_live(rows.store, alias.id, version.id, why="promote")
    assert await aliases.get_alias(Project(rows.store, PROJECT), "helpdesk") == alias
    assert await now_live(rows.store, alias) == "helpdesk@0"


async def test_another_aliass_version_is_not_found(rows: Rows) -> None:
    alias, other = await rows.alias(), await rows.alias("other")
    version = await gated(rows.store, other)
    with pytest.raises(NotFound, match="alias 'helpdesk' has no version"):
        await alias_moves.set_live(rows.store, alias.id, version.id, why="promote")
    with pytest.raises(NotFound, match="no alias"):
        await alias_moves.set_live(rows.store, "nothing", version.id, why="promote")


async def test_rolling_back_goes_down_the_line_and_never_to_what_was_left(rows: Rows) -> None:
    alias = await rows.alias()
    for _ in range(2):
        version = await gated(rows.store, await aliases.get_alias(Project(rows.store, PROJECT), "helpdesk"))
        await alias_moves.set_live(rows.store, alias.id, version.id, why="gate")
    await alias_moves.rollback(rows.store, alias.id)
    assert await now_live(rows.store, alias) == "helpdesk@1"
    left = await versions.get_version_by_name(Project(rows.store, PROJECT), "helpdesk@2")
    assert (left.state, left.reason) == (VersionState.RETIRED, alias_moves.ROLLED_BACK)
    await alias_moves.rollback(rows.store, alias.id)
    assert await now_live(rows.store, alias) == "helpdesk@0"
    with pytest.raises(Conflict, match="no earlier version"):
        await alias_moves.rollback(rows.store, alias.id)


async def test_a_version_rolled_back_may_be_promoted_again(rows: Rows) -> None:
    alias = await rows.alias()
    version = await gated(rows.store, alias)
    await alias_moves.set_live(rows.store, alias.id, version.id, why="gate")
    await alias_moves.rollback(rows.store, alias.id)
    again = await alias_moves.set_live(rows.store, alias.id, version.id, why="promote")
    assert again.generation == alias.generation + 3
    assert (await versions.get_version(rows.store, version.id)).reason is None
    assert (await alias_moves.rollback(rows.store, alias.id)).live_version_id == alias.live_version_id


async def test_a_canary_has_a_share_until_it_is_live_or_taken_away(rows: Rows) -> None:
    alias = await rows.alias()
    first, second = await gated(rows.store, alias), await gated(rows.store, alias)
    with_canary = await alias_moves.set_canary(rows.store, alias.id, first.id, 0.1)
    assert (with_canary.canary_version_id, with_canary.canary_share) == (first.id, 0.1)
    assert (await alias_moves.set_canary(rows.store, alias.id, first.id, 0.5)).canary_share == 0.5
    await alias_moves.set_canary(rows.store, alias.id, second.id, 0.2)
    assert (await versions.get_version(rows.store, first.id)).state is VersionState.RETIRED
    live = await alias_moves.set_live(rows.store, alias.id, second.id, why="promote")
    assert (live.live_version_id, live.canary_version_id, live.canary_share) == (second.id, None, 0.0)


async def test_taking_the_canary_away_retires_it(rows: Rows) -> None:
    alias = await rows.alias()
    version = await gated(rows.store, alias)
    await alias_moves.set_canary(rows.store, alias.id, version.id, 0.1)
    without = await alias_moves.set_canary(rows.store, alias.id, None, 0.0, figures={"p": 0.01})
    first, last = await ledger.object_entries(rows.store, "version", version.id)
    assert (first.code, first.detail) == ("canary", {"alias": "helpdesk", "share": 0.1, "who": "hand"})
    assert (last.code, last.detail) == ("canary_ended", {"alias": "helpdesk", "who": "hand", "figures": {"p": 0.01}})
    assert (without.canary_version_id, without.canary_share, without.generation) == (None, 0.0, alias.generation + 2)
    assert (await versions.get_version(rows.store, version.id)).state is VersionState.RETIRED


async def test_a_rejected_canary_is_no_canary_any_more(rows: Rows) -> None:
    alias = await rows.alias()
    version = await gated(rows.store, alias)
    await alias_moves.set_canary(rows.store, alias.id, version.id, 0.1)
    await versions.mark_version(rows.store, version.id, VersionState.REJECTED, "win rate")
    after = await aliases.get_alias(Project(rows.store, PROJECT), "helpdesk")
    assert (after.canary_version_id, after.generation) == (None, alias.generation + 2)


async def test_a_share_is_a_share(rows: Rows) -> None:
    alias = await rows.alias()
    with pytest.raises(ValueError, match=r"not in 0\.\.1"):
        await alias_moves.set_canary(rows.store, alias.id, None, 1.5)


async def test_an_unknown_alias_is_met_with_those_that_are_there(rows: Rows) -> None:
    with pytest.raises(NotFound, match="the project has: none yet"):
        await aliases.get_alias(Project(rows.store, PROJECT), "helpdesk")
    await rows.alias()
    with pytest.raises(NotFound, match="the project has: helpdesk"):
        await aliases.get_alias(Project(rows.store, PROJECT), "helpdsek")
