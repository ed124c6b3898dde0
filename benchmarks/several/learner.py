"""A learner whose trainer trains nothing: it claims, publishes and lets others promote, as the real one does.

What is measured is who claims and publishes what, and when: a real step would take most of the CPU. The adapters are
small changes of the model's first layer, which vLLM loads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

from proxy.settings.hone import HoneSettings
from proxy.settings.loader import load_settings
from recorder.queue import leases
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import scores
from recorder.queue.leases import holder_name
from recorder.queue.training import steps
from recorder.registry import aliases, versions
from recorder.registry.aliases import AliasView
from recorder.store.data_folder import ADAPTERS
from recorder.store.database import Project, Store
from tests.proxy.adapters import make_adapter
from tests.trainer.ring import RecordedProgress
from trainer.errors import AliasBusy
from trainer.runtime.learner import learn
from trainer.step.lease_renewer import LeaseRenewer
from trainer.step.summary import StepReport

RANK: Final = 4
_SCALE: Final = 0.01  # small enough that an answer stays an answer
_STEP_S: Final = 1.0  # a step takes time, in which its program may be killed


def run(config: str, data: str, alias: str, model: str) -> None:
    """Learn until killed (the target of a process)."""
    changes = weights(Path(model))

    async def open_trainer(store: Store, view: AliasView, everything: HoneSettings) -> PublishingTrainer:
        return await PublishingTrainer.open(store, view, everything, changes)

    settings = load_settings(Path(config), {"data": data}).settings
    asyncio.run(learn(settings, [alias], RecordedProgress(), open_trainer))


class PublishingTrainer:
    """Holds the alias like the real trainer, and publishes an adapter of the same weights for each step."""

    target_note: str | None = None

    def __init__(
        self, store: Store, alias: AliasView, adapters: Path, changes: dict[str, np.ndarray[Any, Any]]
    ) -> None:
        self._store = store
        self._alias = alias
        self._adapters = adapters
        self._changes = changes
        self._resources = AsyncExitStack()
        self._keeper: LeaseRenewer

    @classmethod
    async def open(
        cls, store: Store, alias: AliasView, everything: HoneSettings, changes: dict[str, np.ndarray[Any, Any]]
    ) -> PublishingTrainer:
        """Take the alias's lease. Raises `AliasBusy`."""
        project, lease_s = Project(store, alias.project_id), everything.trainer.lease_s
        name = leases.trainer_lease(alias.name)
        await leases.release_dead(project, name)
        lease = await leases.acquire_lease(project, name, holder_name(), lease_s)
        if lease is None:
            raise AliasBusy(f"another learner holds {alias.name!r}")
        self = cls(store, alias, everything.data / ADAPTERS, changes)
        self._keeper = LeaseRenewer(store, lease, lease_s)
        await self._resources.enter_async_context(self._keeper.running())
        await steps.take_over(store, alias.id, lease=lease)
        return self

    @property
    def owner(self) -> str:
        """Return the holder of the alias."""
        return self._keeper.lease.owner

    async def close(self) -> None:
        """Release the alias."""
        await self._resources.aclose()

    async def train_once(self, claimed: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
        """Publish a version of the claimed groups."""
        alias = await aliases.get_alias(Project(self._store, self._alias.project_id), self._alias.name)
        assert alias.live_version_id is not None
        step = await steps.begin_step(self._store, alias.id, alias.live_version_id, campaign_id, groups=claimed)
        version = await versions.allocate_version(self._store, alias.id, alias.live_version_id, step_id=step.id)
        await asyncio.sleep(_STEP_S)
        made = make_adapter(self._adapters, version.name, tensors=self._changes, rank=RANK, asked={"contexts": []})
        step = await steps.finish_step(
            self._store, step.id, version_id=version.id, path=str(made.path), engine_name=made.engine_name,
            manifest_sha256=made.manifest_sha256, metrics={"loss": 0.5}, checkpoint_path=None, groups=claimed,
            trained=await self._members(claimed),
        )  # fmt: skip
        return StepReport(step, await versions.get_version(self._store, version.id), None, {}, len(claimed), {})

    async def _members(self, claimed: Sequence[GroupClaim]) -> list[str]:
        ids = [claim.score_id for claim in claimed if claim.score_id is not None]
        return [member for score in ids for member in await scores.score_rewards(self._store, score)]


def weights(model: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return a LoRA on the first layer's queries of a Qwen3 model, of rank `RANK`, by PEFT's names."""
    config = json.loads((model / "config.json").read_text())
    width, out = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    module, random = "base_model.model.model.layers.0.self_attn.q_proj", np.random.default_rng(0)
    return {
        f"{module}.lora_A.weight": random.normal(scale=_SCALE, size=(RANK, width)).astype(np.float32),
        f"{module}.lora_B.weight": random.normal(scale=_SCALE, size=(out, RANK)).astype(np.float32),
    }
