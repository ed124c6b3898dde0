"""Whether a training service computes on the very base that engine and trainer know by its fingerprint.

Owns: named tokens after a fixed text, computed here from the files that the fingerprint is of, and there. Refuses: the
fingerprint (`recorder.registry.fingerprint`), and the bound (`trainer.step.engine_gap`).

A service names a base and gives no files, so equal logprobs are the only evidence there is. A base whose weights this
machine cannot hold cannot be shown equal, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import torch
from safetensors import SafetensorError
from tinker.types import Datum
from transformers import AutoConfig

from recorder.queue.training.fixed_text import named_tokens
from trainer.errors import TinkerUnsupported, TrainerError
from trainer.policy.base_model import choose_dtype, dtype_name, read_config
from trainer.policy.text_model import load_text_model
from trainer.quantization.copy_gap import fixed_prompt, logprobs_after
from trainer.quantization.layers import require_plain_weights
from trainer.settings import TrainerSettings
from trainer.step.engine_gap import gap_bound, text_gap
from trainer.step.tinker.rows import next_token_datum

_PLAIN_TOKENS: Final = 32  # of the prompt for a base without a tokenizer
_FREE: Final = 0.8  # of free memory that the weights may take; the forward pass of one short row takes little more


@dataclass(frozen=True, slots=True)
class FixedLogprobs:
    """Logprobs at temperature 1 of named tokens, each as the next one after a prompt, by the base's own files."""

    prompt: tuple[int, ...]
    named: tuple[int, ...]
    logprobs: tuple[float, ...]

    def data(self) -> list[Datum]:
        """A row for each named token, whose last target it is."""
        return [next_token_datum(np.asarray([*self.prompt, token])) for token in self.named]


def compute_fixed_logprobs(base: Path, settings: TrainerSettings) -> FixedLogprobs:
    """Load the base on the CPU, and drop it again.

    Raises `TinkerUnsupported` if it does not fit into this machine's memory, and `TrainerError`.
    """
    size = sum(path.stat().st_size for path in base.glob("*.safetensors"))
    free = psutil.virtual_memory().available
    if size > _FREE * free:
        raise TinkerUnsupported(
            f"the training service's base cannot be shown equal to {base}: its {size / 2**30:.0f} GiB of weights do "
            f"not fit into the {free / 2**30:.0f} GiB of free memory of this machine, where they are compared once at "
            "the start. Run the trainer on a machine with more memory"
        )
    torch.set_num_threads(settings.threads)
    require_plain_weights(str(base), read_config(base), None)
    try:
        config = AutoConfig.from_pretrained(base, local_files_only=True)
        model = load_text_model(base, config, choose_dtype(settings)).eval()
    except (OSError, ValueError, KeyError, SafetensorError) as e:
        raise TrainerError(f"cannot load the base model from {base}: {e}") from e
    prompt = fixed_prompt(base) or _spread_ids(config.get_text_config().vocab_size)
    named = tuple(named_tokens(prompt))
    return FixedLogprobs(prompt, named, logprobs_after(model, prompt, named))


def require_same_logprobs(own: FixedLogprobs, theirs: Sequence[float], name: str, settings: TrainerSettings) -> None:
    """Raise `TinkerUnsupported` if a service's logprobs (one for each named token) are further away than precision is.

    `name`: what the service calls the base.
    """
    gap, allowed = text_gap(theirs, own.logprobs, gap_bound(dtype_name(settings), None, settings.max_logprob_gap))
    if not gap <= allowed:  # a NaN is none
        raise TinkerUnsupported(
            f"the training service's base {name} cannot be shown equal to {settings.base}: after a fixed text their "
            f"logprobs are {gap:.2g} nats a token apart, and {allowed:.2g} is accepted for {dtype_name(settings)}. "
            "Name the same base in trainer.tinker.base_model, or set trainer.dtype to the precision that engine and "
            "service compute in"
        )


def _spread_ids(vocabulary: int) -> tuple[int, ...]:
    """Ids from all of a vocabulary, each once where there are enough."""
    return tuple(1 + number * (vocabulary - 1) // _PLAIN_TOKENS for number in range(_PLAIN_TOKENS))
