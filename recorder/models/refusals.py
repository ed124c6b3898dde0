"""What cannot be a base model, in one sentence for each fault: the same from `hone init`, `doctor`, `plan` and `up`.

Refuses: memory (`hone plan` computes it), and families (`recorder.models.served_families`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.errors import BaseInvalid
from recorder.models.context import CONTEXT_FLAG, default_context_length, scaled_from, stated_context
from recorder.models.families import text_config
from recorder.models.media import TEXT_PARTS, architecture_of, read_media, text_part
from recorder.models.weights import DEQUANTIZED, missing_weights, quantization_method, stored_tensors, weight_files

# With these, vLLM's longest context is not the one of config.json.
_OWN_CONTEXT: Final = ("--hf-overrides", "--rope-scaling")
_LONG_CONTEXT: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
ADAPTER_CONFIG: Final = "adapter_config.json"  # PEFT's name
# vLLM's classes without `SupportsLoRA` (0.32, `models/mamba.py`, `mamba2.py`), whose layers are all Mamba.
_WITHOUT_LORA: Final = frozenset({"FalconMambaForCausalLM", "Mamba2ForCausalLM", "MambaForCausalLM"})
_MODEL_FOLDER: Final = "the model's folder with config.json and *.safetensors, or its Hugging Face id"


@dataclass(frozen=True, slots=True)
class BaseRefusal:
    """Why something is no base model: what was found, and what to do about it."""

    found: str
    todo: str

    def error(self) -> BaseInvalid:
        """The same as an error."""
        return BaseInvalid(f"{self.found} {self.todo}")


def find_adapter(base: str, folder: Path) -> BaseRefusal | None:
    """Whether the folder of a base holds an adapter. Programs that load it load another model, without a word.

    `base`: as the settings name it.
    """
    path = folder / ADAPTER_CONFIG
    if not path.is_file():
        return None
    try:
        named = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError):
        named = None
    return BaseRefusal(
        f"the base {base!r} holds an adapter ({ADAPTER_CONFIG}), and new versions are trained on a model without one.",
        f"Set engine.base and trainer.base to the adapter's own base{f' ({named})' if named else ''}, or merge the "
        "adapter into it and use the merged model.",
    )


def refuse_name(base: str) -> BaseRefusal | None:
    """The refusal of a base that is no folder: a GGUF file or repository, or another file. None for a hub id."""
    path = Path(base)
    if base.lower().endswith("gguf") and not path.is_dir():
        return _gguf(base)
    if path.is_file():
        return BaseRefusal(f"the base {base!r} is a file, and a base is a folder.", f"Name {_MODEL_FOLDER}.")
    return None


def refuse_missing(base: str) -> BaseRefusal | None:
    """The refusal of a path that is not here: a path is never downloaded. A remote engine may see it nevertheless."""
    if not base.startswith("/") or Path(base).exists():
        return None
    return BaseRefusal(f"the folder {base} does not exist.", "Use an existing folder, or a Hugging Face id.")


def refuse_folder(base: str, folder: Path, *, needs_weights: bool = True) -> BaseRefusal | None:
    """The refusal of a base's folder: an adapter, GGUF files, no usable config.json, a language model or weights that
    cannot be trained, weights that are not all there.

    `needs_weights`: False where only config.json has to be read.
    """
    if (adapter := find_adapter(base, folder)) is not None:
        return adapter
    if any(folder.glob("*.gguf")) and not weight_files(folder):
        return _gguf(base)
    if not (folder / "config.json").is_file():
        return BaseRefusal(f"the base {base!r} has no config.json, so it holds no model.", f"Name {_MODEL_FOLDER}.")
    try:
        config = load_config(folder)
    except (OSError, ValueError) as e:
        return BaseRefusal(f"config.json of the base {base!r} cannot be read: {e}.", "Download the model again.")
    if not config.get("architectures") and not config.get("model_type"):
        return BaseRefusal(
            f"config.json of the base {base!r} names no architecture, so it describes no model.",
            f"Name {_MODEL_FOLDER}.",
        )
    refusal = _refuse_media(base, config) or _refuse_mamba(base, config) or _refuse_quantization(base, config)
    if refusal is not None:
        return refusal
    return _refuse_weights(base, folder) if needs_weights else None


def _refuse_media(base: str, config: Mapping[str, Any]) -> BaseRefusal | None:
    if text_part(config) is not None:
        return None
    media, architecture = " and ".join(read_media(config)), architecture_of(config) or "without an architecture"
    return BaseRefusal(
        f"the base {base!r} ({architecture}) reads {media} beside text, and Hone does not know how engines name the "
        "LoRA of its language model.",
        f"Use a model that reads text alone, or one of {', '.join(sorted(TEXT_PARTS))}.",
    )


def _refuse_mamba(base: str, config: Mapping[str, Any]) -> BaseRefusal | None:
    if (architecture := architecture_of(config)) not in _WITHOUT_LORA:
        return None
    return BaseRefusal(
        f"the base {base!r} ({architecture}) has Mamba layers alone, and vLLM serves no LoRA on such a model.",
        "Use a hybrid with attention, such as Granite 4 or Falcon-H1, or another base.",
    )


def _refuse_quantization(base: str, config: Mapping[str, Any]) -> BaseRefusal | None:
    method = quantization_method(config)
    if method is None or method in DEQUANTIZED:
        return None
    return BaseRefusal(
        f"the base {base!r} has weights quantised by {method}, and the trainer reads only {' and '.join(DEQUANTIZED)}.",
        "Use the model that it was quantised from; vLLM can quantise that one while it loads "
        '(engine.args = ["--quantization", "fp8"]).',
    )


def _refuse_weights(base: str, folder: Path) -> BaseRefusal | None:
    if not weight_files(folder) and not missing_weights(folder):
        return BaseRefusal(f"the base {base!r} has no weights (*.safetensors).", "Download the whole model.")
    if missing := missing_weights(folder):
        files = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        return BaseRefusal(f"the base {base!r} lacks a part of its weights: {files}.", "Download the model again.")
    try:
        stored_tensors(folder)
    except (OSError, ValueError) as e:
        return BaseRefusal(f"the weights of the base {base!r} cannot be read: {e}.", "Download the model again.")
    return None


def refuse_context(base: str, longest: int | None, tokens: int | None, setting: str) -> BaseRefusal | None:
    """The refusal of a context (in tokens) beyond the model's; None where it fits or one of the two is not known."""
    if longest is None or tokens is None or tokens <= longest:
        return None
    return BaseRefusal(
        f"{setting} is {tokens}, and the model {base!r} has a context of {longest} tokens.",
        f"Set {setting} to {longest} or less, or remove it.",
    )


