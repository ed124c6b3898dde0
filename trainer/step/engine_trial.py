"""A trainer's trial: the running engine loads an adapter of its settings once, before versions are made.

Owns: publishing the adapter as soon as an engine runs, removing it once the proxy has answered, and waiting for that
answer. Refuses: loading it (`proxy.versions.controller`), its content (`trainer.step.state.files`), and importing
torch: campaigns wait for the answer too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from recorder.errors import StoreUnavailable
from recorder.queue.training import adapter_trials
from recorder.registry.aliases import AliasView
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from trainer.errors import TrainerError, UnsupportedModel

log = logging.getLogger(__name__)

WAIT_S: Final = 60.0  # for an answer, while an engine runs: a large adapter is loaded in seconds
LOOK_S: Final = 5.0  # engines and proxies that are killed send no signal
_STORE_PAUSE_S: Final = 2.0


class TrialAdapter(Protocol):
    """A published adapter. It is `trainer.artifacts.adapters.PublishedAdapter`, whose module imports torch."""

    @property
    def path(self) -> Path:
        """Its folder."""

    @property
    def manifest_sha256(self) -> str:
        """The sha256 of its manifest."""

    @property
    def engine_name(self) -> str:
        """The model name for the engine."""


@asynccontextmanager
async def trial_running(
    project: Project,
    alias: AliasView,
    publish: Callable[[], Awaitable[TrialAdapter]],
    remove: Callable[[Path], Awaitable[None]],
) -> AsyncIterator[None]:
    """Within: an adapter is published for the engine's trial once an engine runs, and removed after the answer.

    At the end nothing is left of it, neither files nor the row.
    """
    trial_id = await adapter_trials.begin_trial(project, alias.id)
    task = asyncio.create_task(_offer(project, alias, trial_id, publish, remove), name=f"trial of {alias.name}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with suppress(StoreUnavailable):  # the next trainer of the alias deletes it
            await adapter_trials.end_trial(project.store, trial_id)


async def _offer(
    project: Project,
    alias: AliasView,
    trial_id: str,
    publish: Callable[[], Awaitable[TrialAdapter]],
    remove: Callable[[Path], Awaitable[None]],
) -> None:
    while True:
        try:
            await _until_engine_runs(project)
            adapter = await publish()
            try:
                await adapter_trials.offer_trial(
                    project.store,
                    trial_id,
                    engine_name=adapter.engine_name,
                    path=str(adapter.path),
                    manifest_sha256=adapter.manifest_sha256,
                )
                await _until_answered(project, alias)
            finally:
                await asyncio.shield(remove(adapter.path))
        except StoreUnavailable:
            await asyncio.sleep(_STORE_PAUSE_S)
        except TrainerError as e:  # for example a full disk: versions will meet it too
            log.warning("the engine did not try an adapter for %s: %s", alias.name, e)
            return
        else:
            return


async def _until_engine_runs(project: Project) -> None:
    with project.store.watch.on(Topic.ENGINES, Topic.LEASES) as news:
        while not await adapter_trials.can_be_tried(project):
            await news.wait(LOOK_S)


async def _until_answered(project: Project, alias: AliasView) -> None:
    with project.store.watch.on(Topic.SERVICE) as news:
        while (trial := await adapter_trials.find_trial(project.store, alias.id)) and trial.answered_at is None:
            await news.wait()


async def require_accepted(store: Store, alias: AliasView, within_s: float = 0.0) -> str | None:
    """Wait for the engine's answer to the alias's trial, for at most so long, while an engine runs.

    Returns a sentence if an engine runs that did not answer in time, else None. Raises `UnsupportedModel` if it refuses
    the adapter.
    """
    project, deadline = Project(store, alias.project_id), time.monotonic() + within_s
    with store.watch.on(Topic.SERVICE, Topic.ENGINES) as news:
        while (trial := await adapter_trials.find_trial(store, alias.id)) and trial.answered_at is None:
            if not await adapter_trials.can_be_tried(project):
                return None
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return (
                    f"the engine has not tried an adapter for {alias.name} within {within_s:.0f} s: whether it takes "
                    "these versions is seen at the first one"
                )
            await news.wait(min(left_s, LOOK_S))
    if trial is not None and trial.refusal is not None:
        raise UnsupportedModel(
            f"the engine refuses adapters of these settings of [trainer]: {trial.refusal}. Correct trainer.rank and "
            "trainer.target, or start the engine so that it takes them (`hone doctor`)."
        )
    return None
