"""An engine whose logprobs are not the trainer's: no version, the groups go back, and one alarm says why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from recorder.queue.training import refusals, steps
from recorder.queue.training.refusals import LOGPROB_GAP
from recorder.registry import versions
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState, StepState
from recorder.store.database import Project
from recorder.store.schema import versions as version_rows
from recorder.views.status.events import EventReader
from recorder.views.status.project import load_status
from recorder.views.status.stages import LoopSettings
from tests.trainer.step.left import codes, folders, group_state
from tests.trainer.training_child import BASE, core, rows
from tests.trainer.world import PROJECT, World
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer
from trainer.step.engine_gap import (
    MIN_TOKENS,
    PROBE_TO_NEW,
    Precision,
    ProbeGap,
    gap_bound,
    probe_gap,
    quantized_precision,
)
from trainer.step.state.engine_facts import EngineFacts
from trainer.step.state.results import PhaseSeconds
from trainer.step.summary import StepReport

pytestmark = pytest.mark.slow

REWARDS = [1.0, 0.0, 0.2]  # with four turns of six tokens: 72 tokens a group


async def recorded(world: World, name: str, seed: int, *, raw: bool = False, turns: int = 4) -> str:
    world.raw = raw
    return await world.group(name, REWARDS, seed=seed, turns=turns)


async def trained(world: World, trainer: AliasTrainer) -> StepReport:
    """A step on what a learner would take."""
    return await trainer.train_once(await world.claim(trainer))


async def test_tokens_further_from_the_engine_than_the_dtype_explains_make_no_version(world: World) -> None:
    group_id = await recorded(world, "g1", 1, raw=True)
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert (report.step, report.version, report.trained, report.code) == (None, None, 0, LOGPROB_GAP)
    assert report.metrics["fresh_tokens"] == 72
    assert report.metrics["logprob_gap_bound"] == 1e-5
    assert report.metrics["logprob_gap"] > 0.01
    for words in ("at most 1e-05 is accepted", "72 tokens", "no version was made"):
        assert words in str(report.reason)
    assert await group_state(world, group_id) == (GroupState.SCORED, None)
    assert await codes(world, "group", group_id) == [LOGPROB_GAP]  # no failed step is counted against it
    assert [v.number for v in await versions.list_versions(world.store, world.alias.id)] == [0]
    assert folders(world) == folders(world, "checkpoints") == []
    (step,) = await steps.list_steps(world.store, world.alias.id)
    assert (step.state, step.metrics["fresh_tokens"]) == (StepState.ABANDONED, 72)
    assert str(step.reason).startswith(f"{LOGPROB_GAP}: ")


async def test_an_engine_that_agrees_is_checked_at_every_step_and_nothing_is_said(world: World) -> None:
    async with await world.trainer() as trainer:
        for number in range(2):
            await recorded(world, f"g{number}", number)
            report = await trainer.train_once(await world.claim(trainer))
            assert report.version is not None
            assert report.metrics["fresh_tokens"] == 72
            assert report.note == ""
            await world.promote(report.version)


async def test_a_step_with_few_fresh_tokens_is_not_checked_and_says_so(world: World) -> None:
    await recorded(world, "g1", 1, raw=True, turns=3)
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert report.version is not None
    assert report.metrics["fresh_tokens"] == 54 < MIN_TOKENS
    assert "54" in report.note
    assert "64" in report.note


async def with_probed_parent(world: World, trainer: AliasTrainer, to_new: float | None) -> None:
    """A live version whose controller measured this difference to its probe; None: it did not ask."""
    await recorded(world, "first", 1)
    version = (await trained(world, trainer)).version
    assert version is not None
    await world.promote(version)
    if to_new is not None:
        async with world.store.write() as conn:
            figures = {**version.metrics, PROBE_TO_NEW: to_new}
            await conn.execute(update(version_rows).where(version_rows.c.id == version.id).values(metrics=figures))


async def test_a_step_with_few_fresh_tokens_is_checked_by_its_parents_probe(world: World) -> None:
    async with await world.trainer() as trainer:
        await with_probed_parent(world, trainer, 1e-6)
        await recorded(world, "few", 2, turns=3)
        report = await trained(world, trainer)
    assert report.version is not None
    assert report.metrics["fresh_tokens"] == 54 < MIN_TOKENS
    assert report.metrics["probe_gap"] == 1e-6
    assert report.metrics["probe_gap_bound"] >= 1e-5
    assert "logprob_gap_bound" not in report.metrics
    assert report.note == ""


async def test_a_parents_probe_that_is_off_makes_no_version_and_its_groups_wait(world: World) -> None:
    async with await world.trainer() as trainer:
        await with_probed_parent(world, trainer, 0.5)
        few = await recorded(world, "few", 2, turns=3)
        report = await trained(world, trainer)
        assert (report.version, report.code, report.metrics["probe_gap"]) == (None, LOGPROB_GAP, 0.5)
        assert "the probe of the parent version" in str(report.reason)
        assert await group_state(world, few) == (GroupState.SCORED, None)
        assert await world.claim(trainer) == []  # refused once, and not again and again
        many = await recorded(world, "many", 3)
        assert (await trained(world, trainer)).version is not None  # its own tokens are enough, and they agree
    assert await group_state(world, many) == (GroupState.TRIED, None)


async def test_a_parent_that_was_not_asked_for_its_probe_leaves_the_step_unchecked(world: World) -> None:
    async with await world.trainer() as trainer:
        await with_probed_parent(world, trainer, None)
        await recorded(world, "few", 2, turns=3)
        report = await trained(world, trainer)
    assert report.version is not None
    assert "probe_gap" not in report.metrics
    assert "54" in report.note


def test_the_bound_of_a_probe_grows_with_how_unlikely_its_tokens_are() -> None:
    probe = {"contexts": [{"new": [-4.0, -2.0]}, {"new": [-3.0, -3.0]}]}
    found = probe_gap({PROBE_TO_NEW: 2e-5}, probe, 1e-5)
    assert found is not None
    assert (found.gap, found.tokens) == (2e-5, 4)
    assert found.bound == pytest.approx(3e-5)
    assert probe_gap({PROBE_TO_NEW: 2e-5}, {"contexts": [{"new": [-0.1]}]}, 1e-5) == ProbeGap(2e-5, 1e-5, 1)
    assert probe_gap({}, probe, 1e-5) is None
    assert probe_gap({PROBE_TO_NEW: 2e-5}, None, 1e-5) is None
    assert probe_gap({PROBE_TO_NEW: 2e-5}, {"contexts": []}, 1e-5) is None


async def test_a_refused_group_is_tried_once_and_counts_nothing(world: World) -> None:
    group_id = await recorded(world, "g1", 1, raw=True)
    async with await world.trainer(max_tries=1) as trainer:
        assert (await trained(world, trainer)).code == LOGPROB_GAP
        assert await world.claim(trainer) == []
    async with await world.trainer(max_tries=1) as again:
        assert await world.claim(again) == []
    assert await group_state(world, group_id) == (GroupState.SCORED, None)


async def test_the_setting_replaces_the_bound_and_refused_groups_are_trained_on(world: World) -> None:
    group_id = await recorded(world, "g1", 1, raw=True)
    async with await world.trainer() as trainer:
        assert (await trained(world, trainer)).code == LOGPROB_GAP
    async with await world.trainer(max_logprob_gap=1e-4) as trainer:
        assert await world.claim(trainer) == []
    async with await world.trainer(max_logprob_gap=5.0) as trainer:
        report = await trained(world, trainer)
    assert report.version is not None
    assert report.metrics["logprob_gap_bound"] == 5.0
    assert await group_state(world, group_id) == (GroupState.TRIED, None)


async def test_after_the_engine_is_mended_new_groups_are_trained_on_and_the_refused_ones_left_out(world: World) -> None:
    bad = await recorded(world, "bad", 1, raw=True)
    async with await world.trainer() as trainer:
        assert (await trained(world, trainer)).code == LOGPROB_GAP
        good = await recorded(world, "good", 2)
        version = (await trained(world, trainer)).version
        assert version is not None
        assert list(await steps.list_step_groups(world.store, str((await newest(world)).id))) == [good]
        assert await group_state(world, bad) == (GroupState.SCORED, None)
        await world.promote(version)
        await recorded(world, "next", 3)
        assert (await trained(world, trainer)).version is not None
    # its tokens are not the parent's any more: whether they are the trainer's can no longer be measured
    assert await group_state(world, bad) == (GroupState.LEFT_OUT, LOGPROB_GAP)


async def newest(world: World) -> steps.StepView:
    return (await steps.list_steps(world.store, world.alias.id))[0]


async def test_of_a_refused_step_only_the_groups_at_fault_are_marked(world: World) -> None:
    """One of two engines is at fault: what the other sampled is trained on by the next step."""
    bad = await recorded(world, "bad", 1, raw=True)
    good = await recorded(world, "good", 2)
    async with await world.trainer() as trainer:
        assert (await trained(world, trainer)).code == LOGPROB_GAP
        assert [one.group_id for one in await refusals.list_refused_groups(world.store, world.alias.id)] == [bad]
        assert (await trained(world, trainer)).version is not None
    assert (await group_state(world, good))[0] == GroupState.TRIED


async def test_a_quantised_engine_has_the_bound_of_its_precision(world: World) -> None:
    settings = TrainerSettings(base=str(world.base), device="cpu", rank=4, alpha=8.0, token_budget=256)
    for arguments, bound in (((), 1e-5), (("--quantization", "fp8"), 0.1), (("--quantization=awq",), 0.3)):
        facts = EngineFacts(args=arguments)
        opened = await AliasTrainer.open(world.store, world.alias, settings, world.data, facts)
        async with opened as trainer:
            assert trainer.gap_bound == bound


async def test_status_raises_one_alarm_and_learning_says_what_it_waits_for(world: World) -> None:
    loop = LoopSettings(RecorderSettings(), LearnSettings(), TrainerSettings(min_groups=1))
    project = Project(world.store, PROJECT)

    async def alarms() -> list[str]:
        return [alarm for alarm in (await load_status(project, loop)).alarms if LOGPROB_GAP in alarm]

    async with await world.trainer() as trainer:
        told = []
        for number in range(2):
            await recorded(world, f"g{number}", number, raw=True)
            assert (await trained(world, trainer)).code == LOGPROB_GAP
            told.append(await alarms())
        assert [len(found) for found in told] == [1, 1]
        assert "hone doctor" in told[0][0]
        (learning,) = [stage for stage in (await load_status(project, loop)).stages if stage.alias is not None]
        assert learning.code == LOGPROB_GAP
        assert "2 groups" in learning.text
        await recorded(world, "good", 7)
        assert (await trained(world, trainer)).version is not None
        assert await alarms() == []


@pytest.mark.parametrize(
    ("arguments", "config", "precision"),
    [
        ([], {}, None),
        (["--max-num-seqs", "256"], {"quantization_config": None}, None),
        (["--kv-cache-dtype", "auto", "--quantization", "none"], {}, None),
        (["--quantization", "fp8"], {}, Precision.EIGHT_BITS),
        (["--quantization=awq_marlin"], {}, Precision.FOUR_BITS),
        (["-q", "bitsandbytes"], {}, Precision.FOUR_BITS),
        (["--kv-cache-dtype", "fp8_e4m3"], {}, Precision.EIGHT_BITS),
        (["--quantization", "fp8"], {"quantization_config": {"quant_method": "mxfp4"}}, Precision.FOUR_BITS),
        ([], {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, Precision.EIGHT_BITS),
        ([], {"quantization_config": {"quant_method": "gptq", "bits": 8}}, Precision.EIGHT_BITS),
        ([], {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, Precision.EIGHT_BITS),
        (
            [],
            {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {
                "group_0": {"weights": {"num_bits": 4}, "input_activations": {"num_bits": 8}}}}},
            Precision.FOUR_BITS,
        ),
    ],
)  # fmt: skip
def test_a_quantised_engine_is_known_by_its_arguments_and_its_base(
    arguments: list[str], config: dict[str, object], precision: Precision | None
) -> None:
    assert quantized_precision(arguments, config) is precision


def test_the_bound_is_that_of_the_coarser_of_engine_and_trainer_unless_it_is_set() -> None:
    assert gap_bound("float32", None, None) == 1e-5
    assert gap_bound("bfloat16", None, None) == 0.05
    assert gap_bound("bfloat16", Precision.EIGHT_BITS, None) == 0.1
    assert gap_bound("bfloat16", Precision.FOUR_BITS, 0.01) == 0.01


@pytest.mark.parametrize("substeps", [1, 2])
def test_the_gap_is_that_of_all_fresh_tokens_before_the_update(tiny_base: Path, tmp_path: Path, substeps: int) -> None:
    trainer = core(tiny_base, tmp_path, warmup_steps=0)
    trainer.go_to(BASE)
    given = [replace(one, substep=number % substeps) for number, one in enumerate(rows(1))]
    metrics = trainer.step(given, 1e-2, lambda: False, PhaseSeconds()).metrics
    alone = core(tiny_base, tmp_path / "alone", warmup_steps=0)
    alone.go_to(BASE)
    expected = alone.step(rows(1), 1e-2, lambda: False, PhaseSeconds())
    assert metrics["fresh_tokens"] == sum(one.row.trained_tokens for one in given)
    for name in ("fresh_tokens", "logprob_gap", "logprob_gap_max", "kl_engine"):
        assert metrics[name] == pytest.approx(expected.metrics[name], rel=1e-5), name


async def test_the_console_says_that_refused_groups_are_held_back_and_not_excluded(world: World) -> None:
    watcher = EventReader(Project(world.store, PROJECT))
    await watcher.look()
    async with await world.trainer() as trainer:
        await recorded(world, "g1", 1, raw=True)
        assert (await trained(world, trainer)).code == LOGPROB_GAP
    said = [event.text for event in await watcher.look()]
    assert any(text.startswith("1 group held back (logprob_gap)") for text in said), said
    assert not any("excluded" in text for text in said)
    async with await world.trainer(max_logprob_gap=5.0):
        pass
    assert any("may be trained on again" in event.text for event in await watcher.look())
