"""The files of a policy's versions: reading one into memory, and writing what is in memory as one.

Owns: an adapter and its checkpoint as a pair, the checks before an engine gets an adapter, and errors of the disk.
Refuses: their formats (`trainer.artifacts`), which version is in memory (`trainer.step.core`), and the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from trainer.artifacts import adapters, checkpoint
from trainer.artifacts.adapters import AdapterOrigin, LoraShape, PublishedAdapter
from trainer.errors import AdapterInvalid, UnsupportedModel, VersionNotWritten
from trainer.lora.file_layout import ExpertLayout
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.startup_check import random_state
from trainer.settings import TrainerSettings
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import StartVersion, WrittenStep
from trainer.step.state.weight_average import WeightAverage


@contextmanager
def disk_errors(folders: TrainerFolders, origin: AdapterOrigin) -> Iterator[None]:
    """Report a disk that takes no files within as `VersionNotWritten`. `origin`: of what is written."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as e:  # torch's and safetensors' words for a full disk
        what = "an adapter to try" if origin.number is None else f"version {origin.number}"
        where = folders.adapters.parent
        raise VersionNotWritten(f"{what} could not be written into {where}: {e}. Is the disk full?") from e


class VersionFiles:
    """Reads and writes the versions of one policy and its optimizer."""

    def __init__(
        self,
        policy: Policy,
        optimizer: Optimizer,
        settings: TrainerSettings,
        folders: TrainerFolders,
        layout: ExpertLayout,
    ) -> None:
        """`layout`: how files name experts. Raises `UnsupportedModel` if no engine loads such adapters."""
        self._policy = policy
        self._optimizer = optimizer
        self._settings = settings
        self._folders = folders
        self._layout = layout
        self.average: WeightAverage | None = WeightAverage() if settings.uses_average else None
        self._require_servable()

    def load(self, start: StartVersion) -> bool:
        """Load a version. Return whether its optimizer state was there (True for version 0, which has none).

        Raises `AdapterInvalid` or `CheckpointInvalid` if the files are damaged, or of another shape or scale.
        """
        known, average = True, None
        if start.path is None:
            self._policy.load_state(None)
        else:
            self._policy.load_state(self.read_state(start.path, start.manifest_sha256))
            folder = self._folders.checkpoints / start.path.name
            known = folder.exists()
            average = checkpoint.load_checkpoint(folder, self._optimizer) if known else None
        if self.average is not None:
            if average is not None:
                self._policy.require_shapes(average)
            self.average.begin(self._policy.state() if average is None else average)
        return known

    def read_state(self, path: Path, manifest_sha256: str | None) -> dict[str, Tensor]:
        """Return the weights of a version.

        Raises `AdapterInvalid` if they are damaged, or of another shape or scale, and `AdaptersUnavailable`.
        """
        self._folders.fetch_missing(path, manifest_sha256)
        state = adapters.read_adapter(path, manifest_sha256, self._layout)
        self._policy.require_shapes(state)
        self._require_scale(path)
        return state

    def write(self, origin: AdapterOrigin, contexts: Mapping[str, object]) -> WrittenStep:
        """Write the weights and the optimizer state in memory. Raises `AdapterInvalid`, `VersionNotWritten`."""
        state = self._policy.state()
        published = self._publish(origin, state, contexts)
        if self.average is not None:
            self.average.follow(state)
        average = None if self.average is None else self.average.state
        try:
            with disk_errors(self._folders, origin):
                saved = checkpoint.save_checkpoint(
                    self._folders.checkpoints, published.engine_name, self._optimizer, average
                )
        except BaseException:  # a version without its optimizer state is not published
            self._folders.remove_adapter(published.path)
            raise
        return WrittenStep(published, saved)

    def publish_trial(self, origin: AdapterOrigin) -> PublishedAdapter:
        """Write an adapter with weights that are not zero, as a step would, to be tried and removed.

        Raises `UnsupportedModel` if it fails a check that comes before loading, and `VersionNotWritten`.
        """
        policy = self._policy
        try:
            return self._publish(origin, random_state(policy), {"contexts": [], "separation": 0.0})
        except AdapterInvalid as e:
            raise UnsupportedModel(
                f"an adapter for the base {policy.base} with trainer.target {self._settings.target!r} and trainer.rank "
                f"{self._settings.rank} cannot be served: {e}"
            ) from e

    def _publish(
        self, origin: AdapterOrigin, state: Mapping[str, Tensor], contexts: Mapping[str, object]
    ) -> PublishedAdapter:
        settings, policy = self._settings, self._policy
        lora = LoraShape(settings.rank, settings.alpha, policy.modules, self._layout)
        with disk_errors(self._folders, origin):
            made = adapters.publish_adapter(self._folders.adapters, origin, lora, state, self._shapes(), contexts)
        self._folders.publish(made.path)
        return made

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(parameter.shape) for name, parameter in self._policy.parameters.items()}

    def _require_scale(self, folder: Path) -> None:
        alpha = adapters.lora_alpha(folder)
        if alpha != self._settings.alpha:
            raise AdapterInvalid(
                f"{folder} was trained with alpha {alpha:g}, and trainer.alpha is {self._settings.alpha:g}: its "
                "weights would give another model. A version's descendants keep its alpha: set trainer.alpha back."
            )

    def _require_servable(self) -> None:
        """Refuse a `trainer.target` whose adapters no engine loads, before anything is sampled for it."""
        policy, settings = self._policy, self._settings
        if not (refused := adapters.unservable_modules(self._shapes(), settings.rank, self._layout)):
            return
        left = [name for name in policy.modules if name not in {*refused, "base_layer"}]
        todo = f"Set trainer.target = {json.dumps(left)}" if left else "Set trainer.target to linear layers"
        raise UnsupportedModel(
            f"trainer.target {settings.target!r} selects {', '.join(refused)} of the base {policy.base}, and engines "
            f"load no LoRA on such a module (embeddings). {todo}."
        )
