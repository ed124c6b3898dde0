"""The trainer's state in memory: a policy and its optimizer at one version, and the one thread that owns torch.

Owns: loading a version (adapter and checkpoint), repeating a step that did not fit, writing its files, removing folders
of versions that are no longer needed or were left by a crash, and running all of it on one thread, so that the event
loop can renew leases and request a stop. Refuses: the passes of a step, which all ranks make (`trainer.step.passes`),
the store and leases (`trainer.step.alias_trainer`), and the rule of retention (`recorder.maintenance.retention`).
(Torch's thread pool and settings belong to the thread that first used them.)
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor

from recorder.maintenance.retention import known_folders, release_folders
from recorder.registry.aliases import AliasView
from recorder.registry.versions import alias_slug
from recorder.store.database import Store
from trainer.artifacts import adapters, checkpoint, durable_folders
from trainer.artifacts.adapters import AdapterOrigin, LoraShape, PublishedAdapter
from trainer.batch.packing import smaller_budget
from trainer.batch.rows import FitsAlone
from trainer.batch.weights import WeightedRow
from trainer.errors import AdapterInvalid, MemoryFull, RankLost, RowTooLong, UnsupportedModel, VersionNotWritten
from trainer.lora.file_layout import ExpertLayout
from trainer.memory.long_rows import PlannedRows
from trainer.policy import memory, update
from trainer.policy.base_model import ROOM, first_architecture, memory_errors, read_config
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.startup_check import random_state
from trainer.ranks.group import ONE_RANK, Ranks
from trainer.settings import TrainerSettings
from trainer.step.passes import BaseJob, PhaseSeconds, StepJob, StepPasses, open_passes
from trainer.step.residence import Residence

_STEPS_DOWN: Final = 8  # where a row did not fit, one that is an eighth shorter is tried next

P = ParamSpec("P")
T = TypeVar("T")


class TorchThread:
    """Runs one job at a time, in order."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # a second job must not undo the request to stop the first one
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        self._cancelled = threading.Event()
        self._closing = threading.Event()

    def stopped(self) -> bool:
        """Whether the job should end early: its awaiter was cancelled, or the thread closes."""
        return self._cancelled.is_set() or self._closing.is_set()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the job in the thread. If cancelled, ask it to stop, and wait until it has stopped."""
        async with self._turn:
            self._cancelled.clear()
            future = asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                self._cancelled.set()
                await asyncio.wait([future])
                raise

    async def close(self) -> None:
        """Ask a running job to stop, wait for it, end the thread."""
        self._closing.set()
        await asyncio.to_thread(self._executor.shutdown)


@dataclass(frozen=True, slots=True)
class TrainerFolders:
    """The folders of versions and checkpoints. A version's two folders have one name."""

    adapters: Path
    checkpoints: Path

    @classmethod
    def of(cls, data: Path) -> TrainerFolders:
        """The folders of a data folder."""
        return cls(data / "adapters", data / "checkpoints")


