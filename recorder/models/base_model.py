"""`read_base_model`: everything that a base model's own files say about it, as one value.

    model = read_base_model(folder)                        # a folder with weights: sizes from the files' headers
    model = read_base_model(folder, needs_weights=False)   # config.json alone: sizes from its shapes
    model = read_base_model(shipped_folder("Qwen3-8B"), needs_weights=False)

`ModelProfile` says the family and architecture, the context, each layer's kind, heads, experts, sizes of parts in
parameters and bytes, and the parsers of tool calls and thinking. What is not known is None (or an `unknown` layer),
never a guess. Raises `BaseInvalid` for what is no base, with the sentence of `recorder.models.refusals`.

Pure Python, and fast: it reads JSON and headers, no weights. Refuses: loading a model, and memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder.models.chat_template import RenderedTemplate, read_chat_template, special_tokens
from recorder.models.context import context_length, default_context_length
from recorder.models.families import FAMILIES, LayerKind, ModelConfig, layer_kinds, text_config
from recorder.models.media import architecture_of, read_media
from recorder.models.parsers import ParserChoice, choose_reasoning_parser, choose_tool_parser
from recorder.models.refusals import load_config, refuse_folder, refuse_name
from recorder.models.shapes import head_size, kv_heads, tensor_shapes
from recorder.models.shipped_configs import shipped_parsers
from recorder.models.weights import (
    DTYPE_BYTES,
    PartSizes,
    count,
    indexed_bytes,
    quantization_method,
    stored_tensors,
    sum_parts,
)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts. `count`: of a layer; `active`: for each token; `shared`: always active, beside them."""

    count: int
    active: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What a model's files say. Sizes are in tokens, parameters or bytes; None: the files do not say it."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    """The whole config.json."""
    text: ModelConfig
    """Its part for the language model, with the family's defaults filled in."""
    family: str
    """`model_type` of the language model, such as `qwen3`."""
    architecture: str | None
    """The first of `architectures`, such as `Qwen3ForCausalLM`."""
    is_known: bool
    """Whether Hone knows the family. If not, there are no shapes, and layers may be `unknown`."""
    context_length: int | None
    """The longest `--max-model-len` that vLLM accepts."""
    default_context_length: int | None
    """What vLLM takes without the flag; shorter than `context_length` with longrope."""
    layers: tuple[LayerKind, ...]
    """What each layer keeps of the past: `full`, `sliding`, `chunked`, `linear` (a state), or `unknown`."""
    sliding_window: int | None
    """Tokens that a `sliding` layer sees; None if no layer is one."""
    chunk_length: int | None
    """Tokens of the chunks of a `chunked` layer; None if no layer is one."""
    has_attention_sinks: bool
    attention_soft_cap: float | None
    logit_soft_cap: float | None
    experts: Experts | None
    """None for a dense model."""
    is_head_tied: bool | None
    """Whether the output head is the embedding. It then counts once, as embedding."""
    hidden_size: int | None
    vocab_size: int | None
    head_count: int | None
    kv_head_count: int | None
    head_size: int | None
    dtype: str | None
    """The dtype of the weights, such as `bfloat16`."""
    quantization: str | None
    """The method, if the weights are quantised."""
    media: tuple[str, ...]
    """What it reads beside text: `vision`, `audio`, `video`."""
    parameters: PartSizes | None
    """Parameters of each part of the loaded model."""
    parameter_bytes: PartSizes | None
    """Bytes of each part, in the dtype of the files."""
    has_weights: bool
    """Whether the sizes are those of files; else their sum is the index's, or they follow from the configuration."""
    has_chat_template: bool
    tool_parser: ParserChoice
    reasoning_parser: ParserChoice

    @property
    def active_parameters(self) -> int | None:
        """Parameters that one token passes through: all but the experts that it does not choose."""
        if self.parameters is None:
            return None
        if self.experts is None:
            return self.parameters.total
        idle = self.parameters.experts * (self.experts.count - self.experts.active) // self.experts.count
        return self.parameters.total - idle

    def kv_cache_bytes(self, tokens: int, *, element_bytes: int) -> int | None:
        """The bytes that keys and values of one sequence of this length take; None if a layer or a head is unknown.

        `element_bytes`: 2 for bfloat16, 4 for float32. Layers with a state count nothing.
        """
        if self.kv_head_count is None or self.head_size is None or "unknown" in self.layers:
            return None
        seen = {
            "full": tokens,
            "sliding": min(tokens, self.sliding_window or tokens),
            "chunked": min(tokens, self.chunk_length or tokens),
            "linear": 0,
        }
        positions = sum(seen[kind] for kind in self.layers)
        return 2 * positions * self.kv_head_count * self.head_size * element_bytes


