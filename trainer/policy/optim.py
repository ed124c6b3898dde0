"""The optimizer and its learning rate.

Owns: AdamW over the LoRA's parameters, the schedule as a function of the step, the gradient's norm. Refuses: counting
steps (`recorder.queue.training.steps`), computing gradients, files (`trainer.artifacts.checkpoint`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from trainer.errors import CheckpointInvalid, StepFailed
from trainer.settings import TrainerSettings

BETAS: Final = (0.9, 0.999)
EPSILON: Final = 1e-8


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


class Optimizer:
    """AdamW (arXiv 1711.05101). `rate` is the learning rate of the next step, for its caller to set."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], settings: TrainerSettings) -> None:
        self._parameters = dict(parameters)
        self._settings = settings
        self.rate = settings.lr
        self._adamw = self._fresh()

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
        """Drop all moments: the state of a version without a checkpoint."""
        self._adamw = self._fresh()

    def tensors(self) -> Iterator[Tensor]:
        """Yield the tensors of its state, which are on the parameters' device."""
        for state in self._adamw.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))

    def zero(self) -> None:
        """Drop the gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def step(self) -> dict[str, float]:
        """Clip the gradient and update the parameters. Returns `grad_norm` (before clipping) and `lr`.

        Raises `StepFailed`, with the parameters unchanged, if the gradient is not finite.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.grad_clip))
        if not math.isfinite(norm):
            raise StepFailed(f"the gradient's norm is {norm}: no update was made")
        for group in self._adamw.param_groups:
            group["lr"] = self.rate
        self._adamw.step()
        return {"grad_norm": norm, "lr": self.rate}

    def state(self) -> dict[str, Any]:
        """The full state: moments, and the names and shapes they belong to."""
        shapes = {name: list(parameter.shape) for name, parameter in self._parameters.items()}
        return {"adamw": self._adamw.state_dict()["state"], "shapes": shapes}

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
