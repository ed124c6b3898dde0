"""What an objective used is written with its step, and counts along the ancestry of a version alone."""

from __future__ import annotations

import time

from recorder.queue.training import steps, uses
from recorder.queue.training.uses import ObjectiveUse
from recorder.registry import alias_moves, aliases, versions
from recorder.registry.aliases import AliasView
from recorder.states import VersionState
from recorder.store.database import Project
from recorder.store.schema import uses as table
from tests.recorder.rows import PROJECT, Rows


async def step_with(rows: Rows, alias: AliasView, used: list[ObjectiveUse], *, live: bool = True) -> str:
    """A step that used these; its version goes live, or is rejected. Returns the version's id."""
    alias = await aliases.get_alias(Project(rows.store, PROJECT), alias.name)
    assert alias.live_version_id is not None
    step = await steps.begin_step(rows.store, alias.id, alias.live_version_id)
    version = await versions.allocate_version(rows.store, alias.id, alias.live_version_id, step_id=step.id)
    await steps.finish_step(
        rows.store, step.id, version_id=version.id, path=f"/{version.id}", engine_name=version.id,
        manifest_sha256="abc", metrics={}, checkpoint_path=None, groups=(), used=used,
    )  # fmt: skip
    if live:
        await versions.mark_version(rows.store, version.id, VersionState.LOADED)
        await versions.mark_version(rows.store, version.id, VersionState.GATED)
        await alias_moves.set_live(rows.store, alias.id, version.id, why="gate")
    else:
        await versions.mark_version(rows.store, version.id, VersionState.REJECTED, "gate")
    return version.id


async def test_uses_are_summed_over_the_ancestry_of_a_version(rows: Rows) -> None:
    alias = await rows.alias()
    first = await step_with(rows, alias, [ObjectiveUse("imitate", "trajectory", "a"), ObjectiveUse("x", "file", "a")])
    second = await step_with(rows, alias, [ObjectiveUse("imitate", "trajectory", "a", 2)])
    await step_with(rows, alias, [ObjectiveUse("imitate", "trajectory", "a"), ObjectiveUse("imitate", "file", "b")],
                    live=False)  # fmt: skip
    assert await uses.count_uses(rows.store, "imitate", ["a", "b", "c"], first) == {"a": 1}
    assert await uses.count_uses(rows.store, "imitate", ["a", "b", "c"], second) == {"a": 3}
    assert await uses.count_uses(rows.store, "x", ["a"], second) == {"a": 1}


async def test_steps_before_a_datum_changed_do_not_count(rows: Rows) -> None:
    alias = await rows.alias()
    version = await step_with(rows, alias, [ObjectiveUse("imitate", "trajectory", id_) for id_ in "ab"])
    since = {"a": time.time() + 60, "b": time.time() - 60}
    assert await uses.count_uses(rows.store, "imitate", ["a", "b"], version, since) == {"b": 1}


async def test_a_step_that_is_abandoned_used_nothing(rows: Rows) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    step = await steps.begin_step(rows.store, alias.id, alias.live_version_id)
    await steps.abandon_step(rows.store, step.id, "why")
    assert await rows.all(table) == []
