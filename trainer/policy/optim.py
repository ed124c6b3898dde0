"""The optimizer and its learning rate.

Owns: AdamW over the LoRA's parameters, the schedule as a function of the step, the gradient's norm and the largest one
that is applied. Refuses: counting steps (`recorder.queue.training.steps`), computing gradients, files
(`trainer.artifacts.checkpoint`).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from trainer.errors import CheckpointInvalid, StepFailed
from trainer.settings import TrainerSettings

BETAS: Final = (0.9, 0.999)
EPSILON: Final = 1e-8
RECENT_NORMS: Final = 20  # updates whose norms `grad_clip_recent` looks back on
FEWEST_NORMS: Final = 5  # fewer say too little about the next one


def learning_rate(settings: TrainerSettings, steps_done: int) -> float:
    """The learning rate of the step after `steps_done`: linear warm-up, then constant, linear or cosine to `last_rate`.

    Where that is 0, it is 0 exactly from `settings.schedule_end` on.
    """
    if steps_done < settings.warmup_steps:
        return settings.lr * (steps_done + 1) / settings.warmup_steps
    if settings.schedule == "constant":
        return settings.lr
    length = max(1, settings.schedule_steps - settings.warmup_steps)
    progress = min(1.0, (steps_done - settings.warmup_steps) / length)
    share = 1 - progress if settings.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
    return settings.lr * share + settings.last_rate * (1 - share)  # exactly `lr` before, and the last rate after it


def clip_limit(settings: TrainerSettings, recent: Sequence[float]) -> float:
    """The largest gradient norm of an update after updates with these norms before clipping, the newest last."""
    if settings.grad_clip_recent == math.inf or len(recent) < FEWEST_NORMS:
        return settings.grad_clip
    return min(settings.grad_clip, settings.grad_clip_recent * statistics.median(recent[-RECENT_NORMS:]))


class Optimizer:
    """AdamW (arXiv 1711.05101). `rate` is the learning rate of the next step, for its caller to set."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], settings: TrainerSettings) -> None:
        self._parameters = dict(parameters)
        self._settings = settings
        self.rate = settings.lr
        self._adamw = self._fresh()
        self._norms: deque[float] = deque(maxlen=RECENT_NORMS)  # before clipping

    def _fresh(self) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            self._parameters.values(),
            lr=self._settings.lr,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=self._settings.weight_decay,
            fused=True,  # one kernel over all the small matrices
        )

    def reset(self) -> None:
        """Drop all moments and norms: the state of a version without a checkpoint."""
        self._adamw = self._fresh()
        self.forget_norms()

    def forget_norms(self) -> None:
        """Drop the norms of earlier updates: the next ones have another loss, whose gradients are of another size."""
        self._norms.clear()

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors of its state, which are on the parameters' device."""
        for state in self._adamw.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))

    def zero(self) -> None:
        """Drop the gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def step(self) -> dict[str, float]:
        """Clip the gradient and update the parameters.

        Returns `grad_norm` (before clipping), `lr`, and with `grad_clip_recent` also `grad_norm_limit`. Raises
        `StepFailed`, with the parameters unchanged, if the gradient is not finite.
        """
        limit = clip_limit(self._settings, tuple(self._norms))
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), limit))
        if not math.isfinite(norm):
            raise StepFailed(f"the gradient's norm is {norm}: no update was made")
        for group in self._adamw.param_groups:
            group["lr"] = self.rate
        self._adamw.step()
        if norm > 0:  # an update without a gradient says nothing about the size of the next one
            self._norms.append(norm)
        metrics = {"grad_norm": norm, "lr": self.rate}
        return metrics if self._settings.grad_clip_recent == math.inf else {**metrics, "grad_norm_limit": limit}

    def state(self) -> dict[str, Any]:
        """The full state: moments, the names and shapes they belong to, and the norms of recent updates."""
        shapes = {name: list(parameter.shape) for name, parameter in self._parameters.items()}
        return {"adamw": self._adamw.state_dict()["state"], "shapes": shapes, "norms": list(self._norms)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a `state()`. Raises `CheckpointInvalid` if it belongs to other parameters."""
        shapes = {name: list(parameter.shape) for name, parameter in self._parameters.items()}
        if state["shapes"] != shapes:
            raise CheckpointInvalid(
                "the optimizer state belongs to other parameters: were trainer.rank or target changed?"
            )
        self._adamw = self._fresh()
        groups = self._adamw.state_dict()["param_groups"]  # the current settings apply, not the saved ones
        self._adamw.load_state_dict({"state": state["adamw"], "param_groups": groups})
        self.forget_norms()
        self._norms.extend(state.get("norms", ()))  # checkpoints of before have none
