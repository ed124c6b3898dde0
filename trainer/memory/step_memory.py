"""The memory and the arithmetic of a training step, measured on fake tensors at the model's real shapes.

Owns: the model without weights, the row of the measurement, and what layers add. Refuses: what a card must hold beside
tensors (`trainer.memory.plan`), and reading a base (`recorder.models`).

What runs is the trainer's own step (`trainer.policy.update.train_step`), from the forward pass to the optimizer, on
tensors that have shapes and no data. They are CPU tensors in the planned precision: attention on fake CUDA tensors with
a gradient aborts a CPU build of torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoConfig, AutoModelForCausalLM, masking_utils

from trainer.artifacts import adapters
from trainer.batch.layouts import Layout
from trainer.batch.packing import MIN_SHARED, Ids, Pack
from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.errors import UnsupportedModel
from trainer.lora.file_layout import ExpertLayout
from trainer.lora.targets import is_fused_experts
from trainer.memory.storage_counter import StorageCounter
from trainer.policy import model as policies
from trainer.policy import positions, update
from trainer.policy.attention import interface as attention
from trainer.policy.attention import scores
from trainer.policy.base_model import add_lora
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.plan import plan_update
from trainer.policy.startup_check import possible_attentions
from trainer.policy.text_model import text_config
from trainer.quantization.layers import shape_layers
from trainer.settings import TrainerSettings

FORWARD, LOGPROBS, BACKWARD, UPDATE = "forward pass", "logprobs", "backward pass", "update"
_SPAN: Final = 512  # tokens that are trained on, then as many that are not: half of a row, as benchmarks/gpu_step.py
_LEAST_SHARED: Final = 8 * MIN_SHARED  # tokens of a pass from which two rows share some
_BYTES_OF_A_MOMENT: Final = 8  # AdamW keeps two float32 for each trained number


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What a pass of one row holds, in bytes of tensors. `peaks` are by phase, each with everything that is held then.

    `base`: the frozen weights; `lora`: trained weights (float32); `optimizer`: their moments. `host`: layers' inputs in
    host memory, which `peaks` leave out. `flops` are those of the pass with its backward. `slot`: numbers of an adapter
    of this rank in the engine, which has a place for the LoRA of experts even where none are adapted. `unservable`:
    modules with a LoRA that no engine loads; `servable`: the others, as `trainer.target` names them. `saved`: how much
    smaller the base is because it is quantised (`trainer.quantize`).
    """

    tokens: int
    base: int
    lora: int
    optimizer: int
    peaks: Mapping[str, int]
    flops: int
    slot: int = 0
    unservable: tuple[str, ...] = ()
    servable: tuple[str, ...] = ()
    host: int = 0
    saved: int = 0

    @property
    def plain_base(self) -> int:
        """The bytes of the base that is not quantised, as an engine serves it."""
        return self.base + self.saved

    @property
    def held(self) -> int:
        """The largest of the peaks."""
        return max(self.peaks.values())

    @property
    def weights(self) -> int:
        """What is held between passes: frozen and trained weights, and the optimizer's moments."""
        return self.base + self.lora + self.optimizer


@dataclass(frozen=True, slots=True)
class _PlannedPass:
    """A pass of `tokens` tokens where most passes have `budget`: above it, one row is computed by another method."""

    tokens: int
    budget: int
    one_row: bool

    @property
    def is_long(self) -> bool:
        return self.tokens > self.budget


def measure_step(
    config: Mapping[str, Any], settings: TrainerSettings, tokens: int, *, one_row: bool = False
) -> StepMemory:
    """Measure a pass of `tokens` tokens, and the update after it. `config`: the contents of config.json.

    The pass has two rows that share their first tokens, which takes a little more than one row. `one_row`: it has one.
    (A model whose attention cannot pack rows gets one in any case.)

    Layers that repeat are measured in two models of few layers, and the rest follows: every phase holds the same more
    for each layer, from the second on (the first one's input has no gradient). Raises `UnsupportedModel` for a base
    that the trainer cannot compute, and `TrainerError`.
    """
    return _measure_all(config, settings, _PlannedPass(tokens, tokens, one_row))