def refuse_engine_context(
    base: str, longest: int | None, max_model_len: int | None, args: Sequence[str], env: Mapping[str, str]
) -> BaseRefusal | None:
    """The refusal of the context of an engine with these settings. `args` and `env`: vLLM's arguments and environment.

    None also where they say that the context is not the one of config.json.
    """
    allowed = {**os.environ, **env}.get(_LONG_CONTEXT, "0") not in ("", "0")
    if allowed or any(argument.partition("=")[0] in _OWN_CONTEXT for argument in args):
        return None
    flag = stated_context(None, args)
    if flag is not None:  # it comes last, and so takes precedence
        return refuse_context(base, longest, flag, f"{CONTEXT_FLAG} in engine.args")
    return refuse_context(base, longest, max_model_len, "engine.max_model_len")


def refuse_scaled_queries(base: str, config: Mapping[str, Any], max_model_len: int | None) -> BaseRefusal | None:
    """The refusal of a context in which the engine and transformers compute attention differently (Ministral 3).

    `config`: config.json. `max_model_len`: the engine's context in tokens; None: its default.
    """
    text = text_config(config)
    longest, context = scaled_from(text), max_model_len or default_context_length(text)
    if longest is None or (context is not None and context <= longest):
        return None
    return BaseRefusal(
        f"the base {base!r} scales queries beyond {longest} tokens, which vLLM does not do, and the engine's context "
        f"is {context or 'not known'}.",
        f"Set engine.max_model_len to {longest} or less.",
    )


def load_generation_config(folder: Path) -> Mapping[str, Any]:
    """A folder's generation_config.json; empty if there is none that can be read, as in vLLM."""
    try:
        found = json.loads((folder / "generation_config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def load_config(folder: Path) -> dict[str, Any]:
    """A folder's config.json. Raises ValueError if it holds no JSON object, and OSError."""
    try:
        found = json.loads((folder / "config.json").read_text("utf-8"))
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e
    if not isinstance(found, dict):
        raise ValueError("it holds no JSON object")
    return found


def _gguf(base: str) -> BaseRefusal:
    return BaseRefusal(
        f"the base {base!r} is in the GGUF format, whose quantised weights cannot be trained.", f"Name {_MODEL_FOLDER}."
    )
