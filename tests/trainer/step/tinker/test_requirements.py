"""What the Tinker API cannot compute is refused with one sentence, before anything is sampled for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.trainer.step.tinker.conftest import OpenCore, settings_of
from tests.trainer.step.tinker.test_remote_core import BASE, rows
from tests.trainer.tinker_server import TinkerServer
from trainer.errors import TinkerUnsupported
from trainer.settings import TrainerSettings
from trainer.step import backends
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds
from trainer.step.tinker import base_check
from trainer.step.tinker.remote_core import TinkerCore
from trainer.step.tinker.requirements import base_name, find_unsupported


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kl_coef": 0.1}, "trainer.kl_coef"),
        ({"drift_trajectories": 8}, "trainer.drift_trajectories"),
        ({"quantize": "nf4"}, "trainer.quantize"),
        ({"gpus": [0]}, "trainer.gpus"),
        ({"processes": 2}, "trainer.processes"),
        ({"objectives": [{"name": "group"}, {"name": "imitate", "where": "reward >= 1"}]}, "trainer.objectives"),
        ({"objectives": [{"name": "hindsight"}]}, "trainer.objectives"),
        ({"objectives": [{"name": "group"}, {"name": "prefer"}]}, "trainer.objectives"),
        ({"target": "experts"}, "trainer.target"),
        ({"target": ["q_proj"]}, "trainer.target"),
    ],
)
def test_a_setting_that_cannot_be_expressed_is_refused_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    reason = find_unsupported(TrainerSettings(backend="tinker", **changes))
    assert reason is not None
    assert words in reason
    assert ". " not in reason
    assert 'trainer.backend = "local"' in reason


def test_a_shared_gpu_is_refused() -> None:
    settings = TrainerSettings(backend="tinker")
    assert settings.drift_trajectories == 0  # by default, there
    assert find_unsupported(settings) is None
    for share in ("cache", "sleep"):
        assert "engine.share" in (find_unsupported(settings, share) or "")


def test_the_back_end_refuses_before_it_loads_anything(tmp_path: Path) -> None:
    settings = TrainerSettings(backend="tinker", kl_coef=0.1)
    with pytest.raises(TinkerUnsupported, match="kl_coef"):
        backends.open_core(tmp_path / "none", settings, TrainerFolders.of(tmp_path), lambda: False)


def test_a_base_is_named_by_its_hub_id_or_by_a_setting(tmp_path: Path) -> None:
    assert base_name(TrainerSettings(base="Qwen/Qwen3-8B")) == "Qwen/Qwen3-8B"
    assert base_name(TrainerSettings(base=str(tmp_path), tinker={"base_model": "Qwen/Qwen3-8B"})) == "Qwen/Qwen3-8B"
    with pytest.raises(TinkerUnsupported, match=r"trainer\.tinker\.base_model"):
        base_name(TrainerSettings(base=str(tmp_path)))


@pytest.mark.parametrize(
    ("url", "is_taken"),
    [
        ("https://tinker.example/api", True),
        ("http://127.0.0.1:8000", True),
        ("http://localhost:8000", True),
        ("http://tinker.example", False),
        ("http://127.0.0.1.tinker.example", False),
        ("ftp://localhost", False),
        ("http://[", False),
    ],
)
def test_a_key_is_sent_over_tls_or_stays_on_this_machine(url: str, is_taken: bool) -> None:
    if is_taken:
        assert TrainerSettings(tinker={"url": url}).tinker.url == url
    else:
        with pytest.raises(ValueError, match="the key is sent there"):
            TrainerSettings(tinker={"url": url})


def test_tokens_of_another_temperature_are_refused(open_core: OpenCore, service: TinkerServer) -> None:
    core = open_core()
    core.go_to(BASE)
    given = rows(1)
    given[2].row.temperature[given[2].row.trained] = 0.7
    sent = len(service.bodies("forward_backward"))
    with pytest.raises(TinkerUnsupported, match=r"trajectory t2 was sampled at temperature 0\.7"):
        core.step(given, 1e-2, lambda: False, PhaseSeconds())
    assert len(service.bodies("forward_backward")) == sent


def another_base(base: Path, folder: Path, change: float) -> Path:
    """A copy of a base in which one matrix is a little different."""
    shutil.copytree(base, folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in sorted(weights) if name.endswith("q_proj.weight"))
    weights[name] = weights[name] + change * torch.randn(weights[name].shape, generator=torch.Generator())
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_base_that_computes_other_logprobs_cannot_be_shown_equal(
    open_core: OpenCore, service: TinkerServer, tiny_base: Path, tmp_path: Path
) -> None:
    service.base = another_base(tiny_base, tmp_path / "other", 1e-3)
    with pytest.raises(TinkerUnsupported, match="cannot be shown equal") as refused:
        open_core()
    assert "nats a token apart" in str(refused.value)


def test_a_base_that_does_not_fit_here_cannot_be_shown_equal(
    open_core: OpenCore, service: TinkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_check, "_FREE", 1e-9)  # of the memory that is free
    with pytest.raises(TinkerUnsupported, match="cannot be shown equal"):
        open_core()
    assert not service.requests


def test_a_base_that_the_service_does_not_train_is_refused(open_core: OpenCore) -> None:
    with pytest.raises(TinkerUnsupported, match=r"trains no base 'org/huge': .* one of org/tiny"):
        open_core(tinker={"base_model": "org/huge"})


def test_rows_longer_than_the_service_takes_are_refused_at_the_start(
    open_core: OpenCore, service: TinkerServer
) -> None:
    service.longest = 32
    with pytest.raises(TinkerUnsupported, match="rows of at most 32 tokens"):
        open_core()
    service.longest = 100
    core = open_core()
    assert core.fits_alone(100)
    assert not core.fits_alone(101)


def test_another_scale_is_refused_at_the_start(open_core: OpenCore) -> None:
    with pytest.raises(TinkerUnsupported, match=r"alpha 8\.0 at rank 4, .* set trainer\.alpha to 8\.0"):
        open_core(alpha=16.0)


def test_other_weights_than_the_targets_are_refused_at_the_start(
    open_core: OpenCore, service: TinkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.trainer import tinker_server

    monkeypatch.setattr(tinker_server, "MLP", ["gate_proj", "up_proj"])
    with pytest.raises(TinkerUnsupported, match=r"it has no .*down_proj"):
        open_core()


def test_a_mixture_is_refused(tiny_base: Path, tmp_path: Path, service: TinkerServer) -> None:
    base = tmp_path / "mixture"
    shutil.copytree(tiny_base, base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen3MoeForCausalLM"]}))
    with pytest.raises(TinkerUnsupported, match="mixture of experts"):
        TinkerCore(base, settings_of(base, service.url), TrainerFolders.of(tmp_path), lambda: False)
    assert not service.requests