def measure_row(config: Mapping[str, Any], settings: TrainerSettings, tokens: int) -> StepMemory:
    """Measure a row of `tokens` tokens that has a pass of its own because it is longer than `trainer.token_budget`.

    Raises `UnsupportedModel` also for a base whose long rows are not computed (`trainer.policy.startup_check`).
    """
    return _measure_all(config, settings, _PlannedPass(tokens, min(settings.token_budget, tokens - 1), one_row=True))


def _measure_all(config: Mapping[str, Any], settings: TrainerSettings, planned: _PlannedPass) -> StepMemory:
    whole = _parse(config)
    text = whole.get_text_config()
    layers, period = int(text.num_hidden_layers), _period(text)
    if 3 * period >= layers:
        return _measure(whole, settings, planned)
    few, more = (_measure(_with_layers(config, layers, count), settings, planned) for count in (2 * period, 3 * period))
    return _extrapolate(few, more, (layers - 2 * period) / period)


def _extrapolate(few: StepMemory, more: StepMemory, steps: float) -> StepMemory:
    def at(low: int, high: int) -> int:
        return round(low + (high - low) * steps)

    return StepMemory(
        few.tokens,
        at(few.base, more.base),
        at(few.lora, more.lora),
        at(few.optimizer, more.optimizer),
        {phase: at(few.peaks[phase], more.peaks[phase]) for phase in few.peaks},
        at(few.flops, more.flops),
        at(few.slot, more.slot),
        few.unservable,
        few.servable,
        at(few.host, more.host),
        at(few.saved, more.saved),
    )


def _parse(config: Mapping[str, Any]) -> Any:
    try:
        parsed = AutoConfig.for_model(**config)
        positions.require_fixed_positions(parsed, str(config.get("model_type")))
    except (ValueError, KeyError, TypeError) as e:
        raise UnsupportedModel(f"transformers does not know the model type {config.get('model_type')!r}: {e}") from e
    return text_config(parsed)


def _by_layer(config: Mapping[str, Any], layers: int) -> list[str]:
    """The entries that list one value for each layer."""
    return [name for name, value in config.items() if isinstance(value, Sequence) and not isinstance(value, str)
            and len(value) == layers and name != "architectures"]  # fmt: skip


def _period(text: Any) -> int:
    """After how many layers the kinds of layers repeat; all layers, where they do not."""
    layers = int(text.num_hidden_layers)
    values = text.to_dict()
    if values.get("first_k_dense_replace") or values.get("mlp_only_layers"):
        return layers
    lists = [list(values[name]) for name in _by_layer(values, layers)]
    kinds = [repr(one) for one in zip(*lists, strict=True)] or [""] * layers
    found = [size for size in range(1, layers + 1) if all(kinds[i] == kinds[i % size] for i in range(layers))]
    if int(values.get("decoder_sparse_step") or 1) > 1:
        return layers
    return found[0]


def _with_layers(config: Mapping[str, Any], layers: int, count: int) -> Any:
    """The configuration with `count` layers, in the part that describes the language model."""
    nested = [name for name, value in config.items() if isinstance(value, Mapping) and "num_hidden_layers" in value]
    if nested:
        return _parse({**config, nested[0]: _shorter(config[nested[0]], layers, count)})
    return _parse(_shorter(config, layers, count))


def _shorter(config: Mapping[str, Any], layers: int, count: int) -> dict[str, Any]:
    cut = {name: config[name][:count] for name in _by_layer(config, layers)}
    return {**config, **cut, "num_hidden_layers": count}


# --- one model

# A pass is that of one process, and its number of tokens is given.
_UNMEASURED: Final = {
    name: TrainerSettings.model_fields[name].default for name in ("token_budget", "processes", "shard_base")
}


@dataclass(frozen=True, slots=True)
class _Measurement:
    """`named`: configuration and settings as text, by which two measurements are the same."""

    named: str
    planned: _PlannedPass
    config: Any = field(compare=False)
    settings: TrainerSettings = field(compare=False)


