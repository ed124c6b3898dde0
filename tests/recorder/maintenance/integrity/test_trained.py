"""Where the ledger, the groups and the line of versions do not agree on what was trained, it is found."""

from __future__ import annotations

import pytest

from recorder.maintenance.integrity import groups as checks
from recorder.queue.training.drift_set import DRIFT_SET
from recorder.store import ledger
from recorder.store.ledger import LedgerRow
from recorder.store.schema import groups, step_groups, step_trajectories, steps, trajectories, uses, versions
from recorder.store.schema import ledger as ledger_rows
from recorder.store.sql import now
from tests.recorder.maintenance.integrity.sound import Sound
from tests.recorder.rows import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.repeats_statements]  # those of test_invariants.py


async def write(sound: Sound, run: str, code: str) -> None:
    async with sound.store.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "trajectory", run, code)])


async def test_a_run_of_a_version_that_is_not_decided_and_is_called_trained(sound: Sound) -> None:
    run = (await sound.rows.members(sound.tried))[0]
    await write(sound, run, "trained")
    await sound.finds(checks.trained_trajectories_taught_the_live_ancestry, f"trajectory {run}")


async def test_a_run_of_the_live_line_that_is_called_untrained(sound: Sound) -> None:
    await write(sound, sound.runs[1], "untrained")
    await sound.finds(checks.trained_trajectories_taught_the_live_ancestry, f"trajectory {sound.runs[1]}")


async def test_a_tried_group_whose_version_is_decided(sound: Sound) -> None:
    await sound.rows.set(versions, sound.waiting, state="rejected")
    await sound.finds(checks.groups_are_where_their_versions_are, f"group {sound.tried}")


async def test_a_trained_group_that_the_line_was_not_trained_on(sound: Sound) -> None:
    await sound.rows.set(groups, sound.tried, state="trained")
    await sound.finds(checks.groups_are_where_their_versions_are, f"group {sound.tried}")


async def test_a_group_of_the_line_that_is_to_be_trained_on_again(sound: Sound) -> None:
    await sound.rows.set(groups, sound.group, state="scored")
    await sound.finds(checks.groups_are_where_their_versions_are, f"group {sound.group}")


async def test_a_group_that_was_trained_on_twice(sound: Sound) -> None:
    await sound.line.decide("live")
    await sound.change(step_groups, step_groups.c.group_id == sound.tried, group_id=sound.group)
    await sound.rows.set(groups, sound.tried, state="scored")
    broken = await sound.broken()
    assert broken["groups_are_where_their_versions_are"] == [f"group {sound.group}"]


async def test_a_run_that_was_not_for_training(sound: Sound) -> None:
    await sound.rows.set(trajectories, sound.runs[0], purpose="eval")
    await sound.finds(checks.only_training_trajectories_were_trained_on, f"trajectory {sound.runs[0]}")


async def test_a_run_that_was_not_for_training_and_that_a_step_imitated(sound: Sound) -> None:
    run = await sound.rows.trajectory(purpose="eval", state="completed")
    step = next(one["id"] for one in await sound.rows.all(steps) if one["state"] == "done")
    use = {"step_id": step, "objective": "imitate", "kind": "trajectory", "source_id": run, "times": 1}
    await sound.rows.insert(uses, use)
    broken = await sound.broken()
    assert broken["only_training_trajectories_were_trained_on"] == [f"trajectory {run}"]


async def test_a_run_of_a_drift_set_that_was_trained_on_or_imitated(sound: Sound) -> None:
    check, run = checks.drift_sets_were_never_trained_on, sound.runs[0]
    await sound.rows.set(trajectories, run, drift_set_at=now())
    await write(sound, run, DRIFT_SET)
    await sound.finds(check, f"trajectory {run}")
    other = await sound.rows.trajectory(state="completed", drift_set_at=now())
    await write(sound, other, DRIFT_SET)
    step = next(one["id"] for one in await sound.rows.all(steps) if one["state"] == "done")
    use = {"step_id": step, "objective": "imitate", "kind": "trajectory", "source_id": other, "times": 1}
    await sound.rows.insert(uses, use)
    assert sorted((await sound.broken())[check.__name__]) == sorted([f"trajectory {run}", f"trajectory {other}"])


async def test_a_run_of_a_drift_set_of_which_the_ledger_knows_nothing(sound: Sound) -> None:
    run = await sound.rows.trajectory(state="completed", drift_set_at=now())
    assert (await sound.broken())["drift_sets_were_never_trained_on"] == [f"trajectory {run}"]


async def test_a_member_that_a_step_left_out_without_a_word(sound: Sound) -> None:
    run = (await sound.rows.members(sound.tried))[0]
    await sound.take(step_trajectories, step_trajectories.c.trajectory_id == run)
    await sound.finds(checks.members_that_taught_nothing_say_why, f"trajectory {run}")
    await write(sound, run, "no_trained_rows")
    assert await sound.broken() == {}


async def test_the_ledger_has_what_the_checks_read(sound: Sound) -> None:
    codes = [row.code for row in await sound.rows.all(ledger_rows)]
    assert codes.count("trained") == len(sound.runs)
