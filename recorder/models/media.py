"""Bases that read images, audio or video: whose language model is trained, and how a file names its LoRA.

vLLM's class for such a base holds the language model as one of several parts, and maps the names in an adapter's file
onto its modules. A file with names that it does not map is loaded without an error and changes nothing, so only classes
that tests/e2e/test_media_bases.py asks for their mapping are here. Refuses: the other parts, which are never trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MEDIA: Final = ("vision", "audio", "video")  # of a configuration: vision_config …
TEXT: Final = "model."  # how a text model's file names the modules with its layers
# The same for the language model of a base that reads more than text, by the base's architecture.
TEXT_PARTS: Final[Mapping[str, str]] = {
    "Gemma3ForConditionalGeneration": "model.language_model.",
    "Gemma4ForConditionalGeneration": "model.language_model.",
    "Llama4ForConditionalGeneration": "language_model.model.",
    "Mistral3ForConditionalGeneration": "model.language_model.",
    "Qwen3_5ForConditionalGeneration": "model.language_model.",
    "Qwen3_5MoeForConditionalGeneration": "model.language_model.",
}


def read_media(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a model reads beside text, by its config.json: `vision`, `audio`, `video`."""
    return tuple(kind for kind in MEDIA if config.get(f"{kind}_config"))


def text_part(config: Mapping[str, Any]) -> str | None:
    """How an adapter's file names the modules with the layers of the language model; None: Hone does not know it."""
    architecture = architecture_of(config)
    return TEXT_PARTS.get(architecture) if read_media(config) else TEXT


def architecture_of(config: Mapping[str, Any]) -> str:
    """The first of `architectures`; empty if a config.json has none."""
    found = config.get("architectures")
    return str(found[0]) if isinstance(found, list) and found else ""
