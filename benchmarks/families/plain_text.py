"""The logits of a text by transformers' own class of a base, as the reference of what the trainer computes.

Refuses: loading the class, and its LoRA (`benchmarks.families.trainer_half`). The trainer itself never runs a class
that reads images: it loads the language model alone (`trainer.policy.text_model`).
"""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

_IMAGES: Final = "image_outputs"


def text_logits(model: Any, ids: Tensor) -> Tensor:
    """Return the logits (batch, tokens, vocabulary) of token ids (batch, tokens), by the forward pass of the class.

    From a transformers whose class fails on text without images, by the language model in the class. In 5.24, Llama 4
    computes these very logits and then fails, as it also returns the outputs of images, which a text has none of. Any
    other error is raised.
    """
    try:
        logits: Tensor = model(input_ids=ids, use_cache=False).logits
    except AttributeError as e:
        if e.name != _IMAGES:
            raise
        logits = model.language_model(input_ids=ids, use_cache=False).logits
    return logits
