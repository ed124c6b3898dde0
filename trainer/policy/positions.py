"""What a base's configuration says about the length of a row: position factors, and lengths at which a model changes.

Owns: which RoPE types the trainer can compute, giving a model the engine's factors and its scale of late queries, and
the lengths that the start-up check must exceed. Refuses: the check (`trainer.policy.startup_check`), and the rules by
which an engine chooses (`recorder.models.context`).

For some RoPE types transformers chooses the factors by the longest position of a forward pass, so rows that are packed
would change each other's logprobs. vLLM fixes the factors once, for all rows: the trainer does the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from recorder.models.context import longrope_factors, tempers_attention
from trainer.errors import UnsupportedModel

# RoPE types whose factors are the same for every row. (transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS)
_FIXED: Final = frozenset({"default", "linear", "yarn", "llama3", "proportional"})
_BY_ENGINE: Final = frozenset({"longrope", "dynamic"})  # those that the engine fixes
_TUNING: Final = "attn_temperature_tuning"  # of transformers' attention of Llama 4
_LENGTHS: Final = ("sliding_window", "attention_chunk_size", "original_max_position_embeddings", "floor_scale")


def require_fixed_positions(config: Any, base: str, max_model_len: int | None = None) -> None:
    """Raise `UnsupportedModel` if the factors of a RoPE type of the model depend on more than the engine's context.

    `config`: a transformers configuration; `max_model_len`: the engine's context.
    """
    text = config.get_text_config()
    kinds = {_rope_type(rope): rope for rope in _ropes(text)}
    if unknown := sorted(kinds.keys() - _FIXED - _BY_ENGINE):
        raise UnsupportedModel(
            f"the base {base} has positions of the RoPE type {', '.join(map(repr, unknown))}, which the trainer does "
            f"not know. Train a base with one of the types {', '.join(sorted(_FIXED | _BY_ENGINE))}."
        )
    if (dynamic := kinds.get("dynamic")) is None:
        return
    if "alpha" in dynamic:
        raise UnsupportedModel(
            f"the base {base} has positions of the RoPE type 'dynamic' with alpha, whose factors transformers and the "
            "engine compute differently. Train another base."
        )
    if max_model_len is not None and max_model_len > (longest_row(config) or max_model_len):
        raise UnsupportedModel(
            f"the base {base} has positions of the RoPE type 'dynamic', which an engine computes up to "
            f"{longest_row(config)} tokens. Lower engine.max_model_len to that."
        )


def fix_positions(model: nn.Module, config: Any, base: str, max_model_len: int | None) -> None:
    """Give the model the engine's factors for every row, where transformers chooses them by the rows of a pass.

    `max_model_len`: the engine's context; None: its default. Raises `UnsupportedModel` if the model computes its
    factors in a way of its own.
    """
    text = config.get_text_config()
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str) and kinds in _BY_ENGINE:
            _fix(module, "", text.rope_parameters, text, max_model_len)
            module.rope_type = "default"  # type: ignore[assignment]  # transformers leaves it as it is then
            _require_fixed(module, None, base)
        elif isinstance(kinds, dict):
            for layer in [layer for layer, kind in kinds.items() if kind in _BY_ENGINE]:
                _fix(module, f"{layer}_", text.rope_parameters[layer], text, max_model_len)
                kinds[layer] = "default"
                _require_fixed(module, layer, base)


def fix_query_scale(
    model: nn.Module, config: Mapping[str, Any], generation: Mapping[str, Any], max_model_len: int | None
) -> None:
    """Let Llama 4's layers without RoPE scale the queries of late tokens where the engine does so.

    `config`: of the language model; `generation`: generation_config.json; `max_model_len`: the engine's context.
    """
    choice = tempers_attention(config, generation, max_model_len)
    for module in model.modules() if choice is not None else ():
        if hasattr(module, _TUNING):
            setattr(module, _TUNING, choice)


def _fix(module: nn.Module, prefix: str, rope: Mapping[str, Any], text: Any, max_model_len: int | None) -> None:
    before: Tensor = getattr(module, f"{prefix}inv_freq")
    long = _rope_type(rope) == "longrope"
    frequencies, scale = (_longrope if long else _dynamic)(rope, text, max_model_len, 2 * len(before))
    module.register_buffer(f"{prefix}inv_freq", frequencies.to(before.device), persistent=False)
    setattr(module, f"{prefix}attention_scaling", scale)


def _longrope(rope: Mapping[str, Any], text: Any, max_model_len: int | None, dim: int) -> tuple[Tensor, float]:
    """The inverse frequencies and the scale of vLLM's longrope. (It ignores `factor` and `attention_factor`.)"""
    chosen = longrope_factors(text.to_dict(), max_model_len) or "short"
    original = rope["original_max_position_embeddings"]
    stretch = text.max_position_embeddings / original
    scale = rope.get(f"{chosen}_mscale")
    if scale is None:
        scale = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    factors = torch.tensor(rope[f"{chosen}_factor"], dtype=torch.float32)
    return 1.0 / (factors * _powers(rope["rope_theta"], dim)), float(scale)


def _dynamic(rope: Mapping[str, Any], text: Any, max_model_len: int | None, dim: int) -> tuple[Tensor, float]:
    """The inverse frequencies of vLLM's dynamic scaling: those of the length that the model states, for every row."""
    stretch = text.max_position_embeddings / rope.get("max_trained_positions", text.max_position_embeddings)
    theta = rope["rope_theta"] * (rope["factor"] * stretch - (rope["factor"] - 1)) ** (dim / (dim - 2))
    return 1.0 / _powers(theta, dim), 1.0


def _powers(theta: float, dim: int) -> Tensor:
    exponents = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    return torch.as_tensor(theta**exponents)


@torch.no_grad()
def _require_fixed(module: nn.Module, layer: str | None, base: str) -> None:
    """Ask the module for the cosines of one position, alone and beside a later one."""
    frequencies: Tensor = getattr(module, f"{layer}_inv_freq" if layer else "inv_freq")
    scale = getattr(module, f"{layer}_attention_scaling" if layer else "attention_scaling")
    if frequencies.is_meta:
        return
    states, named = frequencies.new_zeros(1, 2, 1), {"layer_type": layer} if layer else {}
    places = torch.tensor([[3, 1 << 20]], device=frequencies.device)
    cosines = module(states, places, **named)[0][0, 0].float()
    if not torch.allclose(cosines[: len(frequencies)], (3 * frequencies).cos() * scale, atol=1e-5):
        raise UnsupportedModel(
            f"the base {base} computes its positions in a way of its own ({type(module).__name__}), so they cannot be "
            "those of the engine. Train another base."
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
