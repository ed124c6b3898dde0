"""What a base's configuration says about the length of a row: position factors, and lengths at which a model changes.

Owns: which RoPE types the trainer can compute, and the lengths that the start-up check must exceed. Refuses: the check
(`trainer.policy.startup_check`).

For some RoPE types transformers chooses the factors by the longest position of a forward pass, so rows that are packed
change each other's logprobs. vLLM fixes the factors once, by the lengths that it was started with. Where both disagree
for the same row, no choice of the trainer is right for all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trainer.errors import UnsupportedModel

# RoPE types whose factors are the same for every row. (transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS)
_FIXED: Final = frozenset({"default", "linear", "yarn", "llama3", "proportional"})
_LENGTHS: Final = ("sliding_window", "attention_chunk_size", "original_max_position_embeddings")


def require_fixed_positions(config: Any, base: str) -> None:
    """Raise `UnsupportedModel` if a RoPE type of the model (a transformers configuration) depends on a row's length."""
    unknown = sorted({_rope_type(rope) for rope in _ropes(config.get_text_config())} - _FIXED)
    if unknown:
        raise UnsupportedModel(
            f"the base {base} has positions of the RoPE type {', '.join(map(repr, unknown))}. Their factors depend on "
            "the longest row of a pass or on how the engine was started, so the trainer cannot compute the logprobs "
            f"that the engine sampled with. Train a base with one of the types {', '.join(sorted(_FIXED))}."
        )


def critical_lengths(config: Any) -> list[int]:
    """Return the lengths at which the model computes something else, in tokens, ascending: windows, chunks, and the
    length that its positions were made for.
    """
    text = config.get_text_config()
    found = {getattr(text, name, None) for name in _LENGTHS}
    found |= {rope.get(name) for rope in _ropes(text) for name in _LENGTHS}
    return sorted(length for length in found if isinstance(length, int) and length > 0)


def longest_row(config: Any) -> int | None:
    """Return how many positions the model has; None: it states none."""
    length = getattr(config.get_text_config(), "max_position_embeddings", None)
    return length if isinstance(length, int) and length > 0 else None


def _ropes(text: Any) -> Iterator[Mapping[str, Any]]:
    """The RoPE parameters: one set for the model, or one for each kind of layer."""
    for name in ("rope_parameters", "rope_scaling"):  # the second is what remote code still has
        found = getattr(text, name, None)
        if isinstance(found, Mapping):
            nested = [one for one in found.values() if isinstance(one, Mapping)]
            yield from nested or [found]


def _rope_type(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "default")
