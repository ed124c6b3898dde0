"""What `hone sft` and `hone dpo` share: who may train now, the fit, and reading its data without training.

Owns: these, and the outcome. Refuses: the data (`trainer.step.fits`), counting them (`trainer.runtime.sft`,
`trainer.runtime.dpo`), training (`trainer.step.alias_trainer`), and putting the version into service (the proxy does).
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from proxy.settings.hone import HoneSettings
from recorder.queue import leases
from recorder.registry import aliases
from recorder.registry.aliases import AliasView
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from trainer.batch.recorded_text import TextCheck
from trainer.errors import AliasBusy, TrainerError
from trainer.runtime.resolved_settings import trainer_settings
from trainer.runtime.train import FitTrainer, choose_parsers, open_trainer
from trainer.settings import TrainerSettings
from trainer.step.fits.context import RowContext
from trainer.step.fits.job import LoadedFit, explain_backend
from trainer.step.fits.report import EpochFigures, FitReport
from trainer.step.fits.source import FitSource

R = TypeVar("R")
OpenFitTrainer = Callable[[Store, AliasView, HoneSettings], Coroutine[Any, Any, FitTrainer]]
OPEN: Final[OpenFitTrainer] = open_trainer


class DataCounts(Protocol):
    """What a source gives."""

    def as_json(self) -> dict[str, Any]:
        """The counts for JSON."""


C = TypeVar("C", bound=DataCounts)


@dataclass(frozen=True, slots=True)
class FitOutcome(Generic[C]):
    """What a fit gave. `version`: its name; None: none was made, and `reason` says why.

    `best_epoch`: the one of the version. `held_out_before`: the figures of the parent on what is held out, by name.
    """

    version: str | None
    reason: str | None
    best_epoch: int | None
    held_out_before: Mapping[str, float] | None
    epochs: tuple[EpochFigures, ...]
    counts: C
    notice: str | None

    def as_json(self, data: str) -> dict[str, Any]:
        """The outcome for JSON. `data`: what is counted."""
        before: Mapping[str, float | None] = self.held_out_before or {"loss": None}
        return {
            "version": self.version,
            "reason": self.reason,
            "best_epoch": self.best_epoch,
            **{f"held_out_{name}_before": value for name, value in before.items()},
            "epochs": [one.as_json() for one in self.epochs],
            data: self.counts.as_json(),
            "notice": self.notice,
        }


def make_outcome(report: FitReport[Any], counts: C) -> FitOutcome[C]:
    """Return the outcome of a fit on what was counted."""
    version = report.version.name if report.version is not None else None
    return FitOutcome(
        version, report.reason, report.best, report.held_out_before, tuple(report.epochs), counts, report.notice
    )


async def run_fit(
    everything: HoneSettings, alias: str, source: FitSource[R], command: str, open_with: OpenFitTrainer = OPEN
) -> FitReport[R]:
    """Train a version on a source. `open_with` replaces the real trainer.

    Raises `TrainerError` with several processes or a training service, `AliasBusy` while another trainer holds the
    alias, and what `AliasTrainer.open` and `fit_once` raise.
    """
    _require_this_machine(trainer_settings(everything), command)
    store = await open_store(everything.data, everything.recorder, migrate=False, project=everything.project)
    try:
        found = await _free_alias(store, everything, alias)
        trainer = await open_with(store, found, everything)
        try:
            return await trainer.fit_once(source)
        finally:
            await trainer.close()
    finally:
        await store.close()


async def load_only(everything: HoneSettings, alias: str, source: FitSource[R]) -> LoadedFit[R]:
    """Read what `run_fit` would train on, without loading the base. Rows above `token_budget` count as too long."""
    settings = trainer_settings(everything)
    store = await open_store(everything.data, everything.recorder, migrate=False, project=everything.project)
    try:
        project = Project(store, everything.project)
        found = await aliases.get_alias(project, alias)
        if found.live_version_id is None:
            raise TrainerError(f"the alias {alias!r} has no live version to train from")
        module = await asyncio.to_thread(importlib.import_module, "trainer.policy.base_model")
        base = await asyncio.to_thread(module.resolve_base, _require_base(settings))
        context = RowContext(project, found, base, everything.engine.chat_template)
        decode = await asyncio.to_thread(module.load_decoder, base)
        text = None if decode is None else TextCheck(decode, *choose_parsers(everything).names)
        basis = await asyncio.to_thread(context.basis, found.base_fingerprint, settings.token_budget, text)
        return await source.load(context, basis, settings, found.live_version_id)
    finally:
        await store.close()


def _require_this_machine(settings: TrainerSettings, command: str) -> None:
    if settings.processes > 1:
        raise TrainerError(
            f"{command} trains in one process, and trainer.processes is {settings.processes}: set it to 1."
        )
    if settings.backend != "local":
        raise TrainerError(explain_backend(command))


def _require_base(settings: TrainerSettings) -> str:
    if settings.base is None:
        raise TrainerError("no base model is known: set trainer.base (or engine.base) to its folder or hub id")
    return settings.base


async def _free_alias(store: Store, everything: HoneSettings, name: str) -> AliasView:
    """The alias, if no other process trains it. Asked before the base is loaded, which takes long."""
    project = Project(store, everything.project)
    found = await aliases.get_alias(project, name)
    lease = leases.trainer_lease(found.name)
    await leases.release_dead(project, lease)
    if await leases.seconds_until_free(project, lease) > 0:
        raise AliasBusy(
            f"the learner or a campaign trains the alias {name!r} now: stop it (`hone up --no-learn` runs without a "
            "learner), and repeat the command."
        )
    return found
