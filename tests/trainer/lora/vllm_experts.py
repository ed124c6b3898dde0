"""Loads adapters with vLLM's own code on CPU tensors and compares what its expert layers hold with the trainer's LoRA.

    python vllm_experts.py SPECS.json → one line of JSON: the problems found, by family (none: an empty list)

An engine cannot be started for this: vLLM serves no mixture with LoRA on a CPU. What runs here is its reading, its
checks of the format, its stacking, and the copy into a layer's buffers.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from vllm.config.lora import LoRAConfig
from vllm.lora.layers import FusedMoE3DWithLoRA, FusedMoEWithLoRA
from vllm.lora.lora_model import LoRAModel
from vllm.lora.model_manager import LoRAModelManager
from vllm.lora.peft_helper import PEFTHelper
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.models.utils import WeightsMapper

SLOT_RANK = 8


def main() -> None:
    """Check each adapter of the file with specifications."""
    specs = json.loads(Path(sys.argv[1]).read_text())
    sys.stdout.write(json.dumps({spec["family"]: problems_of(spec) for spec in specs}) + "\n")


def problems_of(spec: dict[str, Any]) -> list[str]:
    """What differs; the error if vLLM refuses the adapter."""
    try:
        layers = load_layers(spec)
    except (ValueError, AssertionError, RuntimeError) as e:
        return [f"refused: {e}"]
    state = load_file(spec["state"])
    return [problem for number, layer in layers.items() for problem in differences(spec, state, number, layer)]


def class_of(spec: dict[str, Any]) -> Any:
    """vLLM's class for the model. Some need packages for images: of those, what this check needs is in the spec."""
    if spec.get("mapper") is not None:
        mapper = WeightsMapper(orig_to_new_prefix=spec["mapper"])
        return SimpleNamespace(is_3d_moe_weight=spec["is_3d"], hf_to_vllm_mapper=mapper)
    module = importlib.import_module(f"vllm.model_executor.models.{spec['source'].removesuffix('.py')}")
    return getattr(module, spec["architecture"])


def load_layers(spec: dict[str, Any]) -> dict[int, Any]:
    """The expert layers, by their number, as they hold the adapter."""
    model = class_of(spec)
    config = LoRAConfig(max_lora_rank=SLOT_RANK, max_loras=1)
    config.lora_dtype = torch.float32
    helper = PEFTHelper.from_local_dir(spec["adapter"], 512)
    helper.validate_legal(config)
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    names = expert_modules(spec, model)
    loaded = LoRAModel.from_local_checkpoint(
        spec["adapter"],
        {*names, "experts", *spec["linear"]},
        helper,
        lora_model_id=1,
        device="cpu",
        dtype=torch.float32,
        weights_mapper=mapper.get_rename_mapper() if mapper is not None else None,
    )
    layers = {number: make_layer(spec, model, config) for number in spec["layers"]}
    manager = make_manager(spec, model, names, layers)
    manager._validate_moe_lora_format(loaded)
    manager._create_merged_loras_inplace(loaded)
    for number, layer in layers.items():
        weights = manager._get_lora_layer_weights(loaded, spec["module"].format(number))
        assert weights is not None, f"no LoRA for {spec['module'].format(number)}, but for {sorted(loaded.loras)}"
        layer.set_lora(0, weights.lora_a, weights.lora_b)
    return layers


def expert_modules(spec: dict[str, Any], model: Any) -> list[str]:
    """The names of one expert's projections that `process_packed_modules_mapping` makes for the class."""
    if model.is_3d_moe_weight:
        return []
    gate, up, down = spec["checkpoint_names"]
    mapping = RoutedExperts.build_expert_params_mapping(gate, down, up, spec["experts"], routed_experts_prefix="")
    return [weight_name.rstrip(".") for _, weight_name, _, _ in mapping]


def make_layer(spec: dict[str, Any], model: Any, config: LoRAConfig) -> Any:
    """An expert layer with LoRA buffers and without the kernels that a CPU does not have."""
    kind = FusedMoE3DWithLoRA if model.is_3d_moe_weight else FusedMoEWithLoRA
    layer = kind.__new__(kind)
    nn.Module.__init__(layer)
    parallel = SimpleNamespace(use_ep=False, ep_rank=0)
    layer.moe_config = SimpleNamespace(
        hidden_dim=spec["hidden"],
        num_local_experts=spec["experts"],
        num_experts=spec["experts"],
        intermediate_size_per_partition=spec["width"],
        moe_parallel_config=parallel,
    )
    layer.device, layer.tp_size, layer.tp_rank = torch.device("cpu"), 1, 0
    layer.fully_sharded = layer.enable_moe_shared_loras = False
    layer._w13_slices = 1 if model.is_3d_moe_weight else 2
    layer._base_model = spec["architecture"]
    layer.adapter_enabled = torch.zeros(2, dtype=torch.int)
    layer._create_lora_a_weights(1, config)
    layer._create_lora_b_weights(1, config)
    return layer


def make_manager(spec: dict[str, Any], model: Any, names: list[str], layers: dict[int, Any]) -> Any:
    """A manager of these layers alone."""
    manager: Any = LoRAModelManager.__new__(LoRAModelManager)
    manager.is_pooling_model = manager._enable_moe_shared_loras = manager._enable_mixed_moe_lora_format = False
    manager._is_non_gated_moe, manager._is_3d_moe_model = False, model.is_3d_moe_weight
    manager.modules = {spec["module"].format(number): layer for number, layer in layers.items()}
    parents = {module: module.rpartition(".")[0] for module in manager.modules}
    manager.packed_modules = {module: [f"{parents[module]}.{name}" for name in names] for module in parents if names}
    return manager


def differences(spec: dict[str, Any], state: dict[str, torch.Tensor], number: int, layer: Any) -> list[str]:
    """Where the buffers of a layer are not the trainer's matrices (B times the scale), expert by expert."""
    rank, scale, count, half = spec["rank"], spec["scale"], spec["experts"], spec["width"]
    own = f"base_model.model.{spec['own_module'].format(number)}"
    up_a, up_b = (state[f"{own}.base_layer.lora_{side}.weight"] for side in "AB")
    down_a, down_b = (state[f"{own}.lora_{side}.weight"] for side in "AB")
    found = []
    for expert in range(count):
        rows, columns = slice(expert * rank, (expert + 1) * rank), slice(expert, None, count)
        held = {"down A": (layer.w2_lora_a_stacked[0][0, expert, :rank], down_a[rows])}
        held["down B"] = (layer.w2_lora_b_stacked[0][0, expert, :, :rank], scale * down_b[:, columns])
        expected = (
            [up_b[:, columns]] if len(layer.w13_lora_b_stacked) == 1 else [up_b[:half, columns], up_b[half:, columns]]
        )
        for index, b in enumerate(expected):
            held[f"gate and up A {index}"] = (layer.w13_lora_a_stacked[index][0, expert, :rank], up_a[rows])
            held[f"gate and up B {index}"] = (layer.w13_lora_b_stacked[index][0, expert, :, :rank], scale * b)
        found += [
            f"layer {number}, expert {expert}: {what}" for what, (one, other) in held.items() if not one.equal(other)
        ]
        if not all(bool(one.any()) for one, _ in held.values()):
            found.append(f"layer {number}, expert {expert}: nothing was compared")
    return found


if __name__ == "__main__":
    main()
