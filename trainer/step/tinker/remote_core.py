"""A core whose policy and optimizer are at a training service: `trainer.step.core`'s methods, through the Tinker API.

Owns: which version the service's model is at, the passes of a step, and a version's files from what the service made.
Refuses: waiting and errors (`trainer.step.tinker.session`), the loss (`trainer.policy.losses`), and the store.

After any failure the session is dropped: a model that is half way through a step, or that the service lost, is never
trained further. The next step opens another one at its parent's saved state.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import torch
from tinker.types import AdamParams
from torch import Tensor

from trainer.artifacts import adapters
from trainer.artifacts.adapters import AdapterOrigin, PublishedAdapter
from trainer.batch.weights import WeightedRow
from trainer.errors import AdapterInvalid, TinkerUnsupported, UnsupportedModel
from trainer.policy.optim import BETAS, EPSILON
from trainer.policy.packs.plan import split_substeps
from trainer.policy.packs.sums import FreshGaps, StepSums, merge_substeps
from trainer.settings import TrainerSettings
from trainer.step.drift.request import DriftRequest
from trainer.step.fits.job import FitJob, ReferenceAdapter, explain_backend
from trainer.step.state.files import disk_errors
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, StartVersion, TrainedStep, WrittenStep
from trainer.step.tinker.adapter_files import download_adapter
from trainer.step.tinker.base_check import FixedLogprobs, compute_fixed_logprobs, require_same_logprobs
from trainer.step.tinker.lora_plan import plan_lora
from trainer.step.tinker.price import explain_price
from trainer.step.tinker.probes import ProbeRows, split_rows
from trainer.step.tinker.requirements import base_name, require_base, require_supported
from trainer.step.tinker.rows import SentRows, flat_logprobs, require_computable, step_loss
from trainer.step.tinker.saved_state import read_state_path, write_state_path
from trainer.step.tinker.secret import guarded_logs, read_key
from trainer.step.tinker.session import Session

_FILES_S: Final = 3600  # how long the adapter's files stay at the service, should deleting them fail
_DAY_S: Final = 86400
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._-]")


class TinkerCore:
    """A model at a training service. One thread uses it.

    Every method may raise `TinkerUnavailable` and `TinkerRefused`, and `StepInterrupted` once it is stopped.
    """

    copied = None  # no quantised copy of the base is here

    def __init__(
        self, base: Path, settings: TrainerSettings, folders: TrainerFolders, stopped: Callable[[], bool]
    ) -> None:
        """Check everything that can be checked before anything is sampled: settings, key, base, and the LoRA's files.

        Raises `TinkerUnsupported`.
        """
        require_supported(settings)
        self._base_model = base_name(settings)
        self._settings = settings
        self._folders = folders
        self._stopped = stopped
        self._key = read_key(os.environ)
        self._plan = plan_lora(base, settings)
        self._session: Session | None = None
        self._at: str | None = None  # the version that the service's model is at; None: unknown
        self._is_untrained = False  # the service's model is version 0, and none of a name
        self._untrained: Mapping[str, Tensor] = {}
        self._parent: Mapping[str, Tensor] = {}  # the adapter that the next step begins at
        self._made: Mapping[str, Tensor] = {}  # the one that the last step made
        self._written: tuple[WrittenStep, str] | None = None  # the last step's, and its state's path
        self.pass_budget = settings.token_budget  # nothing here has a memory that could be full
        self._longest: int | None = None
        own = compute_fixed_logprobs(base, settings)
        self._guard = ExitStack()
        self._guard.enter_context(guarded_logs(self._key))
        try:
            self._check_service(own)
        except BaseException:
            self.close()
            raise

    @property
    def device_name(self) -> str:
        """The service's name of the base."""
        return f"tinker {self._base_model}"

    @property
    def note(self) -> str:
        """What a step costs there, in one sentence."""
        return explain_price()

    def enter_gpu(self) -> None:
        """Nothing of it is on a GPU of this machine."""

    def leave_gpu(self) -> None:
        """Nothing of it is on a GPU of this machine."""

    def fits_alone(self, row_tokens: int) -> bool:
        """Whether the service takes a row of this length."""
        return self._longest is not None and row_tokens <= self._longest

    def publish_trial(self, origin: AdapterOrigin) -> PublishedAdapter:
        """Write an adapter with weights that are not zero, to be tried and removed.

        Raises `UnsupportedModel` if it fails a check that comes before loading, and `VersionNotWritten`.
        """
        try:
            return self._publish(origin, self._plan.random_state(), {"contexts": [], "separation": 0.0})
        except AdapterInvalid as e:
            raise UnsupportedModel(f"an adapter for the base {self._base_model} cannot be served: {e}") from e

    def go_to(self, start: StartVersion) -> bool:
        """Bring the service's model to a version, with its optimizer state. Returns True: it always has that.

        Raises `CheckpointExpired`, `CheckpointInvalid` if the version was made elsewhere, and `AdapterInvalid` if its
        files are damaged or of another scale.
        """
        if self._at == start.version_id:
            return True
        if start.path is None and self._is_untrained:
            self._at, self._parent = start.version_id, self._untrained
            return True
        self._forget_unused()
        with self._dropped_on_failure():
            if start.path is None:
                self._make_untrained(self._connected())
                self._parent = self._untrained
            else:
                self._restore(start.path, start.manifest_sha256)
            self._at = start.version_id
        return True

    def step(
        self,
        rows: Sequence[WeightedRow],
        rate: float,
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
        drift: DriftRequest | None = None,
        reference: ReferenceAdapter | None = None,
    ) -> TrainedStep:
        """Train on the rows from the version that the model is at; the result stays at the service, and is fetched.

        `drift` and `reference` are None: the service returns no whole distributions, and trains no pairs
        (`trainer.step.tinker.requirements`).
        Raises `StepFailed` if the loss is not finite, and `TinkerUnsupported` for rows of another temperature than 1.
        """
        require_computable(rows)
        session, self._stopped = self._connected(), stopped
        session.stopped = stopped
        self._at, self._is_untrained = None, False
        with self._dropped_on_failure():
            metrics, probe, fresh = self._train(session, rows, rate, seconds)
            with seconds.phase("publish"):
                self._made = self._fetch(session)
        changed = not adapters.is_same_adapter(self._parent, self._made)
        metrics |= {"probe_separation": probe["separation"], "optimizer_fresh": 0.0}
        return TrainedStep(metrics, probe, changed, fresh.by_trajectory)

    def write(self, origin: AdapterOrigin, trained: TrainedStep, seconds: PhaseSeconds) -> WrittenStep:
        """Write the fetched adapter as a version, and save the model's state at the service.

        Raises `AdapterInvalid`, `VersionNotWritten`.
        """
        session, days = self._connected(), self._settings.tinker.checkpoint_days
        with seconds.phase("publish"), self._dropped_on_failure():
            published = self._publish(origin, self._made, trained.probe)
            try:
                name = _FOREIGN.sub("-", published.engine_name)
                path = session.save_model(name, None if days is None else round(days * _DAY_S))
                with disk_errors(self._folders, origin):
                    saved = write_state_path(self._folders.checkpoints, published.engine_name, path)
            except BaseException:  # a version without its optimizer state is not published
                self._folders.remove_adapter(published.path)
                raise
        written = WrittenStep(published, saved)
        self._written = written, path
        return written

    def fit(
        self,
        job: FitJob[Any],
        rate: float,
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
        drift: DriftRequest | None = None,
    ) -> TrainedStep:
        """Raise `TinkerUnsupported`: fits were never tried with the Tinker API."""
        raise TinkerUnsupported(explain_backend(job.objective.command))

    def became(self, version_id: str) -> None:
        """Declare that the service's model, whose state the last step saved, is this version."""
        assert self._written is not None
        self._written, self._at, self._parent = None, version_id, self._made

    def close(self) -> None:
        """End the session, and stop guarding the logs."""
        try:
            self._drop()
        finally:
            self._guard.close()

    def _check_service(self, own: FixedLogprobs) -> None:
        settings = self._settings
        session = self._connected()
        self._longest = require_base(session.load_capabilities(), self._base_model, settings.token_budget)
        self._make_untrained(session)
        theirs = [float(one[-1]) for one in session.forward(own.data())]
        require_same_logprobs(own, theirs, self._base_model, settings)
        self._untrained = self._fetch(session)

    def _make_untrained(self, session: Session) -> None:
        settings, mlp = self._settings, self._settings.target != "attention"
        session.create_model(self._base_model, rank=settings.rank, seed=settings.seed, mlp=mlp)
        self._require_described(session)
        self._is_untrained = True

    def _restore(self, path: Path, manifest_sha256: str | None) -> None:
        self._folders.fetch_missing(path, manifest_sha256)
        self._parent = adapters.read_adapter(path, manifest_sha256)
        if (alpha := adapters.lora_alpha(path)) != self._settings.alpha:
            raise AdapterInvalid(
                f"{path} was trained with alpha {alpha:g}, and trainer.alpha is {self._settings.alpha:g}: a version's "
                "descendants keep its alpha. Set trainer.alpha back."
            )
        saved = read_state_path(self._folders.checkpoints / path.name, path.name)
        session = self._connected()
        self._is_untrained = False
        session.restore_model(saved, path.name)
        self._require_described(session)

    def _require_described(self, session: Session) -> None:
        """Raise `TinkerUnsupported` if the service's model is not the one that was asked for."""
        name, rank = session.describe_model()
        if name != self._base_model or rank != self._settings.rank:
            raise TinkerUnsupported(
                f"the training service made a model of {name} at rank {rank}, not of {self._base_model} at "
                f"{self._settings.rank}: nothing is trained on it"
            )

    def _train(
        self, session: Session, rows: Sequence[WeightedRow], rate: float, seconds: PhaseSeconds
    ) -> tuple[dict[str, float], dict[str, Any], FreshGaps]:
        """The metrics of a step, its probe, and the gaps of all rows before the first update."""
        parts = split_substeps(rows)
        fresh = FreshGaps()
        before: list[Any] = []  # of all rows, in the order of the parts: their targets' logprobs at the parent
        measured = 0
        with seconds.phase("train"):
            sent = [SentRows(part) for part in parts]
            later = []
            for one in sent[1:]:
                logprobs = flat_logprobs(session.forward(one.data))
                later.append((self._with_parent(one, logprobs, fresh), logprobs))
                measured += len(one)
            done = [self._update(session, sent[0], rate, fresh, before)]
            for one, logprobs in later:
                before.extend(split_rows(logprobs, one.sizes))
                done.append(self._update(session, one, rate, FreshGaps(), []))
            metrics = merge_substeps(done) | fresh.means()
        probes = ProbeRows([one.row for part in parts for one in part])
        with seconds.phase("probe"):
            after = session.forward(probes.data())
        parent = probes.pick([before[number] for number in probes.chosen])
        metrics["forward_tokens"] += measured + sum(map(len, after))
        return metrics, probes.choose(probes.pick(after), parent), fresh

    def _with_parent(self, sent: SentRows, logprobs: Tensor, fresh: FreshGaps) -> SentRows:
        """Rows that are trained on only after the weights have changed, with their logprobs at the parent."""
        tokens = sent.gather(self._settings)
        own = logprobs[tokens.before]
        fresh.add(sent.pack, sent.rows, tokens, own)
        each = torch.split(own, [one.row.trained_tokens for one in sent.rows])
        return SentRows([replace(one, parent=values.numpy()) for one, values in zip(sent.rows, each, strict=True)])

    def _update(
        self, session: Session, sent: SentRows, rate: float, fresh: FreshGaps, before: list[Any]
    ) -> dict[str, float]:
        """Make one update and return its metrics. `before` gets each row's logprobs."""
        sums, settings = StepSums(), self._settings

        def loss(_: list[Any], given: list[Any]) -> tuple[Tensor, dict[str, float]]:
            flat = flat_logprobs(given)
            before.extend(split_rows(flat.detach(), sent.sizes))
            return step_loss(sent, flat, settings, sums, fresh), {}

        session.add_gradient(sent.data, loss)
        session.update(
            AdamParams(
                learning_rate=rate,
                beta1=BETAS[0],
                beta2=BETAS[1],
                eps=EPSILON,
                weight_decay=settings.weight_decay,
                grad_clip_norm=settings.grad_clip,
            )
        )
        metrics = sums.means()
        del metrics["entropy"]  # the service gives logprobs of targets alone
        return metrics | {"lr": rate}

    def _fetch(self, session: Session) -> dict[str, Tensor]:
        """The model's adapter, under our names."""
        path, links = session.export_links(f"hone-{token_hex(8)}", _FILES_S)
        try:
            found = download_adapter(links, self._key)
        finally:
            session.delete(path)
        return found.require_match(self._plan.shapes, self._settings.rank, self._settings.alpha)

    def _publish(
        self, origin: AdapterOrigin, state: Mapping[str, Tensor], contexts: Mapping[str, object]
    ) -> PublishedAdapter:
        with disk_errors(self._folders, origin):
            made = adapters.publish_adapter(
                self._folders.adapters, origin, self._plan.lora, state, self._plan.shapes, contexts
            )
        self._folders.publish(made.path)
        return made

    def _connected(self) -> Session:
        if self._session is None:
            self._session = Session(self._settings.tinker, self._key)
        self._session.stopped = self._stopped
        return self._session

    def _forget_unused(self) -> None:
        """Delete the state of a version that came to nothing."""
        if self._written is not None and self._session is not None:
            self._session.delete(self._written[1])
        self._written = None

    def _drop(self) -> None:
        session, self._session = self._session, None
        self._at, self._is_untrained = None, False
        if session is not None:
            session.close()

    @contextmanager
    def _dropped_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._drop()
            raise
