"""Training on a copy in nf4: the gap to the engine decides, the step says what it computed on, the base is served."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from proxy.versions import verification
from recorder.queue.training import steps
from recorder.queue.training.fixed_text import FIXED_TEXT, named_tokens
from recorder.queue.training.refusals import LOGPROB_GAP
from recorder.registry import versions
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState
from recorder.store.database import Project
from recorder.views.status.events import EventReader
from recorder.views.status.project import load_status
from recorder.views.status.stages import LoopSettings
from tests.stores import Stores
from tests.trainer.quantization.copies import plain_copy
from tests.trainer.step.left import group_state
from tests.trainer.training_child import BASE, core, one_step, rows, start
from tests.trainer.world import PROJECT, World
from trainer.artifacts.merge import merge_adapter
from trainer.batch.weights import WeightedRow
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer
from trainer.step.engine_gap import NF4_BOUND, Precision, explain_copy, gap_bound
from trainer.step.state.results import PhaseSeconds

REWARDS = [1.0, 0.0, 0.2]


async def trained(world: World, trainer: AliasTrainer, name: str, seed: int) -> Any:
    await world.group(name, REWARDS, seed=seed, turns=4)
    return await trainer.train_once(await world.claim(trainer))


def mean_gap(base: Path, given: list[WeightedRow]) -> float:
    """The mean difference of the trained tokens' logprobs to the recorded ones, by a plain model, row by row."""
    model = AutoModelForCausalLM.from_pretrained(base)
    gaps: list[float] = []
    for one in given:
        ids = torch.from_numpy(one.row.token_ids.astype(np.int64))
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0].float()
        for place in np.flatnonzero(one.row.trained):
            tempered = torch.log_softmax(logits[place - 1] / float(one.row.temperature[place]), -1)
            gaps.append(abs(float(tempered[ids[place]]) - float(one.row.behaviour[place])))
    return float(np.mean(gaps))


def test_a_step_is_that_of_a_plain_base_with_the_copys_weights(tiny_base: Path, tmp_path: Path) -> None:
    plain = plain_copy(tiny_base, tmp_path / "plain")
    copied, expected = core(tiny_base, tmp_path / "a", quantize="nf4"), core(plain, tmp_path / "b")
    for one in (copied, expected):
        one.go_to(BASE)
    metrics, written = one_step(copied, 1)
    wanted, other = one_step(expected, 1)
    for name in ("loss", "grad_norm", "logprob_gap", "kl_engine", "probe_separation"):
        assert metrics[name] == pytest.approx(wanted[name], rel=1e-3, abs=1e-7), name
    assert metrics["logprob_gap"] == pytest.approx(mean_gap(plain, rows(1)), rel=1e-5)
    assert metrics["logprob_gap"] != pytest.approx(mean_gap(tiny_base, rows(1)), rel=1e-4)
    for name, tensor in copied.policy.state().items():
        torch.testing.assert_close(tensor, expected.policy.state()[name], atol=2e-4, rtol=0)
    resumed = core(tiny_base, tmp_path / "a", quantize="nf4")
    assert resumed.go_to(start(written, 1))
    assert one_step(resumed, 2)[0]["loss"] == pytest.approx(one_step(copied, 2)[0]["loss"], rel=1e-5)
    assert other.published.path.is_dir()


async def test_above_the_bound_no_version_is_made_and_the_step_says_what_it_computed_on(world: World) -> None:
    async with await world.trainer(quantize="nf4", max_logprob_gap=1e-4) as trainer:
        report = await trained(world, trainer, "g1", 1)
    assert (report.version, report.code) == (None, LOGPROB_GAP)
    assert report.metrics["logprob_gap"] > report.metrics["logprob_gap_bound"] == 1e-4
    assert "it computes on a copy in nf4" in str(report.reason)
    (step,) = await steps.list_steps(world.store, world.alias.id)
    assert step.computed_on == "nf4"
    assert [one.number for one in await versions.list_versions(world.store, world.alias.id)] == [0]


async def test_step_and_version_record_it_and_the_fingerprint_stays_the_bases(world: World) -> None:
    watcher = EventReader(Project(world.store, PROJECT))
    await watcher.look()
    async with await world.trainer(quantize="nf4", max_logprob_gap=5.0) as trainer:
        report = await trained(world, trainer, "g1", 1)
        version = report.version
        assert version is not None
        assert version.metrics[steps.COMPUTED_ON] == "nf4"
        assert version.base_fingerprint == world.alias.base_fingerprint
        assert all(isinstance(value, float) for value in report.metrics.values())
        await world.promote(version)
        assert (await trained(world, trainer, "g2", 2)).version is not None
    (newest, first) = await steps.list_steps(world.store, world.alias.id)
    assert (newest.computed_on, first.computed_on) == ("nf4", "nf4")
    assert steps.COMPUTED_ON not in newest.figures
    said = [event.text for event in await watcher.look()]
    assert any("computed on nf4" in text for text in said), said
    loop = LoopSettings(RecorderSettings(), LearnSettings(), TrainerSettings())
    (last,) = (await load_status(Project(world.store, PROJECT), loop)).steps
    assert last.metrics[steps.COMPUTED_ON] == "nf4"


