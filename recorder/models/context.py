"""The longest context of a model, and what an engine computes otherwise by it, by the rules of vLLM 0.32.

A sliding window shortens no context: only the layers that have it forget. Refuses: what a card's memory allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from recorder.models.families import ModelConfig

# vLLM takes the smallest that is there (`derive_max_model_len_and_key`); model_max_length overrides them.
_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# With these, `max_position_embeddings` is the scaled length already.
_LONGROPE: Final = frozenset({"longrope", "su"})
_TEMPERED: Final = "llama4_text"
_TEMPERED_FROM: Final = 32768  # tokens of context, of vLLM's class for Llama 4
_TEMPERED_CONTEXT: Final = 131072  # of transformers' configuration of Llama 4, where config.json says none
CONTEXT_FLAG: Final = "--max-model-len"
_SCALED: Final = {"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"}


def context_length(config: ModelConfig) -> int | None:
    """The most tokens of prompt and answer that vLLM accepts as `--max-model-len`; None where no key says it."""
    lengths = [config[key] for key in _KEYS if _is_length(config.get(key))]
    if not lengths:
        return None
    longest = float(config["model_max_length"] if _is_length(config.get("model_max_length")) else min(lengths))
    if "gemma3" not in str(config.get("model_type")):
        factor = 1.0
        for rope in rope_parameters(config):
            if _rope_type(rope) not in _SCALED:
                factor = rope.get("factor", factor) or 1.0
        longest *= factor
    return int(longest)


def default_context_length(config: ModelConfig) -> int | None:
    """What vLLM takes without `--max-model-len`: with longrope the original context, else the longest."""
    if any(_rope_type(rope) in _LONGROPE for rope in rope_parameters(config)):
        original = config.get("original_max_position_embeddings")
        if isinstance(original, int) and _is_length(original):
            return original
    return context_length(config)


def stated_context(max_model_len: int | None, arguments: Sequence[str]) -> int | None:
    """The context that settings give vLLM: the last `--max-model-len` of its arguments in tokens, or the setting."""
    found = None
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == CONTEXT_FLAG:
            found = value if equals else next(iter(arguments[at + 1 : at + 2]), "")
    return int(found) if found is not None and found.isdecimal() else max_model_len


def longrope_factors(config: ModelConfig, max_model_len: int | None) -> Literal["long", "short"] | None:
    """Which factors of longrope vLLM takes for all rows; None: the model has no longrope.

    It takes the long ones where its context is longer than the original one, and for short rows too.
    """
    original: object = None
    for rope in rope_parameters(config):
        if _rope_type(rope) in _LONGROPE:
            original = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
            break
    else:
        return None
    context = max_model_len or default_context_length(config)
    return "long" if isinstance(original, int) and context is not None and context > original else "short"


def tempers_attention(config: ModelConfig, generation: Mapping[str, Any], max_model_len: int | None) -> bool | None:
    """Whether vLLM scales the queries of late tokens in Llama 4's layers without RoPE; None: another family.

    `generation`: generation_config.json, which decides where it names it; else the engine's context does. vLLM
    overwrites what config.json says.
    """
    if config.get("model_type") != _TEMPERED:
        return None
    if (stated := generation.get("attn_temperature_tuning")) is not None:
        return bool(stated)
    return (max_model_len or default_context_length(config) or _TEMPERED_CONTEXT) > _TEMPERED_FROM


def scaled_from(config: ModelConfig) -> int | None:
    """The position from which transformers scales queries and vLLM does not (Ministral 3); None: no such position.

    vLLM reads the scale where Mistral's own format has it, and not among the RoPE parameters of config.json.
    """
    for rope in rope_parameters(config):
        original = rope.get("original_max_position_embeddings")
        if rope.get("llama_4_scaling_beta") and isinstance(original, int):
            return original
    return None


def rope_parameters(config: ModelConfig) -> Iterator[Mapping[str, Any]]:
    """The rope parameters of a text config, one for each type of layer where they differ."""
    found = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(found, Mapping) or not found:
        return
    if all(isinstance(one, Mapping) for one in found.values()):
        yield from found.values()
    else:
        yield found


def _rope_type(rope: Mapping[str, Any]) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _is_length(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**40
