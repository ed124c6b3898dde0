"""Versions that leave the line, pointers that disagree with states, and halves of steps are found."""

from __future__ import annotations

import pytest

from recorder.maintenance.integrity import versions as checks
from recorder.registry import versions
from recorder.store.schema import aliases, steps
from recorder.store.schema import ledger as ledger_rows
from recorder.store.schema import versions as rows
from recorder.store.sql import now
from tests.recorder.maintenance.integrity.sound import Sound
from tests.recorder.rows import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.repeats_statements]  # those of test_invariants.py


async def test_an_alias_that_points_at_a_version_that_is_not_live(sound: Sound) -> None:
    await sound.rows.set(rows, sound.live, state="retired")
    await sound.finds(checks.aliases_point_at_the_versions_that_say_so, "alias helpdesk")


async def test_a_second_live_version(sound: Sound) -> None:
    base = (await sound.rows.get(rows, sound.live))["parent_id"]
    await sound.rows.set(rows, base, state="live")
    await sound.finds(checks.aliases_point_at_the_versions_that_say_so, f"version {base}")


async def test_a_canary_that_no_alias_knows(sound: Sound) -> None:
    await sound.rows.set(rows, sound.waiting, state="canary")
    await sound.finds(checks.aliases_point_at_the_versions_that_say_so, f"version {sound.waiting}")


async def test_a_version_without_a_parent(sound: Sound) -> None:
    await sound.rows.set(rows, sound.waiting, parent_id=None)
    await sound.finds(checks.versions_descend_from_the_base, f"version {sound.waiting}")


async def test_two_versions_that_wait_at_once(sound: Sound) -> None:
    second = await versions.allocate_version(sound.store, sound.line.alias.id, sound.live)
    await sound.rows.set(rows, second.id, state="written", manifest_sha256="0")
    await _done_step(sound, second.id)
    await sound.finds(checks.one_version_at_a_time_waits_for_its_decision, f"alias {sound.line.alias.id}")


async def _done_step(sound: Sound, version_id: str) -> None:
    row = {"id": "step_x", "project_id": PROJECT, "alias_id": sound.line.alias.id, "number": 99, "metrics": {}}
    more = {"parent_version_id": sound.live, "version_id": version_id, "state": "done", "started_at": now()}
    await sound.rows.insert(steps, {**row, **more})


async def test_a_version_that_took_another_place_than_its_parents(sound: Sound) -> None:
    moved = (ledger_rows.c.object_id == sound.live, ledger_rows.c.code == "gate")
    await sound.change(ledger_rows, *moved, detail={"from": "ver_other", "to": sound.live})
    found = checks.what_the_gate_accepted_came_from_the_version_it_replaced
    await sound.finds(found, f"version {sound.live}")


async def test_a_version_that_no_step_made(sound: Sound) -> None:
    orphan = await versions.allocate_version(sound.store, sound.line.alias.id, sound.live)
    await sound.rows.set(rows, orphan.id, state="retired", manifest_sha256="0")
    await sound.finds(checks.written_versions_were_made_by_a_step, f"version {orphan.id}")


async def test_a_step_that_is_done_and_made_nothing(sound: Sound) -> None:
    await _done_step(sound, "ver_nowhere")
    await sound.finds(checks.written_versions_were_made_by_a_step, "step step_x")


async def test_a_step_that_nobody_runs_and_a_version_that_nobody_writes(sound: Sound) -> None:
    orphan = await versions.allocate_version(sound.store, sound.line.alias.id, sound.live)
    await _done_step(sound, sound.waiting)
    await sound.rows.set(steps, "step_x", state="running", version_id=None)
    found = checks.versions_in_the_making_have_a_trainer
    await sound.finds(found, "step step_x", f"version {orphan.id}")
    await sound.rows.set(aliases, sound.line.alias.id, name="helpdesk")
