"""The trainer on a real store: recorded runs in, a version out, and what nothing was learned from says why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from sqlalchemy import select, update

from recorder.messages.trainability import Exclusion
from recorder.queue.claims import GroupClaim
from recorder.queue.judging.calibrations import JudgeAgreement, record_agreements
from recorder.queue.training import steps
from recorder.registry import alias_moves, versions
from recorder.states import GroupState, Purpose, StepState, VersionState
from recorder.store import ledger, schema
from recorder.store.database import Project
from tests.trainer.step.left import codes, folders, group_state
from tests.trainer.world import PROJECT, World
from trainer.artifacts import adapters
from trainer.objectives.group_rows import UntrainedChoice
from trainer.step.runner import OPTIMIZER_FRESH
from trainer.trackers.event_figures import figure_names

pytestmark = pytest.mark.slow


async def test_scored_groups_become_a_written_version(world: World) -> None:
    good = await world.group("g1", [1.0, 0.0, 0.2, None], seed=1)
    flat = await world.group("g2", [0.5, 0.5], seed=2)
    before = await world.live()
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    step, version = report.step, report.version
    assert step is not None
    assert version is not None
    assert (version.name, version.state, version.parent_id) == ("org/helpdesk@1", VersionState.WRITTEN, before.id)
    assert version.engine_name == f"org-helpdesk@1-{str(version.manifest_sha256)[:12]}" == Path(str(version.path)).name
    assert folders(world) == folders(world, "checkpoints") == [version.engine_name]
    adapters.read_adapter(Path(str(version.path)), version.manifest_sha256)
    assert (step.state, step.version_id, step.parent_version_id) == (StepState.DONE, version.id, before.id)
    assert step.checkpoint_path == str(world.data / "checkpoints" / version.engine_name)
    assert await group_state(world, good) == (GroupState.TRIED, None)
    assert await group_state(world, flat) == (GroupState.LEFT_OUT, UntrainedChoice.ZERO_VARIANCE)
    assert list(await steps.list_step_groups(world.store, step.id)) == [good]
    assert report.trained == 3
    assert report.left_out == {UntrainedChoice.REWARD_MISSING: 1, UntrainedChoice.ZERO_VARIANCE: 2}
    assert report.reason is None
    assert step.metrics == version.metrics == dict(report.metrics)
    told = [f"train/{name}" for name in report.metrics if not name.startswith(("part.", "seconds.", "health."))]
    told += [name.replace(".", "/") for name in report.metrics if name.startswith("health.")]
    assert [
        name for name in told if not any(known.fits(name) for known in figure_names())
    ] == []  # docs/metrics.md has them
    assert report.metrics["reward_mean"] == pytest.approx(2.2 / 5)
    assert report.metrics["part.checked"] == pytest.approx(1.2 / 3)  # of those that are trained
    assert report.metrics["groups"] == 2
    assert report.metrics["rows_per_trajectory"] == 1
    assert report.metrics["trained_tokens"] == 3 * 2 * 6
    assert report.metrics["tokens_per_s"] > 0
    assert set(report.seconds) == {"read", "rows", "load", "probe", "train", "publish", "commit"}
    left_out: dict[str, int] = {UntrainedChoice.REWARD_MISSING: 1, UntrainedChoice.ZERO_VARIANCE: 2}
    assert await ledger.count_codes(Project(world.store, PROJECT), "trajectory") == left_out
    await world.promote(version)
    assert await group_state(world, good) == (GroupState.TRAINED, None)
    assert await ledger.count_codes(Project(world.store, PROJECT), "trajectory") == {**left_out, ledger.TRAINED: 3}


async def test_engine_and_trainer_agree_on_every_token_with_and_without_an_adapter(world: World) -> None:
    async with await world.trainer() as trainer:
        for number in range(3):
            await world.group(f"g{number}", [1.0, 0.0, 0.2], seed=number)
            report = await trainer.train_once(await world.claim(trainer))
            assert report.version is not None
            assert report.version.number == number + 1
            assert report.metrics["logprob_gap"] <= 1e-6
            assert report.metrics["logprob_gap_max"] <= 1e-5
            assert 0 <= report.metrics["kl_engine"] <= 1e-10
            assert report.metrics["ratio_mean"] == pytest.approx(1, abs=1e-5)
            await world.promote(report.version)


async def test_a_version_is_trained_from_the_one_that_is_live_and_older_samples_count_until_they_are_too_old(
    world: World,
) -> None:
    late = [await world.group(f"late{number}", [1.0, 0.0], seed=50 + number) for number in range(2)]
    async with await world.trainer(max_age=1) as trainer:
        held = await world.claim(trainer)
        await world.group("g1", [1.0, 0.0], seed=1)
        first = (await trainer.train_once(await world.claim(trainer))).version
        assert first is not None
        await world.promote(first)
        aged = await trainer.train_once([held[0]])
        assert aged.version is not None
        assert aged.version.parent_id == first.id
        assert (
            not {"kl_engine", "logprob_gap"} & aged.metrics.keys()
        )  # no token is of the parent version: a difference would be drift
        assert aged.metrics["ratio_max"] != pytest.approx(1, abs=1e-4)
        await world.promote(aged.version)
        over = await trainer.train_once([held[1]])
    assert over.version is None
    assert over.left_out == {Exclusion.OVER_AGE: 2}
    assert await group_state(world, late[1]) == (GroupState.LEFT_OUT, Exclusion.OVER_AGE)


async def test_samples_of_a_version_off_the_line_are_left_out(world: World) -> None:
    async with await world.trainer() as trainer:
        for number in range(2):
            await world.group(f"g{number}", [1.0, 0.0], seed=number)
        held = await world.claim(trainer)
        base = await world.live()
        first = (await trainer.train_once([held[0]])).version
        assert first is not None
        await world.promote(first)
        group_id = await world.group("of first", [1.0, 0.0], seed=5)
        of_first = await world.claim(trainer)
        await aliases_back(world, base.id)
        report = await trainer.train_once(of_first)
    assert report.version is None
    assert report.left_out == {Exclusion.FOREIGN_VERSION: 2}
    assert await group_state(world, group_id) == (GroupState.LEFT_OUT, Exclusion.FOREIGN_VERSION)


async def aliases_back(world: World, version_id: str) -> None:
    await alias_moves.set_live(world.store, world.alias.id, version_id, why="rollback")


async def test_a_judges_small_difference_teaches_nothing_and_a_checks_does(world: World) -> None:
    judged = await world.group("judged", [0.50, 0.52], seed=1, judge="ruler")
    checked = await world.group("checked", [0.50, 0.52], seed=2)
    async with await world.trainer(min_spread=0.05) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert (report.trained, report.left_out) == (2, {UntrainedChoice.TOO_CLOSE: 2})
    assert await group_state(world, judged) == (GroupState.LEFT_OUT, UntrainedChoice.TOO_CLOSE)
    assert await group_state(world, checked) == (GroupState.TRIED, None)


async def test_pairs_of_a_calibrated_judge_weigh_what_it_is_better_than_chance(world: World) -> None:
    for seed, judge in enumerate(("good", "chance", "unknown", None)):
        await world.group(str(judge), [1.0, 0.0], seed=seed, judge=judge)
    measured = [JudgeAgreement("good", "default", 0.75, 40), JudgeAgreement("chance", "brief", 0.5, 40)]
    await record_agreements(Project(world.store, PROJECT), measured)
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert (report.trained, report.left_out) == (6, {UntrainedChoice.JUDGE_BY_CHANCE: 2})
    assert report.metrics["pair_weight"] == pytest.approx((0.5 + 0.0) / 2)


async def test_where_nothing_teaches_no_step_begins(world: World) -> None:
    await world.group("g1", [0.3, 0.3])
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert (await trainer.train_once([])).reason == "no group can be trained on"
    assert (report.step, report.version, report.trained) == (None, None, 0)
    assert "zero_variance" in str(report.reason)
    assert report.metrics["reward_mean"] == pytest.approx(0.3)
    assert await steps.list_steps(world.store, world.alias.id) == []
    assert [v.number for v in await versions.list_versions(world.store, world.alias.id)] == [0]


@pytest.mark.parametrize("purpose", [Purpose.VAL, Purpose.EVAL])
async def test_other_purposes_never_reach_the_trainer(world: World, purpose: Purpose) -> None:
    planted = await world.group("g1", [1.0, 0.0], purpose=purpose)
    async with await world.trainer() as trainer:
        assert await world.claim(trainer) == []
        async with world.store.write() as conn:  # even where a claim were to let one through
            await conn.execute(
                update(schema.groups)
                .where(schema.groups.c.id == planted)
                .values(state="training", lease_owner="x", lease_epoch=9)
            )
            query = select(schema.groups.c.current_score_id).where(schema.groups.c.id == planted)
            score_id = (await conn.execute(query)).scalar_one()
        claim = GroupClaim(planted, "x", 9, 0.0, score_id, PROJECT, world.alias.id, None, 0)
        report = await trainer.train_once([claim])
    assert report.version is None
    assert report.left_out == {Exclusion.PURPOSE: 2}


async def test_a_new_trainer_goes_on_with_the_same_numbers(tmp_path: Path, tiny_base: Path) -> None:
    """One trainer for three steps, against a new one for every step: also what follows a crash between steps."""
    found = []
    for anew in (False, True):
        async with World.opened(tmp_path / str(anew), tiny_base) as world:
            trainer = await world.trainer(warmup_steps=4)
            for number in range(3):
                await world.group(f"g{number}", [1.0, 0.0], seed=number)
                report = await trainer.train_once(await world.claim(trainer))
                assert report.version is not None
                assert report.metrics["optimizer_fresh"] == 0
                await world.promote(report.version)
                if anew:
                    await trainer.close()
                    trainer = await world.trainer(warmup_steps=4)
            await trainer.close()
            found.append(adapters.read_adapter(Path(str((await world.live()).path)), None))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, atol=1e-6, rtol=0)


async def test_an_optimizer_that_lost_its_state_is_told(world: World) -> None:
    found = []
    for number in range(2):
        async with await world.trainer() as trainer:
            await world.group(f"g{number}", [1.0, 0.0], seed=number)
            report = await trainer.train_once(await world.claim(trainer))
            assert report.version is not None
            assert report.step is not None
            await world.promote(report.version)
            found.append(await codes(world, "version", report.version.id))
            shutil.rmtree(str(report.step.checkpoint_path))
    assert [OPTIMIZER_FRESH in of_version for of_version in found] == [False, True]
