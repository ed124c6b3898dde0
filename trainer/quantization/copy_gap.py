"""How far the quantised copy is from the base itself, before the first step: named tokens after a fixed text.

Owns: computing both. Refuses: the bound (`trainer.step.engine_gap`), and the engine's logprobs, which `hone doctor`
asks for after the same text and every step has of its fresh tokens.

An engine of the base's dtype computes what the base does, so this is the difference to an engine, without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel

from recorder.queue.training.fixed_text import FIXED_TEXT, named_tokens


@dataclass(frozen=True, slots=True)
class CopyLogprobs:
    """Logprobs at temperature 1 of the same named tokens after the fixed text, by the base and by its copy."""

    base: tuple[float, ...]
    copy: tuple[float, ...]


def fixed_prompt(base: Path) -> tuple[int, ...]:
    """The fixed text as the base's tokenizer encodes it; empty if the base has none."""
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(base, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError):
        return ()
    return tuple(tokenizer(FIXED_TEXT).input_ids)


@torch.no_grad()
def logprobs_after(model: PreTrainedModel, prompt: Sequence[int], named: Sequence[int]) -> tuple[float, ...]:
    """A model's logprobs of the named tokens as the next one after a prompt."""
    found = model(input_ids=torch.tensor([list(prompt)], device=model.device), use_cache=False).logits[0, -1]
    logprobs: list[float] = torch.log_softmax(found.float(), -1)[list(named)].tolist()
    return tuple(logprobs)


def named_logprobs(model: PreTrainedModel, prompt: Sequence[int]) -> tuple[float, ...]:
    """A model's logprobs of the tokens that are named after the fixed text (`prompt`)."""
    return logprobs_after(model, prompt, named_tokens(prompt))
