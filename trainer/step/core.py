"""What the trainer holds in memory: a policy and its optimizer, at one version.

Owns: being at a version (adapter and checkpoint loaded), making a step from it, writing what came of it. Refuses: the
store and leases (`trainer.step.alias_trainer`). Blocking and bound to one thread, which owns all of torch here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError

from trainer.artifacts import adapters, checkpoint, durable, probe
from trainer.artifacts.adapters import LoraShape, Origin, Published
from trainer.batch.weights import WeightedRow
from trainer.errors import AdapterInvalid, MemoryFull, VersionNotWritten
from trainer.policy import update
from trainer.policy.model import ROOM, Policy, load_policy
from trainer.policy.optim import Optimizer
from trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class Folders:
    """Where versions and checkpoints lie. A version's two folders have one name."""

    adapters: Path
    checkpoints: Path

    @classmethod
    def of(cls, data: Path) -> Folders:
        """The folders of a data folder."""
        return cls(data / "adapters", data / "checkpoints")


@dataclass(frozen=True, slots=True)
class Start:
    """A version to train from. `path` None: version 0, the base without an adapter."""

    version_id: str
    path: Path | None
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A step's result on disk, not yet in the store."""

    published: Published
    checkpoint: Path

    def remove(self) -> None:
        """Take it back: the store does not know it."""
        durable.remove(self.published.path)
        durable.remove(self.checkpoint)


@dataclass(slots=True)
class Seconds:
    """Wall time by phase."""

    by_phase: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time within to a phase."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.by_phase[name] = self.by_phase.get(name, 0.0) + time.perf_counter() - began


class Core:
    """A policy with its optimizer."""

    def __init__(self, base: Path, settings: TrainerSettings, folders: Folders) -> None:
        torch.set_num_threads(settings.threads)
        self.policy: Policy = load_policy(base, settings)
        self._optimizer = Optimizer(self.policy.parameters, settings)
        self._settings = settings
        self._folders = folders
        self._at: str | None = None  # the version in memory; None: nobody knows

    def go_to(self, start: Start) -> bool:
        """Be at a version. Returns whether its optimizer state was there (True for version 0, which has none).

        Raises `AdapterInvalid` or `CheckpointInvalid` where the files are damaged, or of another shape or scale.
        """
        if self._at == start.version_id:
            return True
        self._at = None
        self._optimizer.reset()
        torch.manual_seed(self._settings.seed)
        if start.path is None:
            self.policy.load_state(None)
            known = True
        else:
            self.policy.load_state(adapters.read(start.path, start.manifest_sha256))
            self._require_scale(start.path)
            folder = self._folders.checkpoints / start.path.name
            known = folder.exists()
            if known:
                checkpoint.load(folder, self._optimizer)
        self._at = start.version_id
        return known

    def step(
        self, rows: Sequence[WeightedRow], origin: Origin, stopped: Callable[[], bool], seconds: Seconds
    ) -> tuple[dict[str, float], Written]:
        """Train on the rows from the version in memory and write the result. Returns metrics and what was written.

        Afterwards nobody knows which version is in memory until `became` says it. Raises `StepFailed`,
        `MemoryFull`, `Interrupted`, `AdapterInvalid`, `VersionNotWritten`.
        """
        self._at = None
        given = probe.candidates([one.row for one in rows])
        with self._told_of_memory():
            with seconds.phase("probe"):
                before = probe.distributions(self.policy, given, self._settings.token_budget)
            with seconds.phase("train"):
                metrics = update.over_substeps([self._update(part, stopped) for part in update.by_substep(rows)])
            with seconds.phase("probe"):
                after = probe.distributions(self.policy, given, self._settings.token_budget)
        contexts = probe.choose(given, after, before)
        with seconds.phase("publish"):
            try:
                written = self._write(origin, contexts)
            except (OSError, RuntimeError, SafetensorError) as e:  # torch's and safetensors' words for a full disk
                where = self._folders.adapters.parent
                raise VersionNotWritten(
                    f"version {origin.number} could not be written into {where}: {e}. Is there room on the disk?"
                ) from e
        return metrics | {"probe_separation": contexts["separation"]}, written

    @contextmanager
    def _told_of_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as e:
            self._optimizer.zero()
            raise MemoryFull(
                f"passes of {self._settings.token_budget} tokens do not fit into what is free of the GPU's memory. "
                f"{ROOM}, or lower trainer.token_budget: {e}"
            ) from e

    def _update(self, rows: Sequence[WeightedRow], stopped: Callable[[], bool]) -> dict[str, float]:
        planned = update.plan(self.policy, rows, self._settings)
        return update.train(self.policy, self._optimizer, planned, self._settings, stopped)

    def became(self, version_id: str) -> None:
        """The weights and optimizer state in memory are this version's."""
        self._at = version_id

    def _require_scale(self, folder: Path) -> None:
        alpha = adapters.alpha(folder)
        if alpha != self._settings.alpha:
            raise AdapterInvalid(
                f"{folder} was trained with alpha {alpha:g}, and trainer.alpha is {self._settings.alpha:g}: its "
                "weights would mean another model. A version's descendants keep its alpha: set trainer.alpha back."
            )

    def _write(self, origin: Origin, contexts: dict[str, object]) -> Written:
        settings, policy = self._settings, self.policy
        shapes = {name: tuple(parameter.shape) for name, parameter in policy.parameters.items()}
        lora = LoraShape(settings.rank, settings.alpha, policy.modules)
        published = adapters.publish(self._folders.adapters, origin, lora, policy.state(), shapes, contexts)
        try:
            saved = checkpoint.save(self._folders.checkpoints, published.engine_name, self._optimizer)
        except BaseException:  # a version without its optimizer state is not published
            durable.remove(published.path)
            raise
        return Written(published, saved)
