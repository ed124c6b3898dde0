"""Load a base model and put a LoRA on it: folder or hub id, dtype, device, and what cannot be trained.

Owns: refusing bases and `trainer.target`s that cannot work, with what to set. Refuses: the forward pass
(`trainer.policy.model`) and the check of its logprobs (`trainer.policy.startup_check`).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from recorder.models.experts import explain_shares
from recorder.models.families import text_config as text_part_of
from recorder.models.media import text_part
from recorder.models.refusals import (
    load_generation_config,
    refuse_folder,
    refuse_missing,
    refuse_name,
    refuse_scaled_queries,
)
from trainer.batch.recorded_text import Decode
from trainer.errors import MemoryFull, TrainerError, UnsupportedModel
from trainer.lora.expert_layer import is_transposed, use_own_experts
from trainer.lora.peft_library import LoraConfig, PeftModel, get_peft_model, transformers_weight_conversion
from trainer.lora.targets import choose_targets, measure_shares
from trainer.policy import memory, positions, startup_check
from trainer.policy.attention import interface as attention
from trainer.policy.model import Policy, decoder_of
from trainer.policy.text_model import load_text_model, text_config
from trainer.quantization import copy_gap
from trainer.quantization.layers import explain_quantized, quantize_layers, require_plain_weights
from trainer.ranks.base_shares import shard_base
from trainer.ranks.group import ONE_RANK, Ranks
from trainer.settings import TrainerSettings

# What transformers and PEFT raise of a model whose classes or packages do not fit together.
_FOREIGN: Final = (AttributeError, ImportError, NotImplementedError, TypeError)
ROOM: Final = "Leave the trainer more beside the engine (engine.kv_cache_bytes)"
_TOKENIZERS: Final = ("tokenizer.json", "vocab*", "*.model", "tekken.json", "*.tiktoken")
# The files of a hub repository, without the same weights in other formats.
_NEEDED: Final = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")


def resolve_base(base: str) -> Path:
    """Return the folder of a base: a folder as it is, or a hub id, downloaded or found in the hub's cache.

    Raises `TrainerError` if there is none, and `UnsupportedModel` for what is no base (`recorder.models.refusals`).
    """
    if (refusal := refuse_name(base) or refuse_missing(base)) is not None:
        raise UnsupportedModel(f"{refusal.found} {refusal.todo}")
    if Path(base).is_dir():
        folder = Path(base).resolve()
    else:
        try:
            folder = Path(snapshot_download(base, allow_patterns=list(_NEEDED)))
        except (OSError, ValueError) as e:
            raise TrainerError(f"the base {base!r} is not a folder, and cannot be downloaded from the hub: {e}") from e
    if (refusal := refuse_folder(base, folder)) is not None:
        raise UnsupportedModel(f"{refusal.found} {refusal.todo}")
    return folder


def read_config(base: Path) -> Mapping[str, Any]:
    """Return a base's config.json; empty if it cannot be read."""
    try:
        found = json.loads((base / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def load_decoder(base: Path) -> Decode | None:
    """Return how the base's tokenizer decodes ids, with and without special tokens; None if the base has none."""
    if not any(True for pattern in _TOKENIZERS for _ in base.glob(pattern)):
        return None  # transformers would make one without a vocabulary
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(base, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError):
        return None

    def decode(ids: Sequence[int]) -> list[str]:
        return [tokenizer.decode(list(ids), skip_special_tokens=skip) for skip in (True, False)]

    return decode


def load_policy(base: Path, settings: TrainerSettings, ranks: Ranks = ONE_RANK) -> Policy:
    """Load a base from a folder and add a LoRA with reproducible initial weights (`settings.seed`).

    All ranks of a trainer call it; those of one machine load the base one after another.
    """
    attention.register_attention()
    transformers_logging.disable_progress_bar()
    device = choose_device(settings)
    memory.use_expandable_segments(device)
    policy = ranks.in_turn(lambda: _load_unchecked(base, settings, device, ranks))
    check = (
        f"the base {base} leaves too little memory for the rows of the start-up check, which are at most "
        f"trainer.token_budget ({settings.token_budget}) tokens long: lower it"
    )
    with memory_errors(check, device):
        try:
            ranks.together(lambda: startup_check.choose_attention(policy, settings.token_budget))
        except (*_FOREIGN, ValueError) as e:
            raise _unsupported(base, e) from e
    return policy


def _load_unchecked(base: Path, settings: TrainerSettings, device: torch.device, ranks: Ranks) -> Policy:
    part = _text_part(base)
    require_plain_weights(str(base), read_config(base), settings.quantize)
    try:
        config = AutoConfig.from_pretrained(base, local_files_only=True)
        positions.require_fixed_positions(config, str(base), settings.max_model_len)
        model = load_text_model(base, config, choose_dtype(settings))
    except (OSError, ValueError, KeyError, SafetensorError) as e:  # KeyError: transformers, of a configuration
        raise TrainerError(f"cannot load the base model from {base}: {_first_line(e)}") from e
    except _FOREIGN as e:
        raise _unsupported(base, e) from e
    fix_engine_choices(model, config, base, settings.max_model_len)
    architecture = first_architecture(read_config(base))
    with memory_errors(f"the base {base} does not fit into memory", device):
        copied = _quantize(model, base, device) if settings.quantize else None
        adapted = add_lora(model, base, settings, architecture)  # PEFT draws initial weights on the CPU on any device
        if ranks.is_sharded:
            shard_base(adapted.get_base_model(), decoder_of(adapted.get_base_model()), device, str(base))
        else:
            adapted = adapted.to(device)
        policy = Policy(adapted, str(base), settings, part, ranks)
    policy.copied = copied
    return policy


def fix_engine_choices(model: PreTrainedModel, config: Any, base: Path, max_model_len: int | None) -> None:
    """Let a model compute what the engine computes with its context. `config`: transformers', of the whole base.

    Raises `UnsupportedModel`.
    """
    stored = read_config(base)
    if (refusal := refuse_scaled_queries(str(base), stored, max_model_len)) is not None:
        raise UnsupportedModel(f"{refusal.found} {refusal.todo}")
    positions.fix_positions(model, config, str(base), max_model_len)
    positions.fix_query_scale(model, text_part_of(stored), load_generation_config(base), max_model_len)


def _quantize(model: PreTrainedModel, base: Path, device: torch.device) -> copy_gap.CopyLogprobs | None:
    """Quantise a model that was loaded on the CPU; return the logprobs of both after the fixed text.

    None for a base without a tokenizer.
    """
    prompt = copy_gap.fixed_prompt(base)
    own = copy_gap.named_logprobs(model, prompt) if prompt else ()
    quantize_layers(model, device)
    model.to(device)
    return copy_gap.CopyLogprobs(own, copy_gap.named_logprobs(model, prompt)) if prompt else None


def _text_part(base: Path) -> str:
    if (part := text_part(read_config(base))) is None:
        raise UnsupportedModel(
            f"the base {base} reads more than text, and Hone does not know how engines name the LoRA of its language "
            "model. Train a base that reads text alone."
        )
    return part


def _unsupported(base: Path, error: Exception) -> UnsupportedModel:
    """An error of the libraries, of a model that they cannot compute, in one sentence."""
    return UnsupportedModel(
        f"the base {base} cannot be trained with the installed transformers and PEFT ({type(error).__name__}: "
        f"{_first_line(error).partition('. ')[0]}). Train another base, or report the model."
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")


@contextmanager
def memory_errors(what: str, device: torch.device) -> Iterator[None]:
    """Report a full memory within as `MemoryFull`."""
    try:
        yield
    except (RuntimeError, MemoryError) as e:
        if not memory.is_out_of_memory(e):
            raise
        raise MemoryFull(f"{what} ({memory.free_memory(device)}). {ROOM}: {e}") from e


def add_lora(model: PreTrainedModel, base: Path, settings: TrainerSettings, architecture: str | None) -> PeftModel:
    """Put the LoRA of `settings` on a model. `base`: its name in errors; `architecture`: the first of config.json's.

    Raises `TrainerError`.
    """
    adapted = add_plain_lora(model, base, settings, architecture)
    use_own_experts(adapted)
    return adapted


def add_plain_lora(
    model: PreTrainedModel, base: Path, settings: TrainerSettings, architecture: str | None
) -> PeftModel:
    """The same with PEFT's own forward pass of experts."""
    targets = choose_targets(model, settings.target, architecture, str(base))
    for name in targets.experts:
        experts = model.get_submodule(name)
        experts.is_transposed = is_transposed(experts)  # PEFT asks for it, and Llama 4 does not say it
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=list(targets.modules),
        target_parameters=list(targets.parameters) or None,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):  # restores the CPU's generator, which draws the weights
        torch.manual_seed(settings.seed)
        try:
            with warnings.catch_warnings(), exact_targets():
                warnings.simplefilter(
                    "ignore"
                )  # PEFT's doubts about a target: what cannot be served is refused by name
                return get_peft_model(model, config)
        except ValueError as e:
            raise TrainerError(f"trainer.target {settings.target!r} does not fit the base {base}: {e}") from e


@contextmanager
def exact_targets() -> Iterator[None]:
    """Within: PEFT takes targets as they are named.

    For mixtures, it would read `shared_expert.up_proj` as the experts' `gate_up_proj` and give that twice the rank, as
    adapters made with transformers before 5 need it.
    """
    kept = transformers_weight_conversion.convert_peft_config_for_transformers
    transformers_weight_conversion.convert_peft_config_for_transformers = lambda *_args, **_named: None
    try:
        yield
    finally:
        transformers_weight_conversion.convert_peft_config_for_transformers = kept


def explain_target(base: Path, settings: TrainerSettings) -> str:
    """Which share of a base's weights `trainer.target` adapts, in one sentence, and which one `trainer.quantize`
    quantises. Reads config.json and no weights.

    Raises `TrainerError`.
    """
    require_plain_weights(str(base), read_config(base), settings.quantize)
    try:
        config = AutoConfig.from_pretrained(base, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(text_config(config))
    except (OSError, ValueError, KeyError) as e:
        raise TrainerError(f"cannot read the configuration of the base model {base}: {e}") from e
    targets = choose_targets(model, settings.target, first_architecture(read_config(base)), str(base))
    adapted = explain_shares(measure_shares(model, targets), json.dumps(settings.target))
    return f"{adapted} {explain_quantized(model, settings.quantize)}" if settings.quantize else adapted


def first_architecture(config: Mapping[str, Any]) -> str | None:
    """The class that config.json names for the model; an engine serves that one."""
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else None


def choose_device(settings: TrainerSettings) -> torch.device:
    """The device to train on. Raises `TrainerError` if that is a GPU and torch finds none."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise TrainerError(
            f"trainer.device is cuda, and torch {torch.__version__} sees no GPU: install its CUDA build "
            "(pip install 'hone-proxy[cuda]'), check the driver, or train on the CPU."
        )
    if settings.device != "auto":
        return torch.device(settings.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose_dtype(settings: TrainerSettings) -> torch.dtype:
    """The dtype of the base's weights."""
    if settings.dtype != "auto":
        return torch.float32 if settings.dtype == "float32" else torch.bfloat16
    return torch.bfloat16 if choose_device(settings).type == "cuda" else torch.float32


def dtype_name(settings: TrainerSettings) -> str:
    """The dtype as the base's fingerprint names it."""
    return str(choose_dtype(settings)).removeprefix("torch.")
