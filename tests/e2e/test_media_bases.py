"""vLLM's own loader puts the LoRA of a base that reads images on its language model: no name is lost, none is foreign.

The mapping of each class is read from vLLM's source: importing it needs torchvision, which a CPU environment lacks.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.families.catalog import FAMILIES, Family, write_model
from benchmarks.families.trainer_half import run_trainer_half
from recorder.models.media import TEXT_PARTS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class Vllm:
    """Of vLLM: what reads an adapter's files, and where its classes are."""

    adapter: Any
    peft: Any
    mapper: Any
    models: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def vllm() -> Vllm:
    """Imported here alone: it takes seconds, and warns of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter = importlib.import_module("vllm.lora.lora_model").LoRAModel
        peft = importlib.import_module("vllm.lora.peft_helper").PEFTHelper
        mapper = importlib.import_module("vllm.model_executor.models.utils").WeightsMapper
        models = importlib.import_module("vllm.model_executor.models.registry")._MULTIMODAL_MODELS
    return Vllm(adapter, peft, mapper, models)


IN_VLLM = "language_model.model.layers."  # where all these classes have their language model
_UNLOADED = {"Llama4ForConditionalGeneration"}  # its adapter is not published yet; its names are checked all the same


def class_source(vllm: Vllm, architecture: str) -> ast.ClassDef:
    """The class of an architecture in vLLM's source."""
    module, name = vllm.models[architecture]
    spec = importlib.util.find_spec(f"vllm.model_executor.models.{module}")
    assert spec is not None
    assert spec.origin is not None
    parsed = ast.parse(Path(spec.origin).read_text("utf-8"))
    return next(node for node in parsed.body if isinstance(node, ast.ClassDef) and node.name == name)


def mapping_of(vllm: Vllm, architecture: str) -> Any:
    """The class's `hf_to_vllm_mapper`: its own expression, or that of a class that it is derived from."""
    cls = class_source(vllm, architecture)
    for node in cls.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "hf_to_vllm_mapper":
            names: dict[str, Any] = {"WeightsMapper": vllm.mapper}
            for used in {one.value.id for one in ast.walk(node) if isinstance(one, ast.Attribute)
                         and isinstance(one.value, ast.Name)}:  # fmt: skip
                names[used] = type(used, (), {"hf_to_vllm_mapper": mapping_of(vllm, used)})
            return eval(compile(ast.Expression(node.value), cls.name, "eval"), names)
    for base in cls.bases:
        if isinstance(base, ast.Name) and base.id in vllm.models:
            return mapping_of(vllm, base.id)
    return None


def family_of(architecture: str) -> Family:
    whole = {"Llama4": "Llama4Config", "Qwen3_5": "Qwen3_5Config", "Qwen3_5Moe": "Qwen3_5MoeConfig"}
    name = architecture.removesuffix("ForConditionalGeneration")
    return next(one for one in FAMILIES if one.whole == whole.get(name, f"{name}Config"))


@pytest.mark.parametrize("architecture", sorted(TEXT_PARTS))
def test_names_in_an_adapter_s_file_reach_the_language_model(vllm: Vllm, architecture: str) -> None:
    mapper, name = mapping_of(vllm, architecture), f"{TEXT_PARTS[architecture]}layers.0.self_attn.q_proj"
    mapped = mapper._map_name(name) if mapper is not None else name
    assert mapped == f"{IN_VLLM}0.self_attn.q_proj"


@pytest.mark.parametrize("architecture", sorted(TEXT_PARTS.keys() - _UNLOADED))
def test_vllm_loads_every_module_of_a_published_adapter(vllm: Vllm, architecture: str, tmp_path: Path) -> None:
    base, adapters = tmp_path / "model", tmp_path / "adapters"
    adapters.mkdir()
    trained = run_trainer_half(write_model(family_of(architecture), base), adapters)
    assert trained.adapter is not None, trained.figures
    assert trained.policy is not None
    helper = vllm.peft.from_local_dir(str(trained.adapter), max_position_embeddings=None)
    loaded = vllm.adapter.from_local_checkpoint(
        str(trained.adapter), set(trained.policy.modules), helper, device="cpu", dtype=torch.float32,
        weights_mapper=mapping_of(vllm, architecture),
    )  # fmt: skip
    expected = {
        name.split(".lora_")[0].replace(f"base_model.model.{TEXT_PARTS[architecture]}", "language_model.model.")
        for name in trained.policy.parameters
    }
    assert loaded.loras.keys() == expected
    assert all(name.startswith("language_model.model.") for name in expected)
    state = trained.policy.state()
    name = next(iter(sorted(state))).split(".lora_")[0]
    its = loaded.loras[name.replace(f"base_model.model.{TEXT_PARTS[architecture]}", "language_model.model.")]
    assert torch.equal(its.lora_a, state[f"{name}.lora_A.weight"])