class _MeasuredPolicy(Policy):
    """A policy that tells a counter which phase of a step it is in."""

    counter: StorageCounter

    def allow_long_rows(self, planned: _PlannedPass) -> None:
        """Compute a long row as the trainer does. Raises `UnsupportedModel` for a base that cannot be divided."""
        if planned.is_long and not (self.can_recompute and self.has_divisible_mlps):
            raise UnsupportedModel("its layers cannot be divided, so no row is longer than trainer.token_budget.")
        self.pass_budget, self.has_long_rows = planned.budget, planned.is_long

    def hidden(self, one: Pack) -> torch.Tensor:
        """As the policy's."""
        self.counter.phase = FORWARD
        states = super().hidden(one)
        self.counter.phase = LOGPROBS
        if states.requires_grad:
            states.register_hook(self._to_backward)  # type: ignore[no-untyped-call]
        return states

    def _to_backward(self, gradient: torch.Tensor) -> None:
        self.counter.phase = BACKWARD


class _MeasuredOptimizer(Optimizer):
    counter: StorageCounter

    def step(self) -> dict[str, float]:
        """As the optimizer's."""
        self.counter.phase = UPDATE
        return super().step()


def _measure(config: Any, settings: TrainerSettings, planned: _PlannedPass) -> StepMemory:
    """A plan asks for the same pass again: for each number of cards, and for the nearest set-up that fits."""
    alone = settings.model_copy(update=_UNMEASURED)
    named = config.to_json_string(use_diff=False) + alone.model_dump_json()
    return _measure_once(_Measurement(named, planned, config, alone))


@lru_cache(maxsize=256)
def _measure_once(asked: _Measurement) -> StepMemory:
    config, settings, planned = asked.config, asked.settings, asked.planned
    attention.register_attention()
    on_gpu = settings.model_copy(update=_as_chosen_on_a_gpu(settings, planned))
    problem: Exception | None = None
    for implementation in possible_attentions(config):
        try:
            return _measure_with(implementation, config, on_gpu, planned)
        except (UnsupportedModel, TypeError, ValueError) as e:  # as the start-up check: the next one may do it
            problem = e
    raise UnsupportedModel(f"the trainer cannot compute a model of the type {config.model_type!r}: {problem}")


def _as_chosen_on_a_gpu(settings: TrainerSettings, planned: _PlannedPass) -> dict[str, Any]:
    """What `auto` means on a GPU (`trainer.policy.pass_method`), written out: the tensors here are on a CPU."""
    offload = settings.offload_inputs
    return {
        "device": "cpu",
        "gradient_checkpointing": settings.gradient_checkpointing in ("auto", True),
        "offload_inputs": planned.is_long if offload == "auto" else offload,
    }


def _measure_with(implementation: str, config: Any, settings: TrainerSettings, planned: _PlannedPass) -> StepMemory:
    dtype = torch.float32 if settings.dtype == "float32" else torch.bfloat16
    name = Path(str(config.model_type))
    with torch.device("meta"):
        causal = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")
        positions.fix_positions(causal, config, str(name), settings.max_model_len)
        architecture = (config.architectures or [type(causal).__name__])[0]
        saved = shape_layers(causal) if settings.quantize else 0
        adapted = add_lora(causal, name, settings, architecture)
    fake, counter = FakeTensorMode(allow_non_fake_inputs=True), StorageCounter()
    with fake, _as_on_a_gpu(counter):
        _make_fake(adapted)
        policy = _MeasuredPolicy(adapted, str(name), settings)
        policy.set_attention(implementation)
        policy.counter = counter
        policy.allow_long_rows(planned)
        optimizer = _MeasuredOptimizer(policy.parameters, settings)
        optimizer.counter = counter
        rows = _rows(planned.tokens, planned.one_row or policy.layout is not Layout.PACKED, settings.kl_coef)
        plan = plan_update(policy, rows, settings, planned.tokens)
        lora = sum(one.numel() for one in policy.parameters.values())
        with counter:
            counter.hold([*adapted.parameters(), *adapted.buffers()])
            whole = counter.live
            _make_moments(policy, optimizer)
            counter.peaks.clear()
            update.train_step(policy, optimizer, plan, settings, _never)
    size = lora * 4
    shapes = {name: tuple(parameter.shape) for name, parameter in policy.parameters.items()}
    layout = ExpertLayout.of(architecture, settings.rank)
    unservable = tuple(adapters.unservable_modules(shapes, settings.rank, layout))
    return StepMemory(
        tokens=planned.tokens,
        base=whole - size,
        lora=size,
        optimizer=lora * _BYTES_OF_A_MOMENT,
        peaks=dict(counter.peaks),
        flops=counter.flops,
        slot=_slot_size(adapted, layout.file_shapes(shapes), settings.rank),
        unservable=unservable,
        servable=tuple(one for one in policy.modules if one not in {*unservable, "base_layer"}),
        host=counter.host_peak,
        saved=saved,
    )


