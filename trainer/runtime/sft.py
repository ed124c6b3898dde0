"""`hone sft`: read demonstrations, train on them, and publish a version, or only count them.

Owns: who may train now, the dry run, and the outcome. Refuses: the demonstrations (`trainer.step.imitation.reader`),
training (`trainer.step.alias_trainer`), and putting the version into service (the proxy does).
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proxy.settings.hone import HoneSettings
from recorder.queue import leases
from recorder.registry import aliases
from recorder.registry.aliases import AliasView
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from trainer.batch.recorded_text import TextCheck
from trainer.demonstrations.fit_plan import plan_fit
from trainer.errors import AliasBusy, TrainerError
from trainer.runtime.train import FitTrainer, choose_parsers, open_trainer, trainer_settings
from trainer.settings import TrainerSettings
from trainer.step.imitation.fit_report import EpochLosses
from trainer.step.imitation.reader import DemonstrationSource, ImitationReader, ReadDemonstrations

OpenFitTrainer = Callable[[Store, AliasView, HoneSettings], Coroutine[Any, Any, FitTrainer]]


@dataclass(frozen=True, slots=True)
class DemonstrationCounts:
    """What a source gives: rows and tokens, and the number of what is excluded by reason."""

    demonstrations: int
    rows: int
    tokens: int  # of all rows
    trained_tokens: int
    rendered_tokens: int  # trained tokens of rows that are not recorded ids
    held_out: int  # demonstrations
    excluded: Mapping[str, int]  # demonstrations
    context: Mapping[str, int]  # answers of used demonstrations that are not imitated
    named: tuple[str, ...]  # the first excluded ones
    overlap: tuple[str, ...]  # rows of a file with a task that is measured

    def as_json(self) -> dict[str, Any]:
        """The counts for JSON."""
        return asdict(self)


def count_demonstrations(read: ReadDemonstrations, settings: TrainerSettings) -> DemonstrationCounts:
    """Count what was read."""
    plan = plan_fit(read.found, settings.sft.held_out_share, settings.seed)
    return DemonstrationCounts(
        demonstrations=len(read.found),
        rows=sum(len(one.rows) for one in read.found),
        tokens=sum(one.tokens for one in read.found),
        trained_tokens=sum(one.trained_tokens for one in read.found),
        rendered_tokens=read.rendered_tokens,
        held_out=len(plan.held_out),
        excluded=dict(sorted(read.left.items())),
        context=dict(sorted(read.skipped.items())),
        named=tuple(read.named),
        overlap=tuple(read.overlap),
    )


@dataclass(frozen=True, slots=True)
class FitOutcome:
    """What a fit gave. `version`: its name; None: none was made, and `reason` says why.

    `best_epoch`: the one of the version. `held_out_loss_before`: of the parent, in nats a token.
    """

    version: str | None
    reason: str | None
    best_epoch: int | None
    held_out_loss_before: float | None
    epochs: tuple[EpochLosses, ...]
    demonstrations: DemonstrationCounts
    notice: str | None

    def as_json(self) -> dict[str, Any]:
        """The outcome for JSON."""
        return asdict(self)


async def fine_tune(
    everything: HoneSettings,
    alias: str,
    where: Sequence[str],
    file: Path | None,
    open_with: OpenFitTrainer = open_trainer,
) -> FitOutcome:
    """Train a version on trajectories that meet the conditions `where`, or on a file. `open_with` replaces the real
    trainer.

    Raises `TrainerError` with several processes or a training service, `AliasBusy` while another trainer holds the
    alias, `DemonstrationsInvalid`, `ConditionInvalid`, and what `AliasTrainer.open` and `fit_once` raise.
    """
    settings = trainer_settings(everything)
    if settings.processes > 1:
        raise TrainerError(
            f"hone sft trains in one process, and trainer.processes is {settings.processes}: set it to 1."
        )
    if settings.backend != "local":
        raise TrainerError('hone sft trains on this machine: set trainer.backend = "local" for it.')
    store = await open_store(everything.data, everything.recorder, migrate=False, project=everything.project)
    try:
        found = await _free_alias(store, everything, alias)
        trainer = await open_with(store, found, everything)
        try:
            report = await trainer.fit_once(DemonstrationSource(where, file))
        finally:
            await trainer.close()
    finally:
        await store.close()
    return FitOutcome(
        version=report.version.name if report.version is not None else None,
        reason=report.reason,
        best_epoch=report.best,
        held_out_loss_before=report.held_out_loss_before,
        epochs=tuple(report.epochs),
        demonstrations=count_demonstrations(report.read, trainer_settings(everything)),
        notice=report.notice,
    )


async def count_only(
    everything: HoneSettings, alias: str, where: Sequence[str], file: Path | None
) -> DemonstrationCounts:
    """Count what `fine_tune` would train on, without loading the base. Rows above `token_budget` count as too long."""
    settings = trainer_settings(everything)
    store = await open_store(everything.data, everything.recorder, migrate=False, project=everything.project)
    try:
        found = await aliases.get_alias(Project(store, everything.project), alias)
        if found.live_version_id is None:
            raise TrainerError(f"the alias {alias!r} has no live version to train from")
        module = await asyncio.to_thread(importlib.import_module, "trainer.policy.base_model")
        base = await asyncio.to_thread(module.resolve_base, _require_base(settings))
        reader = ImitationReader(Project(store, everything.project), found, base, everything.engine.chat_template)
        decode = await asyncio.to_thread(module.load_decoder, base)
        text = None if decode is None else TextCheck(decode, *choose_parsers(everything).names)
        basis = await asyncio.to_thread(reader.basis, found.base_fingerprint, settings.token_budget, text)
        read = await reader.read(
            DemonstrationSource(where, file), basis, epochs=settings.sft.epochs, parent_id=found.live_version_id
        )
        return count_demonstrations(read, settings)
    finally:
        await store.close()


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