@dataclass(frozen=True, slots=True)
class StartVersion:
    """A version to train from. `path` None: version 0, the base without an adapter."""

    version_id: str
    path: Path | None
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """A step's result in memory. `changed`: the adapter computes something else than the version it began from.

    `gaps`: of each trajectory the number of fresh tokens and the sum of their |Δlogprob| (nats) to the engine.
    """

    metrics: Mapping[str, float]
    probe: Mapping[str, object]
    changed: bool
    gaps: Mapping[str, tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step's result on disk, not yet in the store."""

    published: PublishedAdapter
    checkpoint: Path

    def remove(self) -> None:
        """Remove its files: the store does not know them."""
        durable_folders.remove_folder(self.published.path)
        durable_folders.remove_folder(self.checkpoint)


class TrainerCore:
    """A policy with its optimizer."""

    def __init__(
        self,
        base: Path,
        settings: TrainerSettings,
        folders: TrainerFolders,
        fits_alone: FitsAlone | None = None,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        """`fits_alone`: whether a row longer than `token_budget` fits into memory in a pass of its own; None: by
        `trainer.memory.long_rows`. `ranks`: this process is the first of them.
        """
        self._ranks = ranks
        with ranks.job(BaseJob(settings.base or str(base), settings)):
            self._passes: StepPasses = open_passes(base, settings, ranks)
        self.policy: Policy = self._passes.policy
        self._layout = ExpertLayout.of(first_architecture(read_config(base)), settings.rank)
        _require_servable(self.policy, settings, self._layout)
        self._optimizer: Optimizer = self._passes.optimizer
        self._residence = Residence(
            self.policy.module, lambda tensor: tensor.to(self.policy.device), self._optimizer.tensors
        )
        self._settings = settings
        self._folders = folders
        self._estimate: FitsAlone = fits_alone or PlannedRows(self.policy, base, settings)
        self._too_long: int | None = None  # tokens of the shortest row above the budget that is not computed
        self._at: str | None = None  # the version in memory; None: unknown
        self._start: StartVersion | None = None  # the version that the next step begins at, on disk
        self._written: WrittenStep | None = None  # the last step's
        self._is_fresh = False  # whether that version's optimizer state was missing

    def enter_gpu(self) -> None:
        """Move base, LoRA and optimizer state to the device. Raises `MemoryFull`."""
        if not self._residence.is_on_device:
            with memory_errors("the base does not fit on the GPU beside a sleeping engine", self.policy.device):
                self._residence.enter()

    def leave_gpu(self) -> None:
        """Move everything to host memory, and give back what torch has reserved."""
        self._residence.leave()
        memory.empty_pool(self.policy.device)

    @property
    def device_name(self) -> str:
        """The device that trains, with the size of its memory; how many processes, if several."""
        return self._ranks.describe(memory.device_name(self.policy.device))

    @property
    def pass_budget(self) -> int:
        """Tokens of a pass: `token_budget`, or less where those do not fit into memory."""
        return self.policy.pass_budget

    @pass_budget.setter
    def pass_budget(self, tokens: int) -> None:
        self.policy.pass_budget = tokens

    def fits_alone(self, row_tokens: int) -> bool:
        """Whether a row longer than `token_budget` is computed, in a pass of its own."""
        if self._too_long is not None and row_tokens >= self._too_long:
            return False
        return self._estimate(row_tokens)

    def publish_trial(self, origin: AdapterOrigin) -> PublishedAdapter:
        """Write an adapter with weights that are not zero, as a step would, to be tried and removed.

        Raises `UnsupportedModel` if it fails a check that comes before loading, and `VersionNotWritten`.
        """
        policy = self.policy
        try:
            return self._publish(origin, random_state(policy), {"contexts": [], "separation": 0.0})
        except AdapterInvalid as e:
            raise UnsupportedModel(
                f"an adapter for the base {policy.base} with trainer.target {self._settings.target!r} and trainer.rank "
                f"{self._settings.rank} cannot be served: {e}"
            ) from e

    def go_to(self, start: StartVersion) -> bool:
        """Load a version. Return whether its optimizer state was there (True for version 0, which has none).

        Raises `AdapterInvalid` or `CheckpointInvalid` if the files are damaged, or of another shape or scale, and
        `MemoryFull`.
        """
        self._start = start
        if self._at != start.version_id:
            what = f"the version {start.path.name if start.path else 0} does not fit into memory beside the base"
            with memory_errors(what, self.policy.device):
                self._is_fresh = not self._load(start)
        return not self._is_fresh

    def _load(self, start: StartVersion) -> bool:
        self._at = None
        self._optimizer.reset()
        torch.manual_seed(self._settings.seed)
        if start.path is None:
            self.policy.load_state(None)
            known = True
        else:
            self.policy.load_state(adapters.read_adapter(start.path, start.manifest_sha256, self._layout))
            self._require_scale(start.path)
            folder = self._folders.checkpoints / start.path.name
            known = folder.exists()
            if known:
                checkpoint.load_checkpoint(folder, self._optimizer)
        self._at = start.version_id
        return known

    def step(
        self, rows: Sequence[WeightedRow], rate: float, stopped: Callable[[], bool], seconds: PhaseSeconds
    ) -> TrainedStep:
        """Train on the rows from the version in memory at the learning rate `rate`; the result stays in memory.

        If a pass does not fit into memory, the step is repeated from its parent with half the tokens a pass, which
        gives the same result; `pass_budget` keeps what fitted. Afterwards the version in memory is undefined until
        `became` is called. Raises `StepFailed`, `MemoryFull`, `RowTooLong`, `StepInterrupted`.
        """
        try:
            return self._step(rows, rate, stopped, seconds)
        finally:
            memory.release_pool(self.policy.device)

    def _step(
        self, rows: Sequence[WeightedRow], rate: float, stopped: Callable[[], bool], seconds: PhaseSeconds
    ) -> TrainedStep:
        earlier = self.policy.state()
        while True:
            self._at = None
            self._optimizer.rate = rate
            try:
                fresh = update.FreshGaps()
                with self._ranks.job(StepJob(rows, self.pass_budget)):
                    metrics, contexts = self._passes.compute(rows, stopped, seconds, fresh)
                break
            except (RuntimeError, MemoryError) as e:
                if not memory.is_out_of_memory(e):
                    raise
                failure = str(e)
                size = (e.tokens, e.rows) if isinstance(e, memory.PassMemoryFull) else None
            self._lower_pass_budget(rows, failure, size)
        metrics |= {"probe_separation": contexts["separation"], "optimizer_fresh": float(self._is_fresh)}
        changed = not adapters.is_same_adapter(earlier, self.policy.state())
        return TrainedStep(metrics, contexts, changed, fresh.by_trajectory)

    def write(self, origin: AdapterOrigin, trained: TrainedStep, seconds: PhaseSeconds) -> WrittenStep:
        """Write the weights and the optimizer state in memory as a version. Raises `AdapterInvalid`,
        `VersionNotWritten`.
        """
        with seconds.phase("publish"):
            self._written = self._write(origin, trained.probe)
        return self._written

    def _lower_pass_budget(self, rows: Sequence[WeightedRow], failure: str, size: tuple[int, int] | None) -> None:
        """Halve the tokens of a pass until the pass that failed is divided, and go back to the step's parent.

        `size`: tokens and rows of that pass; None: unknown, so it is taken for the largest. One row cannot be divided:
        where a pass has fewer tokens than it, it is computed with less memory. Raises `MemoryFull` or, for a row above
        `token_budget`, `RowTooLong` if it was computed so already.
        """
        assert self._start is not None
        device, settings = self.policy.device, self._settings
        self._optimizer.zero()
        memory.release_memory(device)
        if size is None:
            packs = [one for part in update.split_substeps(rows) for one in self._passes.plan(part).packs]
            size = max((len(one), len(one.rows)) for one in packs)
        tokens, rows_of_pass = size
        is_last = rows_of_pass == 1 and (tokens > self.pass_budget or not self.policy.has_long_rows)
        what = f"a pass with one row of {tokens} tokens does not fit into memory ({memory.free_memory(device)} between"
        if is_last and tokens > settings.token_budget:
            self._too_long = limit = max(settings.token_budget + 1, tokens - tokens // _STEPS_DOWN)
            raise RowTooLong(f"{what} passes): trajectories of {limit} tokens or more are excluded. {failure}")
        if is_last:
            raise MemoryFull(
                f"{what} passes). {ROOM}, or set trainer.token_budget below {tokens}: longer trajectories then have "
                f"a pass of their own if they fit, and are excluded if not. {failure}"
            )
        self.pass_budget = smaller_budget(tokens, self.pass_budget)
        if self._ranks.is_lost:
            raise RankLost(
                f"a pass of {tokens} tokens did not fit into the memory of a process, while the others waited for its "
                f"share of the base: start the trainer again. A pass then has at most {self.pass_budget} tokens."
            )
        self.go_to(self._start)

    def became(self, version_id: str) -> None:
        """Declare that the weights and optimizer state in memory, which the last step wrote, are this version's."""
        assert self._written is not None
        published = self._written.published
        self._start = StartVersion(version_id, published.path, published.manifest_sha256)
        self._at, self._is_fresh = version_id, False

    def _require_scale(self, folder: Path) -> None:
        alpha = adapters.lora_alpha(folder)
        if alpha != self._settings.alpha:
            raise AdapterInvalid(
                f"{folder} was trained with alpha {alpha:g}, and trainer.alpha is {self._settings.alpha:g}: its "
                "weights would give another model. A version's descendants keep its alpha: set trainer.alpha back."
            )

    def _write(self, origin: AdapterOrigin, contexts: Mapping[str, object]) -> WrittenStep:
        published = self._publish(origin, self.policy.state(), contexts)
        try:
            with self._disk_errors(origin):
                saved = checkpoint.save_checkpoint(self._folders.checkpoints, published.engine_name, self._optimizer)
        except BaseException:  # a version without its optimizer state is not published
            durable_folders.remove_folder(published.path)
            raise
        return WrittenStep(published, saved)

    def _publish(
        self, origin: AdapterOrigin, state: Mapping[str, Tensor], contexts: Mapping[str, object]
    ) -> PublishedAdapter:
        settings, policy = self._settings, self.policy
        shapes = {name: tuple(parameter.shape) for name, parameter in policy.parameters.items()}
        lora = LoraShape(settings.rank, settings.alpha, policy.modules, self._layout)
        with self._disk_errors(origin):
            return adapters.publish_adapter(self._folders.adapters, origin, lora, state, shapes, contexts)

    @contextmanager
    def _disk_errors(self, origin: AdapterOrigin) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, SafetensorError) as e:  # torch's and safetensors' words for a full disk
            what = "an adapter to try" if origin.number is None else f"version {origin.number}"
            where = self._folders.adapters.parent
            raise VersionNotWritten(f"{what} could not be written into {where}: {e}. Is the disk full?") from e


def _require_servable(policy: Policy, settings: TrainerSettings, layout: ExpertLayout) -> None:
    """Refuse a `trainer.target` whose adapters no engine loads, before anything is sampled for it."""
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.parameters.items()}
    if not (refused := adapters.unservable_modules(shapes, settings.rank, layout)):
        return
    left = [name for name in policy.modules if name not in {*refused, "base_layer"}]
    todo = f"Set trainer.target = {json.dumps(left)}" if left else "Set trainer.target to linear layers"
    raise UnsupportedModel(
        f"trainer.target {settings.target!r} selects {', '.join(refused)} of the base {policy.base}, and engines load "
        f"no LoRA on such a module (embeddings). {todo}."
    )


async def remove_unneeded(store: Store, alias: AliasView, folders: TrainerFolders, keep: int) -> None:
    """Remove the folders of versions that are not needed, then those that belong to no version in the store."""
    for released in await release_folders(store, alias.id, keep):
        for path in filter(None, (released.path, released.checkpoint_path)):
            await asyncio.to_thread(durable_folders.remove_folder, Path(path))
    known = await known_folders(store)
    for parent in (folders.adapters, folders.checkpoints):
        for folder in _of_alias(parent, alias):
            if not {folder.name, folder.name.rpartition("-")[0]} & known:
                await asyncio.to_thread(durable_folders.remove_folder, folder)


def _of_alias(parent: Path, alias: AliasView) -> list[Path]:
    named = re.compile(re.escape(alias_slug(alias.name)) + r"@\d+-[0-9a-f]{12}")
    return [folder for folder in parent.glob("*@*") if named.fullmatch(folder.name)]
