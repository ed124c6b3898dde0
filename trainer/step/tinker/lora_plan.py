"""The LoRA that a training service has to make, from a base's configuration alone: names, shapes and scale.

Refuses: the base's weights, and what `trainer.target` selects (`trainer.lora.targets`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from recorder.models.media import TEXT, text_part
from trainer.artifacts.adapters import LoraShape
from trainer.errors import TinkerUnsupported, TrainerError
from trainer.policy.base_model import add_plain_lora, first_architecture, read_config
from trainer.policy.model import file_name
from trainer.policy.startup_check import random_lora
from trainer.policy.text_model import text_config
from trainer.settings import TrainerSettings
from trainer.step.tinker.requirements import require_dense


@dataclass(frozen=True, slots=True)
class LoraPlan:
    """`shapes`: of each tensor, by its name in an adapter's file."""

    shapes: dict[str, tuple[int, ...]]
    lora: LoraShape

    def random_state(self) -> dict[str, Tensor]:
        """Weights that are not zero, for an adapter to try."""
        return random_lora(self.shapes, self.lora.alpha / self.lora.rank)


def plan_lora(base: Path, settings: TrainerSettings) -> LoraPlan:
    """The LoRA of these settings on a base. Reads config.json and no weights.

    Raises `TinkerUnsupported` for a base whose LoRA a service divides or names in another way, and `TrainerError`.
    """
    found = read_config(base)
    architecture = first_architecture(found)
    require_dense(base, architecture)
    if text_part(found) != TEXT:
        raise TinkerUnsupported(
            f"the base {base} reads more than text, and a Tinker service names the LoRA of its language model in "
            'another way: train a text model, or set trainer.backend = "local"'
        )
    try:
        config = AutoConfig.from_pretrained(base, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(text_config(config))
            adapted = add_plain_lora(model, base, settings, architecture)
    except (OSError, ValueError, KeyError) as e:
        raise TrainerError(f"cannot read the configuration of the base model {base}: {e}") from e
    shapes = {
        file_name(name, TEXT): tuple(parameter.shape)
        for name, parameter in sorted(adapted.named_parameters())
        if parameter.requires_grad
    }
    modules = tuple(sorted({name.split(".lora_")[0].rsplit(".", 1)[1] for name in shapes}))
    return LoraPlan(shapes, LoraShape(settings.rank, settings.alpha, modules))
