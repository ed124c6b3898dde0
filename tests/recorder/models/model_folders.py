"""Folders that hold a small model: config.json, safetensors, a chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from recorder.models.shapes import tensor_shapes

SMALL: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
    "dtype": "float32",
}


def write_config(folder: Path, **changes: object) -> Path:
    """A folder with the config.json of a small model; a change to None omits the key."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in {**SMALL, **changes}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_model(folder: Path, *, shards: int = 1, more: Mapping[str, tuple[int, ...]] | None = None) -> Path:
    """A folder with a small model, its weights in one file or in shards with an index."""
    write_config(folder)
    shapes = {**(tensor_shapes(SMALL) or {}), **(more or {})}
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