async def test_training_goes_on_without_the_copy_and_with_it_again(world: World) -> None:
    copies = []
    for number, quantize in enumerate(("nf4", None, "nf4")):
        async with await world.trainer(quantize=quantize, max_logprob_gap=5.0) as trainer:
            report = await trained(world, trainer, f"g{number}", number)
            assert report.metrics["optimizer_fresh"] == 0
            copies.append(report.step.computed_on)
            await world.promote(report.version)
    assert copies == ["nf4", None, "nf4"]


async def test_the_bound_of_a_copy_replaces_that_of_float32(world: World) -> None:
    async with await world.trainer(quantize="nf4") as trainer:
        assert trainer.gap_bound == NF4_BOUND == 0.05
    assert gap_bound("bfloat16", None, None, "nf4") == 0.05
    assert gap_bound("bfloat16", Precision.FOUR_BITS, None, "nf4") == 0.3
    assert gap_bound("float32", None, 0.01, "nf4") == 0.01


def with_tokenizer(base: Path) -> None:
    """Give a base of 64 tokens a tokenizer that knows the fixed text's words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = list(dict.fromkeys(FIXED_TEXT.replace(".", " .").split()))
    made = Tokenizer(models.WordLevel({word: 3 + at for at, word in enumerate(words)}, unk_token=words[0]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(base)


async def test_before_the_first_step_the_copy_is_compared_with_the_base_after_the_fixed_text(
    tiny_base: Path, tmp_path: Path, stores: Stores
) -> None:
    base = shutil.copytree(tiny_base, tmp_path / "base")
    with_tokenizer(base)
    with stores.made(tmp_path / "data") as settings:
        async with (
            World.opened(tmp_path / "data", base, settings) as world,
            await world.trainer(quantize="nf4") as trainer,
        ):
            note, found = str(trainer.target_note), trainer._core.copied
    assert found is not None
    expected = [after_text(folder) for folder in (base, plain_copy(base, tmp_path / "plain"))]
    for one, other in zip((found.base, found.copy), expected, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    gap = np.mean([abs(a - b) for a, b in zip(*expected, strict=True)])
    assert f"{gap:.2g} nats a token from the base's" in note
    assert 'trainer.quantize = "nf4" quantises' in note


def test_a_copy_that_is_far_from_the_base_is_said_to_be() -> None:
    assert "at most 0.1 is accepted there" in explain_copy(0.03, 0.1)
    assert "steps may make no version" in explain_copy(0.3, 0.1)


def after_text(base: Path) -> list[float]:
    prompt = PreTrainedTokenizerFast.from_pretrained(base)(FIXED_TEXT).input_ids
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(base)(input_ids=torch.tensor([prompt])).logits[0, -1]
    found: list[float] = torch.log_softmax(logits, -1)[named_tokens(prompt)].tolist()
    return found


def test_a_version_is_merged_into_the_base_itself(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path / "data", quantize="nf4")
    trainer.go_to(BASE)
    _, written = one_step(trainer, 1)
    merge_adapter(tiny_base, written.published.path, tmp_path / "merged")
    own = AutoModelForCausalLM.from_pretrained(tiny_base)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    served = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_base), written.published.path)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        expected = served(input_ids=ids).logits
        torch.testing.assert_close(merged(input_ids=ids).logits, expected, atol=1e-4, rtol=0)
        assert (own(input_ids=ids).logits - expected).abs().max() > 1e-3
    assert "quantization_config" not in json.loads((tmp_path / "merged" / "config.json").read_text())


def test_a_probe_allows_for_the_copys_gap(tiny_base: Path, tmp_path: Path) -> None:
    probes = {}
    for quantize in (None, "nf4"):
        trainer = core(tiny_base, tmp_path / str(quantize), quantize=quantize)
        trainer.go_to(BASE)
        _, written = one_step(trainer, 1)
        read = verification.read_probe(written.published.path)
        assert read is not None
        probes[quantize] = read
    assert probes[None].noise == 0
    named = [value for one in probes["nf4"].contexts for value in one.new]
    assert probes["nf4"].noise == pytest.approx(NF4_BOUND * max(1.0, -float(np.mean(named))), rel=1e-4)
    assert verification.is_distinguishable(probes[None], "float32")
    far = probes["nf4"].separation >= verification.ABOVE_NOISE * probes["nf4"].noise
    assert verification.is_distinguishable(probes["nf4"], "float32") is far


def test_gaps_of_a_copy_are_not_drift(tiny_base: Path, tmp_path: Path) -> None:
    """The gap of a step is measured before its update: at another learning rate it is the same."""
    found = []
    for rate in (1e-4, 1e-1):
        trainer = core(tiny_base, tmp_path / str(rate), quantize="nf4")
        trainer.go_to(BASE)
        found.append(trainer.step(rows(1), rate, lambda: False, PhaseSeconds()).metrics["logprob_gap"])
    assert found[0] == found[1]


async def test_groups_of_a_refused_step_stay_scored(world: World) -> None:
    async with await world.trainer(quantize="nf4", max_logprob_gap=1e-4) as trainer:
        group_id = await world.group("g1", REWARDS, seed=1, turns=4)
        await trainer.train_once(await world.claim(trainer))
    assert await group_state(world, group_id) == (GroupState.SCORED, None)
