"""Adapter folders as the trainer publishes them, whole or broken in one way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"


@dataclass(frozen=True)
class Made:
    path: Path
    manifest_sha256: str

    @property
    def engine_name(self) -> str:
        return self.path.name


def weights(rank: int = 4, width: int = 16, out: int = 8) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return {
        f"{MODULE}.lora_A.weight": random.normal(size=(rank, width)).astype(np.float32),
        f"{MODULE}.lora_B.weight": random.normal(size=(out, rank)).astype(np.float32),
    }


def probe(gap: float = 0.5) -> dict[str, Any]:
    context = {
        "prompt_token_ids": [1, 2, 3],
        "token_ids": [7, 9],
        "new": [-1.0, -2.0],
        "parent": [-1.0 - gap, -2.0 - gap],
    }
    return {"contexts": [context, {**context, "prompt_token_ids": [4, 5]}], "separation": gap}


def make_adapter(
    adapters: Path,
    name: str,
    *,
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    rank: int = 4,
    asked: Mapping[str, Any] | None = None,
) -> Made:
    """Write `<name>-<12 of the manifest's sha256>` into `adapters`."""
    draft = adapters / f"draft-{name}"
    draft.mkdir(parents=True)
    save_file(dict(weights(rank) if tensors is None else tensors), draft / "adapter_model.safetensors")
    (draft / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj"]})
    )
    (draft / "probe.json").write_text(json.dumps(probe() if asked is None else asked))
    return seal(draft, name)


def seal(draft: Path, name: str) -> Made:
    """Write the manifest over what the draft holds, and give it its final name."""
    files = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in draft.iterdir() if p.name != "manifest.json"}
    manifest = json.dumps({"files": files, "alias": name.partition("@")[0]}).encode()
    (draft / "manifest.json").write_bytes(manifest)
    digest = hashlib.sha256(manifest).hexdigest()
    path = draft.with_name(f"{name}-{digest[:12]}")
    draft.rename(path)
    return Made(path, digest)
