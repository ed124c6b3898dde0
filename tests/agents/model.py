"""The demo's model with the adapter of `adapter/` added to its weights: one that walks the ideal way.

Owns: W + (alpha / r) · B A, in float32. Refuses everything about what the model says.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

BASE = Path(__file__).parent.parent.parent / "examples" / "helpdesk" / "model"
ADAPTER = Path(__file__).parent / "adapter"
_PREFIX = "base_model.model."


def write_trained(folder: Path) -> Path:
    """Write the model to a new folder, and return that."""
    shutil.copytree(BASE, folder)
    config = json.loads((ADAPTER / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    weights = {name: weight.float() for name, weight in load_file(BASE / "model.safetensors").items()}
    adapter = load_file(ADAPTER / "adapter_model.safetensors")
    for name in adapter:
        if name.endswith(".lora_A.weight"):
            layer = name.removesuffix(".lora_A.weight")
            target = layer.removeprefix(_PREFIX) + ".weight"
            weights[target] += scale * (adapter[f"{layer}.lora_B.weight"] @ adapter[name])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