def read_base_model(folder: Path | str, *, name: str | None = None, needs_weights: bool = True) -> ModelProfile:
    """Read a model's folder. `name`: how messages name it [the folder].

    With `needs_weights` all files of its weights have to be there; without, config.json is enough.
    Raises `BaseInvalid`.
    """
    folder, name = Path(folder), name or str(folder)
    refusal = refuse_name(name) or refuse_name(str(folder))
    refusal = refusal or refuse_folder(name, folder, needs_weights=needs_weights)
    if refusal is not None:
        raise refusal.error()
    config = load_config(folder)
    text = text_config(config)
    family = str(text.get("model_type") or config.get("model_type") or "")
    layers = layer_kinds(text)
    parameters, sizes, has_weights = _sizes(folder, config, text)
    template = _template(folder)
    parsers = shipped_parsers(folder)
    return ModelProfile(
        name=name,
        folder=folder,
        config=config,
        text=text,
        family=family,
        architecture=architecture_of(config) or None,
        is_known=family in FAMILIES,
        context_length=context_length(text),
        default_context_length=default_context_length(text),
        layers=layers,
        sliding_window=_whole(text.get("sliding_window")) if "sliding" in layers else None,
        chunk_length=_whole(text.get("attention_chunk_size")) if "chunked" in layers else None,
        has_attention_sinks=family in FAMILIES and FAMILIES[family].has_sinks,
        attention_soft_cap=_number(text.get("attn_logit_softcapping")),
        logit_soft_cap=_number(text.get("final_logit_softcapping")),
        experts=_experts(text),
        is_head_tied=text["tie_word_embeddings"] if isinstance(text.get("tie_word_embeddings"), bool) else None,
        hidden_size=_whole(text.get("hidden_size")),
        vocab_size=_whole(text.get("vocab_size")),
        head_count=_whole(text.get("num_attention_heads")),
        kv_head_count=_kv_heads(text),
        head_size=_head_size(text),
        dtype=_dtype(text),
        quantization=quantization_method(config),
        media=read_media(config),
        parameters=parameters,
        parameter_bytes=sizes,
        has_weights=has_weights,
        has_chat_template=template is not None or parsers is not None,
        tool_parser=parsers[0] if parsers else choose_tool_parser(family, template),
        reasoning_parser=parsers[1] if parsers else choose_reasoning_parser(family, template),
    )


def _sizes(folder: Path, config: ModelConfig, text: ModelConfig) -> tuple[PartSizes | None, PartSizes | None, bool]:
    """Parameters and bytes of each part, and whether they are those of files."""
    try:
        shapes = tensor_shapes(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        shapes = None
    computed = sum_parts({name: count(shape) for name, shape in shapes.items()}) if shapes else None
    try:
        stored = stored_tensors(folder)
    except (OSError, ValueError):
        stored = {}
    if not stored:
        return computed, _sizes_without_files(folder, computed, DTYPE_BYTES.get(_dtype(text) or "")), False
    if text.get("tie_word_embeddings"):  # some files hold the head too
        stored = {name: one for name, one in stored.items() if "lm_head" not in name}
    sizes = sum_parts({name: one.size_bytes for name, one in stored.items()})
    if config.get("quantization_config"):  # packed: a stored number is no parameter
        return computed, sizes, True
    return sum_parts({name: count(one.shape) for name, one in stored.items()}), sizes, True


def _sizes_without_files(folder: Path, computed: PartSizes | None, each: float | None) -> PartSizes | None:
    """Bytes of each part: of the index's total, divided as the parameters are; else with `each` for a parameter."""
    total = indexed_bytes(folder)
    if total is not None and computed is None:
        return PartSizes(other=total)
    factor = total / computed.total if total is not None and computed is not None else each
    return computed.times(factor) if computed is not None and factor is not None else None


def _template(folder: Path) -> RenderedTemplate | None:
    source = read_chat_template(folder)
    return RenderedTemplate(source, special_tokens(folder)) if source is not None else None


def _experts(text: ModelConfig) -> Experts | None:
    if _has_no_expert_layer(text):
        return None
    keys = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    total = next((found for key in keys if (found := _whole(text.get(key)))), None)
    active = _whole(text.get("num_experts_per_tok")) or _whole(text.get("experts_per_token"))
    if total is None or active is None:
        return None
    shared = _whole(text.get("n_shared_experts")) or int(bool(text.get("shared_expert_intermediate_size")))
    return Experts(total, active, shared)


def _has_no_expert_layer(text: ModelConfig) -> bool:
    """Whether the layers are listed and none has experts: Nemotron-H's configuration names experts all the same."""
    kinds, pattern = text.get("layers_block_type"), text.get("hybrid_override_pattern")
    if isinstance(kinds, list):
        return "moe" not in kinds
    return isinstance(pattern, str) and "E" not in pattern


def _kv_heads(text: ModelConfig) -> int | None:
    try:
        return kv_heads(text)
    except (KeyError, TypeError, ValueError):
        return None


def _head_size(text: ModelConfig) -> int | None:
    try:
        return head_size(text)
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def _dtype(text: ModelConfig) -> str | None:
    found = text.get("dtype") or text.get("torch_dtype")
    return str(found).removeprefix("torch.") if isinstance(found, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
