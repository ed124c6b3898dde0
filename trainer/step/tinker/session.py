"""One session with a training service, and the one model in it: requests, and waiting for their answers.

Owns: the library's clients, the time limit of an answer, stopping early, closing. Refuses: what is sent
(`trainer.step.tinker.rows`), and what an answer means for a step (`trainer.step.tinker.remote_core`).

The library retries without an end while a server is down and while it limits the rate, so each wait has a limit here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

import tinker
from tinker.types import AdamParams, Datum

from recorder.base.urls import is_safe_address
from trainer.errors import CheckpointExpired, StepInterrupted, TinkerRefused, TinkerUnavailable, TrainerError
from trainer.settings import TinkerSettings
from trainer.step.tinker.failures import describe_error, explain_failure, is_lost
from trainer.step.tinker.secret import ServiceKey

_LOOK_S: Final = 0.2  # between two looks whether the step was stopped
_CLOSE_S: Final = 3.0  # for the service to hear that the session ends; it ends without, too
_ADDRESS: Final = "TINKER_BASE_URL"  # the library's own variable

T = TypeVar("T")
LossFunction = Callable[[list[Datum], list[Any]], tuple[Any, dict[str, float]]]


class Session:
    """A session that holds one model. One thread uses it.

    Every method raises `TinkerUnavailable`, `TinkerRefused`, or `StepInterrupted` once `stopped` returns true.
    """

    def __init__(self, settings: TinkerSettings, key: ServiceKey) -> None:
        """Open the session with the first request."""
        url = settings.url or os.environ.get(_ADDRESS) or None
        if url is not None and not is_safe_address(url):
            raise TinkerRefused(f"{_ADDRESS} is neither https nor on this machine: the key is not sent to {url}")
        self._key = key
        self._limit_s = settings.answer_timeout_s
        self.stopped: Callable[[], bool] = lambda: False
        self._loss_error: BaseException | None = None
        self._service = tinker.ServiceClient(base_url=url, api_key=key.reveal())
        self._model: tinker.TrainingClient | None = None

    def load_capabilities(self) -> Mapping[str, int | None]:
        """The bases that the service trains, by name, with the most tokens of a row (None: unknown)."""
        found = self._submit(lambda: self._rest().get_server_capabilities(), "listing the models")
        models = (one for one in found.supported_models if one.trainable is not False)
        return {one.model_name: one.max_context_length for one in models if one.model_name}

    def create_model(self, base_model: str, *, rank: int, seed: int, mlp: bool) -> None:
        """Make an untrained model of the base the session's: attention and, if `mlp`, MLPs get a LoRA.

        The output head gets none, and the rank is ours: the library's defaults would adapt the head, at rank 32.
        """
        self._model = self._submit(
            lambda: self._service.create_lora_training_client(
                base_model, rank=rank, seed=seed, train_attn=True, train_mlp=mlp, train_unembed=False
            ),
            f"making a model of {base_model}",
        )

    def restore_model(self, path: str, version: str) -> None:
        """Make a saved model the session's, with its optimizer state.

        Raises `CheckpointExpired` if the service does not have it.
        """
        try:
            self._model = self._submit(
                lambda: self._service.create_training_client_from_state_with_optimizer(path),
                f"loading the state of {version}",
                gone=f"the training service has no state of the version {version} any more (it expired, or was "
                "deleted), and takes no weights from files: no step can begin at it. Move the alias to a version "
                "whose state it has, and let states expire later (trainer.tinker.checkpoint_days)",
            )
        except CheckpointExpired:
            self._model = None
            raise

    def describe_model(self) -> tuple[str | None, int | None]:
        """The base's name and the LoRA's rank, as the service states them."""
        info = self._trained().get_info()
        return info.model_data.model_name or info.model_name, info.lora_rank

    def forward(self, data: Sequence[Datum]) -> list[Any]:
        """The logprobs of each row's targets: float32 arrays of shape (targets,)."""
        found = self._submit(lambda: self._trained().forward(list(data), "cross_entropy"), "a forward pass")
        return [one["logprobs"].to_numpy().reshape(-1) for one in found.loss_fn_outputs]

    def add_gradient(self, data: Sequence[Datum], loss: LossFunction) -> None:
        """Compute the rows' logprobs there, the loss here, and its gradient there. Raises what `loss` raises."""
        self._loss_error = None

        def kept(rows: list[Datum], logprobs: list[Any]) -> tuple[Any, dict[str, float]]:
            try:
                return loss(rows, logprobs)
            except BaseException as e:
                self._loss_error = e
                raise

        self._submit(lambda: self._trained().forward_backward_custom(list(data), kept), "the forward and backward pass")

    def update(self, params: AdamParams) -> Mapping[str, float]:
        """Make one update from the gradient. Returns what the service measured of it."""
        return self._submit(lambda: self._trained().optim_step(params), "the optimizer step").metrics or {}

    def save_model(self, name: str, ttl_seconds: int | None) -> str:
        """Save weights and optimizer state at the service; return their path there."""
        saved = self._submit(lambda: self._trained().save_state(name, ttl_seconds=ttl_seconds), "saving the state")
        return str(saved.path)

    def export_links(self, name: str, ttl_seconds: int) -> tuple[str, Mapping[str, str]]:
        """Write the adapter as files at the service; return their path there, and a link to each file by its name."""
        saved = self._submit(
            lambda: self._trained().save_weights_external(name, ttl_seconds=ttl_seconds), "writing the adapter's files"
        )
        links = self._submit(
            lambda: self._rest().get_external_weights_urls(saved.path), "signing links to the adapter's files"
        )
        return str(saved.path), links.urls

    def delete(self, path: str) -> None:
        """Delete what a path names. A failure is ignored: it stays there, and may expire."""
        with suppress(TrainerError):
            self._submit(lambda: self._rest().delete_checkpoint_from_tinker_path(path), "deleting a checkpoint")

    def close(self) -> None:
        """End the session. A service that does not answer ends it by itself, once it hears nothing."""
        self._model = None
        future = _in_daemon(lambda: self._service.close("success"))
        with suppress(Exception):
            future.result(_CLOSE_S).result(_CLOSE_S)

    def _trained(self) -> tinker.TrainingClient:
        if self._model is None:
            raise TinkerUnavailable("the session with the training service holds no model: the next step makes one")
        return self._model

    def _rest(self) -> tinker.RestClient:
        """The client of models and files, over the session's connections.

        Made from an address and a key, it would share connections of the whole process, which are never closed, and
        wait under a lock of the whole process while a server is down: no later session could begin.
        """
        return tinker.RestClient(self._service.holder)

    def _submit(self, request: Callable[[], Any], what: str, gone: str | None = None) -> Any:
        """Send a request and wait for its answer. `gone`: the error if what the request names is not there."""
        deadline = time.monotonic() + self._limit_s
        sent: Any = self._wait(_in_daemon(request), what, deadline, gone)
        return self._wait(sent.future(), what, deadline, gone)

    def _wait(self, future: Future[T], what: str, deadline: float, gone: str | None) -> T:
        while True:
            if self.stopped():
                future.cancel()
                raise StepInterrupted("the step was stopped before its update: its groups are given back")
            try:
                return future.result(_LOOK_S)
            except TimeoutError as e:
                if not future.done():
                    if time.monotonic() < deadline:
                        continue
                    future.cancel()
                    raise TinkerUnavailable(
                        f"{what} at the training service took more than {self._limit_s:g} s "
                        "(trainer.tinker.answer_timeout_s). The groups are given back"
                    ) from None
                failure: BaseException = e
            except BaseException as e:
                if not isinstance(e, Exception):
                    raise
                failure = e
            raise self._explain(failure, what, gone) from None

    def _explain(self, error: BaseException, what: str, gone: str | None) -> BaseException:
        if self._loss_error is not None:
            return self._loss_error
        if gone is not None and is_lost(error):
            return CheckpointExpired(f"{gone}. It says: {describe_error(error, self._key)}")
        return explain_failure(error, what, self._key)


def _in_daemon(work: Callable[[], T]) -> Future[T]:
    """Run something that may block for minutes in a thread that nobody has to wait for."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as e:  # noqa: BLE001 - it is the waiting thread's
            if not future.cancelled():
                with suppress(Exception):
                    future.set_exception(e)
        else:
            with suppress(Exception):  # cancelled meanwhile
                future.set_result(result)

    threading.Thread(target=run, name="tinker request", daemon=True).start()
    return future
