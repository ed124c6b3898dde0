"""Experts in an adapter's files: the names of the engine's class, and back to the trainer's tensors bit for bit."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from recorder.models.experts import EXPERT_NAMES, GATED, NUMBERED, ExpertNames
from recorder.models.media import TEXT, TEXT_PARTS
from tests.trainer.families import MIXTURES, make_model
from trainer.artifacts import adapters
from trainer.artifacts.adapters import CONFIG, WEIGHTS, AdapterOrigin, LoraShape, PublishedAdapter
from trainer.errors import AdapterInvalid
from trainer.lora.file_layout import ExpertLayout
from trainer.policy.base_model import add_lora
from trainer.policy.model import Policy
from trainer.policy.startup_check import random_state
from trainer.settings import TrainerSettings

RANK = 4
needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
SETTINGS = TrainerSettings(device="cpu", rank=RANK, alpha=8.0, token_budget=256)
ORIGIN = AdapterOrigin("mixture", 1, "mixture@0", "tiny", None)


def make_policy(family: str, text_part: str = TEXT) -> tuple[Policy, str]:
    model = make_model(family)
    architecture = type(model).__name__
    return Policy(add_lora(model, Path(family), SETTINGS, architecture), family, SETTINGS, text_part), architecture


def publish(
    folder: Path, policy: Policy, layout: ExpertLayout
) -> tuple[PublishedAdapter, dict[str, Tensor], dict[str, tuple[int, ...]]]:
    state = random_state(policy, 5)
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    lora = LoraShape(RANK, 8.0, policy.modules, layout)
    published = adapters.publish_adapter(folder, ORIGIN, lora, state, shapes, {"contexts": [], "separation": 0.0})
    return published, state, shapes


@pytest.mark.parametrize("family", MIXTURES)
def test_a_published_adapter_is_read_back_bit_for_bit(family: str, tmp_path: Path) -> None:
    policy, architecture = make_policy(family)
    layout = ExpertLayout.of(architecture, RANK)
    published, state, shapes = publish(tmp_path, policy, layout)
    for found in (
        adapters.read_adapter(published.path, published.manifest_sha256, layout),
        adapters.check_adapter(published.path, shapes, RANK, layout),
    ):
        assert found.keys() == state.keys()
        assert all(found[name].equal(tensor) for name, tensor in state.items())
        policy.load_state(found)
        assert adapters.is_same_adapter(policy.state(), state)
    assert adapters.unservable_modules(shapes, RANK, layout) == []
    config = json.loads((published.path / CONFIG).read_text())
    assert config["r"] == RANK
    assert "rank_pattern" not in config


def test_each_expert_has_its_own_matrices_of_the_same_rank_in_the_file(tmp_path: Path) -> None:
    policy, architecture = make_policy("mixtral")
    published, state, _ = publish(tmp_path, policy, ExpertLayout.of(architecture, RANK))
    file = load_file(published.path / WEIGHTS)
    expert = "base_model.model.model.layers.1.block_sparse_moe.experts.2"
    own = "base_model.model.model.layers.1.mlp.experts"
    a, b = (state[f"{own}.base_layer.lora_{side}.weight"] for side in "AB")
    assert file[f"{expert}.w1.lora_A.weight"].equal(a[8:12])
    assert file[f"{expert}.w3.lora_A.weight"].equal(a[8:12])
    assert file[f"{expert}.w1.lora_B.weight"].equal(b[:48, 2::4])
    assert file[f"{expert}.w3.lora_B.weight"].equal(b[48:, 2::4])
    assert json.loads((published.path / CONFIG).read_text())["target_modules"] == [
        "k_proj", "o_proj", "q_proj", "v_proj", "w1", "w2", "w3",
    ]  # fmt: skip
    assert not any(".mlp." in name for name in file)


def test_a_class_with_fused_experts_gets_fused_names(tmp_path: Path) -> None:
    policy, architecture = make_policy("gpt-oss")
    published, state, _ = publish(tmp_path, policy, ExpertLayout.of(architecture, RANK))
    file = load_file(published.path / WEIGHTS)
    assert file.keys() == state.keys()
    config = json.loads((published.path / CONFIG).read_text())
    assert config["target_parameters"] == ["experts.down_proj", "experts.gate_up_proj"]
    assert config["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]


def test_the_multimodal_class_gets_its_own_prefix(tmp_path: Path) -> None:
    policy, _ = make_policy("qwen3.5-moe", text_part=TEXT_PARTS["Qwen3_5MoeForConditionalGeneration"])
    layout = ExpertLayout.of("Qwen3_5MoeForConditionalGeneration", RANK)
    published, state, _ = publish(tmp_path, policy, layout)
    file = load_file(published.path / WEIGHTS)
    assert all(name.startswith("base_model.model.model.language_model.layers.") for name in file)
    found = adapters.read_adapter(published.path, None, layout)
    assert all(found[name].equal(tensor) for name, tensor in state.items())


def test_experts_that_hone_did_not_write_are_refused(tmp_path: Path) -> None:
    policy, architecture = make_policy("qwen3-moe")
    layout = ExpertLayout.of(architecture, RANK)
    file = layout.to_file(random_state(policy, 5))
    gate = "base_model.model.model.layers.0.mlp.experts.1.gate_proj.lora_A.weight"
    with pytest.raises(AdapterInvalid, match=r"experts\.1 have different lora_A") as told:
        layout.from_file(file | {gate: file[gate] + 1})
    assert "gate_proj and up_proj" in str(told.value)
    with pytest.raises(AdapterInvalid, match=r"no lora_A of .*experts\.1\.gate_proj"):
        layout.from_file({name: tensor for name, tensor in file.items() if name != gate})


def test_an_adapter_that_differs_in_one_expert_is_another_one() -> None:
    policy, _ = make_policy("qwen3-moe")
    one, other = random_state(policy, 5), random_state(policy, 5)
    assert adapters.is_same_adapter(one, other)
    other["base_model.model.model.layers.1.mlp.experts.lora_B.weight"][3, 7] += 1e-3
    assert not adapters.is_same_adapter(one, other)


# --- the names, compared with the installed vLLM


def vllm_source(names: ExpertNames) -> str:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        pytest.skip("vLLM is not installed")
    return (Path(spec.origin).parent / "model_executor" / "models" / names.source).read_text("utf-8")


@pytest.mark.parametrize("architecture", EXPERT_NAMES)
def test_the_installed_vllm_has_each_class_with_these_names(architecture: str) -> None:
    names = EXPERT_NAMES[architecture]
    source = vllm_source(names)
    classes = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}
    assert architecture in classes
    assert ("is_3d_moe_weight" in ast.unparse(classes[architecture])) == names.is_fused
    if not names.is_fused:
        assert ("ckpt_names=('w1', 'w2', 'w3')" in source.replace('"', "'")) == (names.projections == NUMBERED)
        assert names.projections in (GATED, NUMBERED)


LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "q_a_proj", "q_b_proj",
          "kv_a_proj_with_mqa", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"]  # fmt: skip
MODULES = {"mixtral": "block_sparse_moe", "granite-moe": "block_sparse_moe", "llama4": "feed_forward"}
# qwen3_5.py and qwen3_vl.py: `hf_to_vllm_mapper`. Their import needs packages for images.
MAPPERS: dict[str, dict[str, str]] = {
    "Qwen3_5MoeForCausalLM": {"model.language_model.": "model."},
    "Qwen3_5MoeForConditionalGeneration": {
        "model.visual.": "visual.",
        "lm_head.": "language_model.lm_head.",
        "model.language_model.": "language_model.model.",
    },
}


def _layer_of(name: str) -> int:
    return int(name.partition("layers.")[2].partition(".")[0])


def specification(family: str, architecture: str, folder: Path, layout: ExpertLayout | None = None) -> dict[str, Any]:
    policy, _ = make_policy(family, text_part=TEXT_PARTS.get(architecture, TEXT))
    names = EXPERT_NAMES[architecture]
    published, state, _ = publish(folder, policy, layout or ExpertLayout.of(architecture, RANK))
    save_file(state, folder / "state.safetensors")
    own = next(name for name in state if name.endswith(".experts.lora_A.weight"))
    path = own.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
    number = _layer_of(path)
    prefix = "language_model." if architecture.endswith("ForConditionalGeneration") else ""
    module = f"{prefix}model.layers.{{}}.{MODULES.get(family, 'mlp')}.experts"
    layers = sorted({_layer_of(name) for name in state if ".experts.lora_A" in name})
    return {
        "family": architecture, "architecture": architecture, "source": names.source, "adapter": str(published.path),
        "state": str(folder / "state.safetensors"), "linear": LINEAR, "module": module, "layers": layers,
        "own_module": path.replace(f"layers.{number}.", "layers.{}."), "experts": 4, "rank": RANK, "scale": 2.0,
        "hidden": 32, "width": state[own].shape[1], "checkpoint_names": names.projections or GATED,
        "is_3d": names.is_fused, "mapper": MAPPERS.get(architecture),
    }  # fmt: skip


def altered(spec: dict[str, Any], file: Path) -> dict[str, Any]:
    """The same with one number of the trainer's changed: the up projection of layer 1's third expert."""
    state = load_file(spec["state"])
    state["base_model.model.model.layers.1.mlp.experts.base_layer.lora_B.weight"][spec["width"], 2] += 1.0
    save_file(state, file)
    return spec | {"family": "altered", "state": str(file)}


@needs_vllm
def test_vllm_s_own_code_loads_the_experts_and_holds_the_trainer_s_matrices(tmp_path: Path) -> None:
    """Also: fused names on a class that has one pair for each expert are refused, and a difference is found."""
    pairs = [(family, type(make_model(family)).__name__) for family in MIXTURES]
    pairs.append(("qwen3.5-moe", "Qwen3_5MoeForConditionalGeneration"))
    specs = []
    for family, architecture in pairs:
        folder = tmp_path / architecture
        folder.mkdir()
        specs.append(specification(family, architecture, folder))
    folder = tmp_path / "wrong"
    folder.mkdir()
    fused = ExpertLayout(dataclasses.replace(EXPERT_NAMES["Qwen3MoeForCausalLM"], projections=None), RANK)
    specs.append(specification("qwen3-moe", "Qwen3MoeForCausalLM", folder, fused) | {"family": "wrong"})
    specs.append(altered(specs[0], tmp_path / "altered.safetensors"))
    (tmp_path / "specs.json").write_text(json.dumps(specs))
    program = Path(__file__).with_name("vllm_experts.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "specs.json")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[str]] = json.loads(done.stdout.strip().splitlines()[-1])
    assert "fused 3D MoE weights" in found.pop("wrong")[0]
    assert found.pop("altered") == ["layer 1, expert 2: gate and up B 1"]
    assert found == {architecture: [] for _, architecture in pairs}
