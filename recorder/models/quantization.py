"""Bases with quantised weights: which ones the trainer can turn into plain numbers.

The engine serves the weights as they are. The trainer computes gradients through the same weights as plain numbers, in
its own dtype: dequantised, not requantised. The step's check of logprobs bounds what remains between the two
(`trainer.step.engine_gap`). Refuses: dequantising (`trainer.policy.text_model`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# Methods of `quantization_config` that the trainer's library dequantises without a GPU and without further packages.
DEQUANTIZED: Final = ("fp8", "mxfp4")


def quantization_method(config: Mapping[str, Any]) -> str | None:
    """The method of a config.json's `quantization_config`, in lower case; None: the weights are not quantised."""
    found = config.get("quantization_config") or _of_text(config)
    return str(found.get("quant_method") or "unknown").lower() if isinstance(found, Mapping) else None


def _of_text(config: Mapping[str, Any]) -> object:
    text = config.get("text_config")
    return text.get("quantization_config") if isinstance(text, Mapping) else None
