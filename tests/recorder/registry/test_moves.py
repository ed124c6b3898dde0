"""Every decision about a version is told with who made it, why, and by which figures."""

from __future__ import annotations

from recorder.registry import alias_moves, versions
from recorder.registry.aliases import AliasView
from recorder.registry.moves import VersionMove, list_moves
from recorder.registry.versions import VersionView
from recorder.states import VersionState
from recorder.store.database import Project, Store
from tests.recorder.rows import PROJECT, Rows

FIGURES = {"kl_live": 0.01}


async def loaded(store: Store, alias: AliasView) -> VersionView:
    assert alias.live_version_id is not None
    version = await versions.allocate_version(store, alias.id, alias.live_version_id)
    await versions.mark_version(store, version.id, VersionState.WRITTEN)
    return await versions.mark_version(store, version.id, VersionState.LOADED)


def told(moves: list[VersionMove]) -> list[tuple[str, str, str | None, str | None]]:
    return [(m.version, m.move, m.who, m.why) for m in moves]


async def test_the_way_of_a_version_into_service_and_out_is_told_newest_first(rows: Rows) -> None:
    store, alias = rows.store, await rows.alias()
    version = await loaded(store, alias)
    await versions.pass_gate(store, version.id, "sane", who="controller", figures=FIGURES)
    await alias_moves.set_canary(store, alias.id, version.id, 0.1, who="controller")
    await alias_moves.set_live(store, alias.id, version.id, why="gate", who="controller", figures=FIGURES)
    await alias_moves.rollback(store, alias.id)
    moves = await list_moves(Project(store, PROJECT))
    assert told(moves) == [
        ("helpdesk@0", "rollback", "hand", None),
        ("helpdesk@1", "gate", "controller", None),
        ("helpdesk@1", "canary", "controller", None),
        ("helpdesk@1", "gated", "controller", "sane"),
    ]
    assert [m.figures for m in moves] == [{}, FIGURES, {}, FIGURES]
    assert [m.at for m in moves] == sorted((m.at for m in moves), reverse=True)


async def test_a_canary_that_is_taken_away_and_a_version_that_is_rejected_are_told_with_why(rows: Rows) -> None:
    store, alias = rows.store, await rows.alias()
    first = await loaded(store, alias)
    await versions.pass_gate(store, first.id, "sane", who="controller")
    await alias_moves.set_canary(store, alias.id, first.id, 0.1)
    await alias_moves.set_canary(store, alias.id, None, 0.0, figures={"worse_by": ["reward"]})
    second = await loaded(store, alias)
    await versions.reject_version(
        store, second.id, "kl: too far", lessons="left_out", who="controller", figures=FIGURES
    )
    moves = await list_moves(Project(store, PROJECT), alias="helpdesk", limit=2)
    assert told(moves) == [
        ("helpdesk@2", "rejected", "controller", "kl: too far"),
        ("helpdesk@1", "canary_ended", "hand", None),
    ]
    assert moves[1].figures == {"worse_by": ["reward"]}
    assert await list_moves(Project(store, PROJECT), alias="nobody") == []


async def test_a_canary_s_share_that_is_changed_is_told_each_time(rows: Rows) -> None:
    store, alias = rows.store, await rows.alias()
    version = await loaded(store, alias)
    await versions.pass_gate(store, version.id, "sane", who="controller")
    await alias_moves.set_canary(store, alias.id, version.id, 0.1, who="controller")
    await alias_moves.set_canary(store, alias.id, version.id, 0.1, who="controller")  # as it is already
    await alias_moves.set_canary(store, alias.id, version.id, 0.5, who="key_1", reason="it looks well")
    moves = await list_moves(Project(store, PROJECT), version_ids=[version.id], limit=3)
    assert [(m.move, m.share, m.who, m.why) for m in moves] == [
        ("canary", 0.5, "key_1", "it looks well"),
        ("canary", 0.1, "controller", None),
        ("gated", None, "controller", "sane"),
    ]
    assert await list_moves(Project(store, PROJECT), version_ids=["ver_other"]) == []
