"""Which base `hone plan` computes for: folders, shipped names, hub ids; and what is none."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from recorder.errors import BaseInvalid
from trainer.errors import PlanInvalid
from trainer.memory import bases
from trainer.memory.bases import find_base


@pytest.mark.parametrize("named", ["Qwen3-8B", "qwen/qwen3-8b", "Qwen/Qwen3-8B"])
def test_a_shipped_model_needs_no_network(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "hf_hub_download", lambda *_, **__: pytest.fail("the hub was asked"))
    assert find_base(named).name == "Qwen3-8B"


def test_a_folder_with_a_config_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 2}))
    assert find_base(str(tmp_path)).family == "llama"


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaseInvalid, match=r"no config\.json"):
        find_base(str(tmp_path))


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 2}))
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BaseInvalid, match="model-00001-of-00002"):
        find_base(str(tmp_path))


@pytest.mark.parametrize(
    ("beside", "said"), [("vision_config", "reads vision beside text"), ("quantization_config", "quantised by gptq")]
)
def test_what_cannot_be_trained_is_refused_before_a_plan(beside: str, said: str, tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, beside: {"quant_method": "gptq"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BaseInvalid, match=said):
        find_base(str(tmp_path))


@pytest.mark.parametrize("named", ["model.gguf", "owner/model-gguf"])
def test_gguf_is_refused(named: str) -> None:
    with pytest.raises(BaseInvalid, match="GGUF"):
        find_base(named)


def test_a_misspelt_name_is_told_the_near_one() -> None:
    with pytest.raises(PlanInvalid, match=r"Did you mean Qwen3-8B\?"):
        find_base("Qwen3-9B")


def test_a_hub_that_does_not_answer_is_waited_for_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any, **__: Any) -> str:
        time.sleep(5)
        return ""

    monkeypatch.setattr(bases, "FETCH_LIMIT_S", 0.05)
    monkeypatch.setattr(bases, "hf_hub_download", hang)
    with pytest.raises(PlanInvalid, match=r"config\.json of 'nobody/nothing' cannot be fetched"):
        find_base("nobody/nothing")


def test_the_hubs_refusal_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise OSError("401 Client Error: the repository is gated")

    monkeypatch.setattr(bases, "hf_hub_download", refuse)
    with pytest.raises(PlanInvalid, match="the repository is gated"):
        find_base("somebody/gated")
