"""The policy in the trainer: the frozen base, its LoRA, and the hidden states of a pack.

Owns: the forward pass in every layout, an adapter's weights in memory, and running layers by the method of a pass.
Refuses: choosing layout and method (`trainer.policy.startup_check`, `trainer.policy.pass_method`), loading a base
(`trainer.policy.base_model`), losses, the layout of files (`trainer.artifacts.adapters`), optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from recorder.models.media import TEXT
from trainer.batch.layouts import Layout
from trainer.batch.packing import Pack
from trainer.errors import AdapterInvalid
from trainer.lora.peft_library import BaseTunerLayer, LoraConfig, PeftModel
from trainer.policy import recurrent
from trainer.policy.attention import interface as attention
from trainer.policy.pass_method import PassMethod, choose_method
from trainer.policy.tiles import TiledMlps
from trainer.quantization.copy_gap import CopyLogprobs
from trainer.ranks import base_shares
from trainer.ranks.group import ONE_RANK, Ranks
from trainer.settings import TrainerSettings

_PEFT = "base_model.model."  # peft's two classes around the model
_ADAPTER = ".default."  # peft puts its adapter's name into the parameters' names; files have none


class Policy:
    """A base with one LoRA. Not thread-safe: one thread owns it."""

    def __init__(
        self,
        model: PeftModel,
        base: str,
        settings: TrainerSettings,
        text_part: str = TEXT,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        """`text_part`: how an adapter's file names the modules with the layers (`recorder.models.media`)."""
        self.base = base
        self.ranks = ranks
        self._model = model
        self._causal: PreTrainedModel = model.get_base_model()
        self._decoder = decoder_of(self._causal)
        self._decode = base_shares.decoder_call(self._causal, self._decoder)
        self._parameters = {
            file_name(name, text_part): parameter
            for name, parameter in sorted(model.named_parameters())
            if parameter.requires_grad
        }
        self._initial = self.state()
        self.layout = Layout.ALONE  # unless rows together are found to give the same results
        self.unpacked_reason: str | None = None  # why rows share no prefixes, if so
        self.copied: CopyLogprobs | None = None  # of a quantised base and the base itself
        self.attention = "eager"  # how attention is computed, as transformers names it
        self.device = self._causal.device
        self.config: LoraConfig = model.peft_config["default"]
        self.model_config: Any = self._causal.config
        self.pass_budget = settings.token_budget  # tokens of a pass; less where those do not fit into memory
        self.can_recompute = bool(self._causal.supports_gradient_checkpointing)
        self.checked_tokens = settings.token_budget  # the longest row of the start-up check may have as many
        self.has_long_rows = False  # unless rows longer than a pass are found to give the same results
        self._settings = settings
        self._mlps = TiledMlps(self._decoder)
        self._method = PassMethod()
        self._recomputed: list[Any] = []  # what transformers recomputes
        self._prepare()
        if recurrent.shares_prefixes(self.model_config):
            recurrent.register_segments(self._decoder)

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The trained parameters (float32), by their name in an adapter's file, sorted."""
        return self._parameters

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the base's weights."""
        dtype: torch.dtype = self._causal.dtype
        return dtype

    @property
    def supports_sdpa(self) -> bool:
        """Whether transformers computes the model by torch's attention."""
        return bool(getattr(self._causal, "_supports_sdpa", False))

    @property
    def adapts_head(self) -> bool:
        """Whether the output head has a LoRA."""
        return isinstance(self._causal.get_output_embeddings(), BaseTunerLayer)

    @property
    def has_divisible_mlps(self) -> bool:
        """Whether every layer has an MLP that may run in tiles."""
        return self._mlps.in_every_layer

    @property
    def modules(self) -> tuple[str, ...]:
        """The last parts of the names of the modules that have a LoRA (q_proj, down_proj …), sorted."""
        return tuple(sorted({name.split(".lora_")[0].rsplit(".", 1)[1] for name in self._parameters}))

    @property
    def module(self) -> nn.Module:
        """Base and LoRA, for moving them between devices (`trainer.step.state.residence`)."""
        module: nn.Module = self._model
        return module

    def state(self) -> dict[str, Tensor]:
        """A copy of the LoRA's weights on the CPU, as an adapter's file holds them."""
        return {name: parameter.detach().cpu().clone() for name, parameter in self._parameters.items()}

    def load_state(self, state: Mapping[str, Tensor] | None) -> None:
        """Load an adapter's weights; None: the untrained LoRA, which equals the base.

        Raises `AdapterInvalid` if names or shapes differ from this base and these settings.
        """
        state = self._initial if state is None else state
        self.require_shapes(state)
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(state[name])

    def require_shapes(self, state: Mapping[str, Tensor]) -> None:
        """Raise `AdapterInvalid` if an adapter's names or shapes differ from this base and these settings."""
        expected = {name: tuple(parameter.shape) for name, parameter in self._parameters.items()}
        found = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if found != expected:
            raise AdapterInvalid(_difference(expected, found))

    def hidden(self, one: Pack) -> Tensor:
        """Return the last hidden states of a pack's tokens, shape (tokens, hidden), the base's dtype."""
        method = self._choose_method(len(one))
        arguments: dict[str, Any] = {}
        if self.layout is Layout.PACKED:
            arguments = {"segments": one.segments, "query_tile": method.tile}
        dtype = self._causal.dtype
        with self._autocast(), self._by(method):
            states = self._decode(
                input_ids=self._batch_of(one.token_ids, one.batch),
                position_ids=self._batch_of(one.position_ids, one.batch),
                use_cache=False,
                **arguments,
            )
        return states.flatten(0, 1).to(dtype)

    def end_pass(self) -> None:
        """Free what a pass gathered of weights that ranks share: after its backward pass, or its last logits."""
        base_shares.end_pass(self._causal)

    def reset_pass(self) -> None:
        """Forget a pass that failed half-way on all ranks alike."""
        base_shares.reset_pass(self._causal)

    def head(self, states: Tensor) -> Tensor:
        """Return the logits of hidden states (n, hidden) → (n, vocabulary), with the model's own post-processing."""
        head = self._causal.get_output_embeddings()
        logits: Tensor = head(states)
        config = self.model_config.get_text_config()
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
        if self.can_recompute:
            # from transformers 5.24 on by the first name; the other one warns there
            newer = getattr(self._causal, "activation_checkpointing_enable", None)
            (newer or self._causal.gradient_checkpointing_enable)({"use_reentrant": False})
            self._causal.disable_input_require_grads()  # needed by reentrant checkpoints alone
            self._recomputed = [one for one in self._causal.modules() if hasattr(one, "_gradient_checkpointing_func")]
            for module in self._recomputed:
                module._gradient_checkpointing_func = self._run_recomputed
        self._model.train(False)

    def _choose_method(self, tokens: int) -> PassMethod:
        budget = self.pass_budget if self.has_long_rows else tokens
        method = choose_method(tokens, budget, self.device.type, self._settings)
        return method if self.can_recompute else PassMethod()

    @contextmanager
    def _by(self, method: PassMethod) -> Iterator[None]:
        """Within: layers run by this method."""
        before, self._method = self._method, method
        try:
            self._set_recomputing(method.recompute)
            with self._mlps.tiles_of(method.tile):
                yield
        finally:
            self._method = before
            self._set_recomputing(before.recompute)

    def _set_recomputing(self, recomputing: bool) -> None:
        """transformers recomputes a layer only in training mode. What is in the layer stays out of it: there, routers
        draw random numbers (Phi MoE), and Mamba's kernel on a GPU takes weights without their LoRA.
        """
        for module in self._recomputed:
            module.training = recomputing

    def _run_recomputed(self, layer: Callable[..., Any], *inputs: Any) -> Any:
        """Run a layer, and run it again by the same method in the backward pass, after other passes' forward passes."""
        method = self._method

        def run(*given: Any) -> Any:
            with self._mlps.tiles_of(method.tile):
                return layer(*given)

        # The inputs are saved under these hooks; what the layer itself saves is dropped until it runs again.
        with save_on_cpu(pin_memory=self.device.type == "cuda") if method.offload else nullcontext():
            # nothing is random, so no layer needs to keep the random state
            return checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=False)

    def set_attention(self, implementation: str, layout: Layout | None = None) -> None:
        """Compute attention with this implementation: `hone_packed`, or one of transformers' own.

        `layout`: how rows share a pass; None: packed for `hone_packed`, and one row a pass for any other.
        """
        own = Layout.PACKED if implementation == attention.NAME else Layout.ALONE
        self.layout, self.attention = layout or own, implementation
        self._causal.set_attn_implementation(implementation)

    @torch.no_grad()
    def own_logits(self, row: NDArray[np.int32]) -> Tensor:
        """Return the logits of one row by the model's own forward pass with its LoRA: (tokens, vocabulary), float32."""
        with self._autocast():
            logits: Tensor = self._causal(input_ids=self._batch_of(row), use_cache=False).logits
        return logits[0].float()

    @torch.no_grad()
    def own_hidden(self, row: NDArray[np.int32]) -> Tensor:
        """Return the last hidden states of one row by the model's own forward pass: (tokens, hidden), float32."""
        with self._autocast():
            states = self._decode(input_ids=self._batch_of(row), use_cache=False)
        return states[0].float()

    def _batch_of(self, flat: NDArray[np.integer], batch: int = 1) -> Tensor:
        return torch.from_numpy(flat.astype(np.int64)).reshape(batch, -1).to(self.device)

    def _autocast(self) -> torch.autocast:
        """On a base in bfloat16 the LoRA computes in bfloat16, as in an engine; what is trained stays float32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._causal.dtype == torch.bfloat16)


def decoder_of(causal: PreTrainedModel) -> nn.Module:
    """The model without its head. Transformers finds none in a model whose prefix names another class (Llama 4)."""
    found: nn.Module = causal.get_decoder()
    return causal.get_submodule("model") if found is causal else found


def file_name(name: str, text_part: str) -> str:
    """The name of a parameter in an adapter's file. `text_part`: how files name the modules with the layers."""
    named = name.replace(_ADAPTER, ".")
    return named.replace(_PEFT + TEXT, _PEFT + text_part, 1) if named.startswith(_PEFT + TEXT) else named


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
