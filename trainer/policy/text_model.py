"""Load the language model of a base with transformers: the whole of a text model, and a part of one that reads more.

Owns: which configuration describes it, the names of its weights in the files, dequantising, and refusing files that
lack weights. Refuses: the LoRA (`trainer.policy.base_model`), and which bases are supported
(`recorder.models.refusals`).

Of a base that reads images, the language model alone is loaded. Text through it is what the whole model computes, its
vision tower takes no memory, and no LoRA can be put on the tower.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from recorder.models.weights import quantization_method, stored_tensors
from trainer.errors import UnsupportedModel

# Prefixes of the language model's weights in the files, old and new, and what its own class calls them.
_PART_NAMES: Final = {
    r"^(model\.)?language_model\.lm_head\.": "lm_head.",
    r"^(model\.language_model|language_model\.model)\.": "model.",
}
_SCALE: Final = "_scale_inv"  # at the end of the name of an FP8 weight's scales
_OF_THE_WHOLE: Final = ("quantization_config", "tie_word_embeddings")


def text_config(config: Any) -> Any:
    """The configuration (of transformers) of a base's language model: its own, or the part that describes it."""
    text = config.get_text_config()
    if text is config:
        return config
    for name in _OF_THE_WHOLE:
        if (value := getattr(config, name, None)) is not None:
            setattr(text, name, value)
    return text


def load_text_model(base: Path, config: Any, dtype: torch.dtype) -> PreTrainedModel:
    """Load a base's language model from a folder, with eager attention. `config`: transformers', of the whole base.

    Quantised weights become numbers of `dtype`. Raises `UnsupportedModel` if the files lack weights, and whatever
    transformers raises.
    """
    text = text_config(config)
    _require_whole_blocks(base, text)
    _dequantize(text)
    is_part = text is not config
    with _quiet() if is_part else nullcontext():
        model, found = AutoModelForCausalLM.from_pretrained(
            base, config=text, dtype=dtype, attn_implementation="eager", local_files_only=True,
            output_loading_info=True, key_mapping=_PART_NAMES if is_part else None,
        )  # fmt: skip
    if missing := sorted(found["missing_keys"]):
        raise UnsupportedModel(
            f"the weights of the base {base} lack {len(missing)} tensors of its architecture ({missing[0]}), which "
            "would be random. Download the model again, or train another base."
        )
    loaded: PreTrainedModel = model.to(dtype) if quantization_method(text.to_dict()) else model
    return loaded


@contextmanager
def _quiet() -> Iterator[None]:
    """Within: transformers does not list the weights of the other parts, which are left in the files."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def _require_whole_blocks(base: Path, text: Any) -> None:
    """Refuse FP8 weights that their blocks do not divide: transformers divides them evenly, and scales them wrongly."""
    quantization = getattr(text, "quantization_config", None)
    block = list(quantization.get("weight_block_size") or ()) if isinstance(quantization, dict) else []
    stored = stored_tensors(base) if block else {}
    for name in stored:
        if not name.endswith(_SCALE) or (weight := stored.get(name.removesuffix(_SCALE))) is None:
            continue
        sizes = zip(weight.shape[-2:], stored[name].shape[-2:], block, strict=True)
        if any(count > 1 and size % length for size, count, length in sizes):
            raise UnsupportedModel(
                f"the base {base} has FP8 weights in blocks of {' x '.join(map(str, block))} that do not divide "
                f"{name.removesuffix(_SCALE)}, and transformers would scale them wrongly. Train the model that it was "
                "quantised from."
            )


def _dequantize(text: Any) -> None:
    quantization = getattr(text, "quantization_config", None)
    if isinstance(quantization, dict):
        text.quantization_config = {**quantization, "dequantize": True}
