"""A trainer without training: it publishes versions with small random adapters, as the real trainer does.

Owns: an adapter for the demo's base without torch, and a whole step around it. Refuses: training.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import save_file

from proxy.versions.verification import base_shapes
from recorder.queue import leases
from recorder.queue.leases import Lease, holder_name
from recorder.queue.training import steps
from recorder.registry.aliases import AliasView, get_alias
from recorder.registry.versions import VersionView, allocate_version, get_version
from recorder.store.database import Project, Store

PROJECT: Final = "default"
RANK: Final = 8
STD: Final = 1e-3  # so small that the base's answers do not change
LEASE_S: Final = 60.0
_MATRIX: Final = re.compile(r"model\.layers\.\d+\.self_attn\.[qv]_proj\.weight")


def write_adapter(adapters: Path, name: str, base: Path, seed: int) -> tuple[Path, str]:
    """Write an adapter's folder completely, then rename it; return it with its manifest's sha256."""
    draft = adapters / f".unfinished-{name}-{seed:016x}"
    draft.mkdir(parents=True, mode=0o700)
    save_file(_tensors(base, seed), draft / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": RANK,
        "bias": "none",
        "target_modules": ["q_proj", "v_proj"],
    }
    (draft / "adapter_config.json").write_text(json.dumps({**config, "task_type": "CAUSAL_LM"}))
    (draft / "probe.json").write_text(json.dumps({"contexts": [], "separation": 0.0}))
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(draft.iterdir())}
    manifest = json.dumps({"files": files, "rank": RANK, "seed": seed}).encode()
    (draft / "manifest.json").write_bytes(manifest)
    digest = hashlib.sha256(manifest).hexdigest()
    final = adapters / f"{name}-{digest[:12]}"
    draft.rename(final)
    return final, digest


def _tensors(base: Path, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    random, tensors = np.random.default_rng(seed), {}
    for name, (out, width) in ((n, s) for n, s in base_shapes(base).items() if _MATRIX.fullmatch(n)):
        module = f"base_model.model.{name.removesuffix('.weight')}"
        for side, shape in (("A", (RANK, width)), ("B", (out, RANK))):
            tensors[f"{module}.lora_{side}.weight"] = random.normal(scale=STD, size=shape).astype(np.float32)
    return tensors


class StubTrainer:
    """Holds the alias as a trainer does. `async with StubTrainer(...)` gives its lease back at the end."""

    def __init__(self, store: Store, alias: str, data: Path, base: Path) -> None:
        self._store = store
        self._name = alias
        self._data = data
        self._base = base
        self._lease: Lease | None = None

    async def __aenter__(self) -> StubTrainer:
        self._lease = await leases.acquire_lease(
            Project(self._store, PROJECT), leases.trainer_lease(self._name), holder_name(), 60 * LEASE_S
        )
        assert self._lease is not None, "another trainer holds the alias"
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._lease is not None
        await leases.release_lease(self._store, self._lease)

    async def alias(self) -> AliasView:
        """Return the alias's current state."""
        return await get_alias(Project(self._store, PROJECT), self._name)

    async def publish(self) -> VersionView:
        """Run a step from the live version to the written version. It uses no group."""
        alias = await self.alias()
        assert alias.live_version_id is not None
        step = await steps.begin_step(self._store, alias.id, alias.live_version_id, lease=self._lease)
        version = await allocate_version(self._store, alias.id, alias.live_version_id, step_id=step.id)
        adapters = self._data.resolve() / "adapters"
        folder, digest = write_adapter(
            adapters, f"{self._name}@{version.number}", self._base, os.getpid() + version.number
        )
        await steps.finish_step(
            self._store, step.id, version_id=version.id, path=str(folder), engine_name=folder.name,
            manifest_sha256=digest, metrics={}, checkpoint_path=None, groups=(), lease=self._lease,
        )  # fmt: skip
        return await get_version(self._store, version.id)
