"""Which promotions are watched beside the version before, as the alias's row says it to every proxy."""

from __future__ import annotations

import pytest
from sqlalchemy import insert

from recorder.errors import Conflict
from recorder.registry import alias_moves, aliases, versions
from recorder.registry.aliases import AliasView, Holdback
from recorder.registry.moves import list_moves
from recorder.registry.versions import VersionView
from recorder.states import StepState, VersionState
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import steps
from tests.recorder.rows import PROJECT, Rows

HELD = Holdback(0.1, 3600.0)


async def declared(rows: Rows, held: Holdback = HELD) -> AliasView:
    return await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "base-model", None, held=held)


async def gated(rows: Rows) -> VersionView:
    """A version that passed its gate, from the live one."""
    alias = await rows.alias()
    assert alias.live_version_id is not None
    version = await versions.allocate_version(rows.store, alias.id, alias.live_version_id)
    for state in (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED):
        version = await versions.mark_version(rows.store, version.id, state)
    return version


async def promoted(rows: Rows, version: VersionView | None = None) -> AliasView:
    version = version or await gated(rows)
    return await alias_moves.set_live(rows.store, version.alias_id, version.id, why="promote")


@pytest.mark.parametrize("why", ["promote", "gate"])
async def test_a_promoted_version_is_watched_beside_the_one_before_on_the_databases_clock(
    rows: Rows, why: alias_moves.Why
) -> None:
    before = await declared(rows)
    assert before.watched_until is None
    version = await gated(rows)
    alias = await alias_moves.set_live(rows.store, before.id, version.id, why=why)
    assert (alias.previous_version_id, alias.holdback_share) == (before.live_version_id, 0.1)
    async with rows.store.read() as conn:
        at = await sql.current_time(conn)
    assert alias.watched_until is not None
    assert at < alias.watched_until <= at + HELD.watch_s


async def test_what_holds_nothing_back_is_not_watched(rows: Rows) -> None:
    assert (await promoted(rows)).watched_until is None, "nobody declared it"
    await declared(rows, Holdback(0.0, 3600.0))
    assert (await promoted(rows)).watched_until is None


async def test_a_further_promotion_ends_the_watch_of_the_earlier_one_and_begins_its_own(rows: Rows) -> None:
    await declared(rows)
    first, second = await promoted(rows), await promoted(rows)
    assert second.previous_version_id == first.live_version_id
    assert first.watched_until is not None
    assert second.watched_until is not None
    assert second.watched_until >= first.watched_until


async def test_a_rollback_ends_the_watch(rows: Rows) -> None:
    await declared(rows)
    alias = await promoted(rows)
    assert (await alias_moves.rollback(rows.store, alias.id)).watched_until is None


async def test_going_back_to_an_earlier_version_by_hand_holds_nothing_back_on_what_is_left(rows: Rows) -> None:
    await declared(rows)
    first = await gated(rows)
    await promoted(rows, first)
    await promoted(rows)
    assert (await promoted(rows, first)).watched_until is None


async def test_a_campaigns_version_is_not_watched(rows: Rows) -> None:
    alias = await declared(rows)
    version = await gated(rows)
    step = {"id": "step", "project_id": PROJECT, "alias_id": alias.id, "campaign_id": "camp", "number": 1}
    step |= {"parent_version_id": alias.live_version_id, "version_id": version.id, "state": StepState.DONE}
    async with rows.store.write() as conn:
        await conn.execute(insert(steps).values(**step, metrics={}, started_at=0.0))
    assert (await promoted(rows, version)).watched_until is None


async def test_a_version_that_was_watched_long_enough_stays_and_a_row_says_so(rows: Rows) -> None:
    await declared(rows)
    alias = await promoted(rows)
    assert alias.live_version_id is not None
    ended = await alias_moves.end_watch(rows.store, alias.id, alias.live_version_id, who="controller", figures={"n": 3})
    assert (ended.live_version_id, ended.watched_until) == (alias.live_version_id, None)
    assert ended.generation == alias.generation + 1
    move = (await list_moves(Project(rows.store, PROJECT)))[0]
    assert (move.version, move.move, move.who, move.figures) == ("helpdesk@1", "watch_ended", "controller", {"n": 3})
    with pytest.raises(Conflict, match="no longer watched"):
        await alias_moves.end_watch(rows.store, alias.id, alias.live_version_id, who="controller")


async def test_a_rollback_by_figures_leaves_only_the_version_that_they_are_of(rows: Rows) -> None:
    await declared(rows)
    first, second = await promoted(rows), await promoted(rows)
    with pytest.raises(Conflict, match="in the meantime"):
        await alias_moves.rollback(rows.store, first.id, left=first.live_version_id)
    left = second.live_version_id
    after = await alias_moves.rollback(
        rows.store, first.id, left=left, who="controller", reason="worse", figures={"n": 1}
    )
    assert after.live_version_id == first.live_version_id
    move = (await list_moves(Project(rows.store, PROJECT)))[0]
    assert (move.move, move.who, move.why, move.figures) == ("rollback", "controller", "worse", {"n": 1})


async def test_what_is_declared_anew_is_taken_over(rows: Rows) -> None:
    await declared(rows)
    again = await declared(rows, Holdback(0.2, 60.0))
    assert (again.holdback_share, again.rollback_watch_s) == (0.2, 60.0)
    assert (await rows.alias()).holdback_share == 0.2
