"""A trainer's adapter that an engine tries before anything is sampled for it.

Owns: writing and removing it, and waiting for the answer once. Refuses: the protocol (`trainer.step.engine_trial`), and
its weights (`trainer.step.state.files`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from recorder.processes import durable_folders
from recorder.registry.aliases import AliasView
from recorder.store.database import Project
from trainer.artifacts.adapters import AdapterOrigin, PublishedAdapter
from trainer.step import engine_trial
from trainer.step.engine_trial import trial_running
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.step_core import StepCore
from trainer.step.state.torch_thread import TorchThread

log = logging.getLogger(__name__)


class AdapterTrial:
    """The trial of one alias's trainer."""

    def __init__(
        self,
        project: Project,
        alias: AliasView,
        fingerprint: str,
        core: StepCore,
        folders: TrainerFolders,
        torch: TorchThread,
    ) -> None:
        """`fingerprint`: of the base."""
        self._project = project
        self._alias = alias
        self._origin = AdapterOrigin(alias.name, None, f"{alias.name}@0", alias.base_model, fingerprint)
        self._core = core
        self._folders = folders
        self._torch = torch
        self._had_folder = folders.adapters.exists()
        self._running = AsyncExitStack()
        self._has_waited = False  # for an answer, in vain

    async def start(self) -> None:
        """Write an adapter once, so that settings that cannot work fail before sampling; then let engines try it.

        Raises `UnsupportedModel` and `VersionNotWritten`.
        """
        await self._remove((await self._publish()).path)
        await self._running.enter_async_context(trial_running(self._project, self._alias, self._publish, self._remove))

    async def require_accepted(self) -> None:
        """Wait for the engine's answer, the first time. Raises `UnsupportedModel` if it refuses the adapter."""
        wait_s = 0.0 if self._has_waited else engine_trial.WAIT_S
        notice = await engine_trial.require_accepted(self._project.store, self._alias, wait_s)
        if notice is not None and not self._has_waited:
            self._has_waited = True
            log.warning("%s", notice)

    async def close(self) -> None:
        """End it, and remove its files."""
        await self._running.aclose()

    async def _publish(self) -> PublishedAdapter:
        """Publish an adapter as a step would."""
        return await self._torch.run(self._core.publish_trial, self._origin)

    async def _remove(self, path: Path) -> None:
        await asyncio.to_thread(self._folders.remove_adapter, path)
        if not self._had_folder:
            await asyncio.to_thread(durable_folders.remove_empty, self._folders.adapters)
