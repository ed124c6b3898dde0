"""A base in nf4 as a plain model: each weight quantised and dequantised by bitsandbytes, by names chosen here."""

from __future__ import annotations

import importlib
import re
import shutil
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

# Of the tiny bases' linear layers: attention and MLPs. Embeddings, norms, routers and fused experts have other names.
_LINEAR: Final = re.compile(
    r".*\.(q_proj|k_proj|v_proj|o_proj|in_proj_\w+|out_proj|(mlp|shared_expert)\.(gate|up|down)_proj)\.weight"
)


def rounded(weights: torch.Tensor) -> torch.Tensor:
    """Weights as nf4 holds them."""
    library: Any = importlib.import_module("bitsandbytes.functional")
    blocks = weights.reshape(-1, 64)
    packed, state = library.quantize_4bit(blocks, blocksize=64, compress_statistics=True, quant_type="nf4")
    numbers: torch.Tensor = library.dequantize_4bit(packed, state)
    return numbers.reshape(weights.shape)


def plain_copy(base: Path, folder: Path) -> Path:
    """Write a base whose plain weights are those of the other one's copy in nf4."""
    shutil.copytree(base, folder)
    for path in folder.glob("*.safetensors"):
        tensors = load_file(path)
        found = [name for name in tensors if _LINEAR.fullmatch(name)]
        assert found
        save_file({**tensors, **{name: rounded(tensors[name]) for name in found}}, path, {"format": "pt"})
    return folder
