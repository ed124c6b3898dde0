"""Engines whose logprobs after a fixed text are the trainer's pass; those with other weights are found."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from recorder.base.findings import FindingLevel
from tests.trainer.quantization.copies import plain_copy
from trainer.errors import UnsupportedModel
from trainer.policy.base_model import load_policy
from trainer.settings import TrainerSettings
from trainer.step.engine_check import CHECK, EngineLogprobs, check_engine_logprobs, compare_logprobs, parse_answers
from trainer.step.state.target_check import check_target

pytestmark = pytest.mark.slow

PROMPT, NAMED = (3, 7, 11, 5), (3, 7, 11)


def answered(base: Path, scale: float = 1.0) -> EngineLogprobs:
    """What an engine says whose output weights are scaled."""
    model = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([PROMPT])).logits[0, -1] * scale
    values = torch.log_softmax(logits, -1)[list(NAMED)].tolist()
    return EngineLogprobs("http://engine", PROMPT, NAMED, tuple(values))


def settings(base: Path | None, **trainer: object) -> TrainerSettings:
    given = {"base": None if base is None else str(base), "device": "cpu", **trainer}
    return TrainerSettings.model_validate(given)


def test_an_engine_of_the_same_weights_passes_and_one_of_others_does_not(tiny_base: Path) -> None:
    same, other = check_engine_logprobs(settings(tiny_base), (), [answered(tiny_base), answered(tiny_base, 1.1)])
    assert (same.check, same.verdict) == (CHECK, FindingLevel.FINE)
    assert other.verdict is FindingLevel.WRONG
    assert "1e-05" not in other.found
    assert "processed_logprobs" in str(other.todo)
    [allowed] = check_engine_logprobs(settings(tiny_base, max_logprob_gap=5.0), (), [answered(tiny_base, 1.1)])
    assert allowed.verdict is FindingLevel.FINE


def test_a_copy_is_what_is_compared_with_the_engine(tiny_base: Path, tmp_path: Path) -> None:
    """An engine that serves the copy's own weights is nearer than one that serves the base."""
    copy = plain_copy(tiny_base, tmp_path / "plain")
    given = settings(tiny_base, quantize="nf4", max_logprob_gap=1e-5)
    exact, served = check_engine_logprobs(given, (), [answered(copy), answered(tiny_base)])
    assert (exact.verdict, served.verdict) == (FindingLevel.FINE, FindingLevel.WRONG)
    [within] = check_engine_logprobs(
        settings(tiny_base, quantize="nf4", max_logprob_gap=5.0), (), [answered(tiny_base)]
    )
    assert within.verdict is FindingLevel.FINE


def test_a_base_that_is_quantised_already_is_a_finding(tiny_base: Path, tmp_path: Path) -> None:
    base = shutil.copytree(tiny_base, tmp_path / "base")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "fp8"}}))
    [finding] = check_engine_logprobs(settings(base, quantize="nf4"), (), [answered(tiny_base)])
    assert finding.verdict is FindingLevel.WRONG
    assert "are quantised by fp8" in finding.found
    with pytest.raises(UnsupportedModel, match="are quantised by fp8"):
        load_policy(base, settings(base, quantize="nf4"))
    [target] = check_target(settings(base, quantize="nf4"))
    assert target.verdict is FindingLevel.WRONG


def test_a_base_that_is_not_here_is_not_compared(tiny_base: Path, tmp_path: Path) -> None:
    one = answered(tiny_base)
    assert check_engine_logprobs(settings(tmp_path / "none"), (), [one]) == []
    assert check_engine_logprobs(settings(None), (), [one]) == []


def test_weights_that_are_too_large_for_a_check_are_said_to_be(
    tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.step.engine_check.MOST_BYTES", 10)
    [finding] = check_engine_logprobs(settings(tiny_base), (), [answered(tiny_base)])
    assert finding.verdict is FindingLevel.SKIPPED


def test_the_logprobs_of_unlikely_tokens_may_differ_more() -> None:
    engine = EngineLogprobs("e", (1,), (2, 3), (-10.0, -12.0))
    assert compare_logprobs(engine, [-10.3, -12.3], 0.05).verdict is FindingLevel.FINE
    likely = replace(engine, logprobs=(-0.5, -0.7))
    assert compare_logprobs(likely, [-0.8, -1.0], 0.05).verdict is FindingLevel.WRONG


def test_what_doctor_sends_is_read() -> None:
    given = {"url": "u", "prompt_ids": [1, 2], "token_ids": [1], "logprobs": [-1.0]}
    assert parse_answers([given]) == [EngineLogprobs("u", (1, 2), (1,), (-1.0,))]
