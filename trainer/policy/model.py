"""The policy in the trainer: the frozen base, its LoRA, and the hidden states of a pack.

Owns: loading the base and an adapter's weights, dtype and device, and the check at start that its logprobs equal the
model's own. Refuses: losses, the layout of files (`trainer.artifacts.adapters`), optimizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import snapshot_download
from numpy.typing import NDArray
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging as transformers_logging

from trainer.batch.packing import Pack, pack
from trainer.batch.recorded_text import Decode
from trainer.errors import AdapterInvalid, TrainerError, UnsupportedModel
from trainer.policy import attention
from trainer.settings import TrainerSettings

_OWN = "eager"  # the model's own attention: slow, and complete
_ADAPTER = ".default."  # peft puts its adapter's name into the parameters' names; files have none
ROOM = "Leave the trainer more beside the engine (engine.kv_cache_bytes)"
# Largest difference between packed and separate rows, relative to the largest hidden state: rounding is far below,
# a row that sees another is far above.
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
# The files of a hub repository, without the same weights in other formats.
_TOKENIZERS = ("tokenizer.json", "vocab*", "*.model", "tekken.json", "*.tiktoken")
_NEEDED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")


class Policy:
    """A base with one LoRA. Not thread-safe: one thread owns it."""

    def __init__(self, model: PeftModel, base: str, settings: TrainerSettings) -> None:
        self.base = base
        self._model = model
        self._causal: PreTrainedModel = model.get_base_model()
        self._decoder: nn.Module = self._causal.get_decoder()
        self._parameters = {
            name.replace(_ADAPTER, "."): parameter
            for name, parameter in sorted(model.named_parameters())
            if parameter.requires_grad
        }
        self._initial = self.state()
        self.alone = True  # one row a pass, unless packed rows are found to give the same results
        self.device = self._causal.device
        self.config: LoraConfig = model.peft_config["default"]
        self._checkpointing = _wants_checkpointing(settings, self.device)
        self._prepare()
        self._choose_attention()

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The trained parameters (float32), by their name in an adapter's file, sorted."""
        return self._parameters

    @property
    def modules(self) -> tuple[str, ...]:
        """The last parts of the names of the modules that have a LoRA (q_proj, down_proj …), sorted."""
        return tuple(sorted({name.split(".lora_")[0].rsplit(".", 1)[1] for name in self._parameters}))

    def state(self) -> dict[str, Tensor]:
        """A copy of the LoRA's weights on the CPU, as an adapter's file holds them."""
        return {name: parameter.detach().cpu().clone() for name, parameter in self._parameters.items()}

    def load_state(self, state: Mapping[str, Tensor] | None) -> None:
        """Load an adapter's weights; None: the untrained LoRA, which equals the base.

        Raises `AdapterInvalid` if names or shapes differ from this base and these settings.
        """
        state = self._initial if state is None else state
        expected = {name: tuple(parameter.shape) for name, parameter in self._parameters.items()}
        found = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if found != expected:
            raise AdapterInvalid(_difference(expected, found))
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(state[name])

    def hidden(self, one: Pack) -> Tensor:
        """Return the last hidden states of a pack's tokens, shape (tokens, hidden), the base's dtype."""
        arguments: dict[str, Any] = {} if self.alone else {"segments": one.segments}
        dtype = self._causal.dtype
        # On a base in bfloat16 the LoRA computes in bfloat16, as in an engine; what is trained stays float32.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            states: Tensor = self._decoder(
                input_ids=torch.from_numpy(one.token_ids.astype(np.int64))[None].to(self.device),
                position_ids=torch.from_numpy(one.position_ids)[None].to(self.device),
                use_cache=False,
                **arguments,
            ).last_hidden_state
        return states[0].to(dtype)

    def head(self, states: Tensor) -> Tensor:
        """Return the logits of hidden states (n, hidden) → (n, vocabulary), with the model's own post-processing."""
        head = self._causal.get_output_embeddings()
        logits: Tensor = head(states)
        config = self._causal.config.get_text_config()
        logits = logits * float(getattr(config, "logit_scale", None) or 1.0)
        logits = logits / float(getattr(config, "logits_scaling", None) or 1.0)
        cap = getattr(config, "final_logit_softcapping", None)
        return logits if cap is None else torch.tanh(logits / cap) * cap

    @contextmanager
    def base_only(self) -> Iterator[None]:
        """Within: the base without the adapter, without gradients."""
        with self._model.disable_adapter(), torch.no_grad():
            yield

    def _prepare(self) -> None:
        for module in self._causal.modules():
            # logprobs must not be random
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.0
            if isinstance(module, BaseTunerLayer):
                module.cast_input_dtype_enabled = False  # peft would make every LoRA's input float32: see `hidden`
        if self._checkpointing:
            # nothing is random, so no layer needs to keep the random state
            how = {"use_reentrant": False, "preserve_rng_state": False}
            self._causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
        # transformers checkpoints only in training mode; nothing else depends on it without dropout
        self._model.train(self._checkpointing)

    def _attend(self, implementation: str) -> None:
        self._causal.set_attn_implementation(implementation)

    @torch.no_grad()
    def _choose_attention(self) -> None:
        """Choose the fastest attention whose logits equal the model's own, on rows with a shared prefix."""
        rows = _trial_rows(self._causal.config.get_text_config().vocab_size)
        self._attend(_OWN)
        expected = [self._own_logits(row) for row in rows]
        for implementation in _attentions(self._causal.config):
            if self._reproduces(implementation, rows, expected):
                return
        raise UnsupportedModel(
            f"the base {self.base} computes its logits in a way that the trainer does not know: its own forward "
            "pass and the trainer's differ. Train another base, or report the model."
        )

    def _own_logits(self, row: NDArray[np.int64]) -> Tensor:
        """The base's logits by its own forward pass."""
        with self.base_only():
            output = self._causal(input_ids=torch.from_numpy(row)[None].to(self.device), use_cache=False)
        logits: Tensor = output.logits[0].float()
        return logits

    def _reproduces(self, implementation: str, rows: list[Any], expected: list[Tensor]) -> bool:
        self.alone = implementation != attention.NAME
        packs = pack([row.astype(np.int32) for row in rows], sum(map(len, rows)), alone=self.alone)
        try:
            self._attend(implementation)
            for one in packs:
                logits = self.head(self.hidden(one)).float()
                for row, places in zip(one.rows, one.places, strict=True):
                    if not self._near(logits[torch.from_numpy(places).to(self.device)], expected[row]):
                        return False
        except (UnsupportedModel, TypeError, ValueError):  # the model does not support it, or does not pass `segments`
            if implementation == _OWN:
                raise
            return False
        return True

    def _near(self, found: Tensor, expected: Tensor) -> bool:
        scale = expected.abs().max().clamp(min=1e-6)
        return bool(((found - expected).abs().max() / scale) < _TOLERANCE[self._causal.dtype])


