"""A version's directory: complete and checked, or not there."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from recorder.processes import durable_folders
from trainer.artifacts import adapters
from trainer.artifacts.adapters import CONFIG, MANIFEST, PROBE, WEIGHTS, AdapterOrigin, LoraShape, PublishedAdapter
from trainer.errors import AdapterInvalid

ORIGIN = AdapterOrigin("help desk", 3, "help desk@2", "tiny", "fingerprint")
LORA = LoraShape(4, 8.0, ("q_proj",))
NAME = "base_model.model.model.layers.0.self_attn.q_proj"
SHAPES = {f"{NAME}.lora_A.weight": (4, 48), f"{NAME}.lora_B.weight": (64, 4)}


def state() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def publish(folder: Path, tensors: dict[str, Tensor] | None = None, lora: LoraShape = LORA) -> PublishedAdapter:
    return adapters.publish_adapter(
        folder, ORIGIN, lora, tensors or state(), SHAPES, {"contexts": [], "separation": 0.0}
    )


def rewrite(folder: Path, change: Callable[[Path], object]) -> None:
    """Change a file and give the manifest its new hash, so that only the change itself can be found."""
    change(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"] = {name: durable_folders.file_sha256(folder / name) for name in (WEIGHTS, CONFIG, PROBE)}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_a_version_is_complete_named_by_its_manifest_and_read_back_exactly(tmp_path: Path) -> None:
    published = publish(tmp_path)
    assert {path.name for path in published.path.iterdir()} == {WEIGHTS, CONFIG, PROBE, MANIFEST}
    assert published.manifest_sha256 == durable_folders.file_sha256(published.path / MANIFEST)
    assert published.engine_name == f"help-desk@3-{published.manifest_sha256[:12]}" == published.path.name
    manifest = json.loads((published.path / MANIFEST).read_text())
    assert manifest["files"] == {
        name: durable_folders.file_sha256(published.path / name) for name in (WEIGHTS, CONFIG, PROBE)
    }
    expected = {
        "alias": "help desk",
        "number": 3,
        "parent": "help desk@2",
        "base_fingerprint": "fingerprint",
        "rank": 4,
    }
    assert expected.items() <= manifest.items()
    found = adapters.read_adapter(published.path, published.manifest_sha256)
    assert found.keys() == SHAPES.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in state().items())
    assert [path.name for path in tmp_path.iterdir()] == [published.engine_name]


def test_peft_itself_loads_what_is_published(tmp_path: Path, tiny_base: Path, tiny_policy: Callable[..., Any]) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    policy = tiny_policy()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.parameters.items()}
    lora = LoraShape(4, 8.0, policy.modules)
    published = adapters.publish_adapter(tmp_path, ORIGIN, lora, policy.state(), shapes, {})
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_base), published.path)
    ids = torch.arange(3, 30)[None]
    policy.set_attention("sdpa")
    with torch.no_grad():
        torch.testing.assert_close(loaded(input_ids=ids).logits, policy._model(input_ids=ids).logits)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_never_published(tmp_path: Path, value: float) -> None:
    tensors = state()
    tensors[f"{NAME}.lora_B.weight"][3, 1] = value
    with pytest.raises(AdapterInvalid, match=r"lora_B.* not finite"):
        publish(tmp_path, tensors)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t | {f"{NAME}.lora_A.weight": torch.zeros(4, 47)}, r"lora_A.* has shape \(4, 47\), not \(4, 48\)"),
        (lambda t: {k: v for k, v in t.items() if "lora_B" not in k}, "has no tensor .*lora_B"),
        (
            lambda t: t | {"base_model.model.other.lora_A.weight": torch.zeros(4, 8)},
            "other.* not on a trained module of the base",
        ),
        (lambda t: t | {f"{NAME}.bias": torch.zeros(4)}, "bias.* not on a trained module of the base"),
        (lambda t: t | {f"{NAME}.lora_magnitude_vector": torch.zeros(4)}, "not on a trained module of the base"),
    ],
    ids=["shape", "missing tensor", "unknown module", "bias", "DoRA"],
)
def test_tensors_that_do_not_fit_are_never_published(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]], message: str
) -> None:
    with pytest.raises(AdapterInvalid, match=message):
        publish(tmp_path, change(state()))
    assert list(tmp_path.iterdir()) == []


def test_tensors_of_another_rank_than_the_configuration_are_never_published(tmp_path: Path) -> None:
    with pytest.raises(AdapterInvalid, match="not of rank 8"):
        publish(tmp_path, lora=LoraShape(8, 8.0, ("q_proj",)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, PROBE, MANIFEST])
def test_a_missing_file_is_found(tmp_path: Path, name: str) -> None:
    published = publish(tmp_path)
    (published.path / name).unlink()
    with pytest.raises(AdapterInvalid, match=name):
        adapters.check_adapter(published.path, SHAPES, 4)


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, PROBE])
def test_a_file_changed_after_publication_is_found(tmp_path: Path, name: str) -> None:
    published = publish(tmp_path)
    with (published.path / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(AdapterInvalid, match=f"{name}.*sha256 differs"):
        adapters.read_adapter(published.path, published.manifest_sha256)


def test_a_directory_that_was_replaced_is_found(tmp_path: Path) -> None:
    published = publish(tmp_path)
    rewrite(published.path, lambda folder: (folder / PROBE).write_text("{}"))
    adapters.check_adapter(published.path, SHAPES, 4)
    with pytest.raises(AdapterInvalid, match="not the manifest that the store recorded"):
        adapters.read_adapter(published.path, published.manifest_sha256)


@pytest.mark.parametrize(
    "change",
    [
        {"use_dora": True},
        {"bias": "all"},
        {"bias": "lora_only"},
        {"lora_bias": True},
        {"modules_to_save": ["lm_head"]},
        {"init_lora_weights": "pissa"},
        {"init_lora_weights": "olora"},
        {"rank_pattern": {"q_proj": 2}},
        {"use_rslora": True},
        {"r": 8},
        {"peft_type": "IA3"},
        {"lora_alpha": 0},
        {"lora_alpha": "16"},
    ],
    ids=str,
)
def test_what_engines_refuse_or_ignore_does_not_pass_the_check(tmp_path: Path, change: dict[str, Any]) -> None:
    published = publish(tmp_path)

    def configure(folder: Path) -> None:
        config = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps(config | change))

    rewrite(published.path, configure)
    with pytest.raises(AdapterInvalid, match=CONFIG):
        adapters.check_adapter(published.path, SHAPES, 4)


def test_a_torn_weight_file_is_found(tmp_path: Path) -> None:
    published = publish(tmp_path)
    rewrite(published.path, lambda folder: (folder / WEIGHTS).write_bytes(b"torn"))
    with pytest.raises(AdapterInvalid, match="cannot be read"):
        adapters.check_adapter(published.path, SHAPES, 4)


def test_a_nan_that_came_in_later_is_found(tmp_path: Path) -> None:
    published = publish(tmp_path)

    def spoil(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        tensors[f"{NAME}.lora_A.weight"][0, 0] = float("nan")
        save_file(tensors, folder / WEIGHTS)

    rewrite(published.path, spoil)
    with pytest.raises(AdapterInvalid, match="not finite"):
        adapters.check_adapter(published.path, SHAPES, 4)


def test_only_the_owners_unfinished_folders_are_removed(tmp_path: Path) -> None:
    names = [".unfinished-a-0123456789abcdef", ".unfinished-a-b-0123456789abcdef", "a@1-000000000000"]
    for name in names:
        (tmp_path / name).mkdir()
    durable_folders.remove_unfinished(tmp_path, "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_a_failed_folder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="broken"), durable_folders.unfinished_folder(tmp_path, "a") as folder:  # noqa: PT012
        (folder / "half").write_text("x")
        raise RuntimeError("broken")
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_is_the_owners_alone_unless_its_folder_is_shared(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        alone, shared = tmp_path / "alone", tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o2750)
        found = [modes(publish(folder).path) for folder in (alone, shared)]
    finally:
        os.umask(before)
    assert found == [{0o700, 0o600}, {0o750, 0o640}]


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