def _slot_size(model: nn.Module, file_shapes: Mapping[str, tuple[int, ...]], rank: int) -> int:
    """The numbers of one adapter in the engine's memory."""
    adapted = sum(math.prod(shape) for shape in file_shapes.values())
    if any(".experts." in name for name in file_shapes):
        return adapted
    sizes = [module.get_parameter("down_proj").shape for module in model.modules() if is_fused_experts(module)]
    # gate, up and down of one expert, each with A and B
    return adapted + sum(count * rank * 3 * (width + hidden) for count, width, hidden in sizes)


def _make_moments(policy: Policy, optimizer: Optimizer) -> None:
    """Make the optimizer's moments, which exist from the second step on."""
    for parameter in policy.parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero()


def _never() -> bool:
    return False


def _make_fake(model: nn.Module) -> None:
    """Replace each tensor on `meta` with a fake one on the CPU; tied ones stay tied."""
    made: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                if id(parameter) not in made:
                    empty = torch.empty(parameter.shape, dtype=parameter.dtype, device="cpu")
                    made[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
                module._parameters[name] = made[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device="cpu")


class _HostCopies(saved_tensors_hooks):
    """Layers' inputs in host memory, as `save_on_cpu` keeps a GPU's."""

    def __init__(self, counter: StorageCounter) -> None:
        @torch.no_grad()
        def to_host(tensor: torch.Tensor) -> torch.Tensor:
            with counter.on_host():
                return tensor.clone()

        super().__init__(to_host, torch.no_grad()(torch.clone))


@contextmanager
def _as_on_a_gpu(counter: StorageCounter) -> Iterator[None]:
    """Within: what a GPU does otherwise than a CPU.

    It never has some masks. The trainer's attention asks for the device, and makes one on a CPU, for which it also
    computes tiles again; transformers takes fake tensors for a graph that is traced, and then makes masks for rows
    without padding. Whether a kernel takes grouped heads cannot be asked of fake tensors: keys are repeated, as in the
    committed runs, which takes more memory. Layers' inputs are copied to the host.
    """
    others = (
        (scores, "causal_mask", _no_mask),
        (scores, "is_grouped", _repeats_keys),
        (scores, "is_on_gpu", _is_on_gpu),
        (masking_utils, "is_tracing", lambda tensor=None: False),
        (policies, "save_on_cpu", lambda pin_memory: _HostCopies(counter)),
    )
    kept = [getattr(owner, name) for owner, name, _ in others]
    try:
        for owner, name, other in others:
            setattr(owner, name, other)
        yield
    finally:
        for (owner, name, _), own in zip(others, kept, strict=True):
            setattr(owner, name, own)


def _no_mask(before: int, length: int, query: torch.Tensor) -> torch.Tensor | None:
    return None


def _is_on_gpu(query: torch.Tensor) -> bool:
    return True


def _repeats_keys(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_masked: bool) -> bool:
    return False


def _rows(tokens: int, one_row: bool, kl_weight: float) -> list[WeightedRow]:
    """Rows that fill a pass of `tokens` tokens: one, or two whose first quarter of the pass is shared."""
    if one_row or tokens < _LEAST_SHARED:
        return [_row(np.zeros(tokens, np.int32), kl_weight)]
    own = (tokens - tokens // 4) // 2
    shared = np.zeros(tokens - 2 * own, np.int32)
    return [_row(np.concatenate([shared, np.full(own, number, np.int32)]), kl_weight) for number in (1, 2)]


def _row(ids: Ids, kl_weight: float) -> WeightedRow:
    """A row of which half is trained on."""
    places = np.arange(len(ids))
    trained = places % (2 * _SPAN) >= _SPAN if len(ids) > 2 * _SPAN else places >= len(ids) // 2
    trained[-1] = True
    behaviour = np.where(trained, np.float32(-1), np.float32(np.nan))
    ages = np.where(trained, 0, -1).astype(np.int32)
    row = Row("planned", ids, trained, behaviour, -behaviour, ages, (("call", 0),))
    return WeightedRow(row, 0.5, 1.0, kl_weight=kl_weight)