def resolve_base(base: str) -> Path:
    """The folder of a base: a folder as it is, or a hub id, downloaded or found in the hub's cache."""
    if Path(base).is_dir():
        return Path(base).resolve()
    try:
        return Path(snapshot_download(base, allow_patterns=list(_NEEDED)))
    except (OSError, ValueError) as e:
        raise TrainerError(f"the base {base!r} is not a folder, and cannot be downloaded from the hub: {e}") from e


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


def load_policy(base: Path, settings: TrainerSettings) -> Policy:
    """Load a base from a folder and add a LoRA with reproducible initial weights (`settings.seed`)."""
    attention.register_attention()
    transformers_logging.disable_progress_bar()
    device = choose_device(settings)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            base, dtype=choose_dtype(settings), attn_implementation=_OWN, local_files_only=True
        )
    except (OSError, ValueError, SafetensorError) as e:
        raise TrainerError(f"cannot load the base model from {base}: {e}") from e
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=settings.target if settings.target == "all-linear" else list(settings.target),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):  # restores the CPU's generator, which draws the weights
        torch.manual_seed(settings.seed)
        try:
            adapted = get_peft_model(model, config)  # on the CPU: the initial weights must not depend on the device
        except ValueError as e:
            raise TrainerError(f"trainer.target {settings.target!r} does not fit the base {base}: {e}") from e
    try:
        return Policy(adapted.to(device), str(base), settings)
    except torch.OutOfMemoryError as e:
        raise TrainerError(f"the base {base} does not fit into the GPU's free memory. {ROOM}: {e}") from e


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


def _wants_checkpointing(settings: TrainerSettings, device: torch.device) -> bool:
    if settings.gradient_checkpointing == "auto":
        return device.type == "cuda"
    return settings.gradient_checkpointing


def _attentions(config: Any) -> list[str]:
    """The attention implementations that may work for the model, the fastest first."""
    packed = [attention.NAME] if _all_attend_fully(config) else []
    # torch's kernel silently ignores a soft cap of the scores
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
    return [*packed, *([] if capped else ["sdpa"]), _OWN]


def _all_attend_fully(config: Any) -> bool:
    """Whether no layer has a window, a chunk or a recurrent state that would leak between packed rows."""
    text = config.get_text_config()
    return all(kind == "full_attention" for kind in getattr(text, "layer_types", None) or ())


def _trial_rows(vocabulary: int) -> list[NDArray[np.int64]]:
    random = np.random.default_rng(0)
    first = random.integers(0, vocabulary, 40)
    return [first, np.concatenate([first[:24], random.integers(0, vocabulary, 12)]), random.integers(0, vocabulary, 20)]


def _difference(expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]) -> str:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"the adapter has no tensor {name}, which this base and trainer.target require"
        if name not in expected:
            return f"the adapter's tensor {name} fits no module that trainer.target selects in this base"
        if expected[name] != found[name]:
            return (
                f"the adapter's tensor {name} has shape {found[name]}, not {expected[name]}: "
                "was trainer.rank or the base changed? A version's descendants keep its rank."
            )
    raise AssertionError("equal")
