"""What trainer and engine need of a card's memory, and of the machine's, from the measurement of a base.

Owns: what a card holds beside tensors, and the measurements of passes and of rows alone. Refuses: the split of a card
(`trainer.memory.plan`), and measuring itself (`trainer.memory.step_memory`).

Figures without a committed measurement say so beside them. Bytes are bytes; `gib` is 1024³ of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from recorder.models.base_model import ModelProfile
from trainer.errors import PlanInvalid, UnsupportedModel
from trainer.memory.step_memory import StepMemory, measure_row, measure_step
from trainer.quantization.layers import require_plain_weights
from trainer.settings import TrainerSettings

GIB: Final = 1 << 30
# The committed H100 runs reserved 1.17 to 1.55 times of what they held (benchmarks/results/gpu_step.json). They ran
# without expandable segments; a run with them is not committed yet.
RESERVED: Final = 1.55
# No measurement is committed: the context of a process with torch's and cuBLAS's kernels takes 0.5 to 0.7 GiB.
CONTEXT_BYTES: Final = round(0.7 * GIB)
# No measurement is committed: context, CUDA graphs and the activations of vLLM's largest batch, with a margin.
ENGINE_EXTRA_BYTES: Final = 2 * GIB
HOST_EXTRA_BYTES: Final = 2 * GIB  # Python with torch and transformers loaded
HOST_SHARE: Final = 0.5  # of the free host memory that layers' inputs may take
LEAST_TOKENS: Final = 2048  # the smallest budget that is offered, and the tokens of the second measurement
BFLOAT16: Final = 2  # bytes


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What of the engine's settings matters here. `elsewhere`: it runs on other cards already (`engine.urls`).

    `share`: how it shares one card (`engine.share`).
    """

    max_loras: int = 4
    max_lora_rank: int = 32
    max_model_len: int | None = None
    elsewhere: bool = False
    share: str = "split"


@dataclass(frozen=True, slots=True)
class TrainerNeed:
    """What the trainer needs for passes of `tokens` tokens. `held`: tensors; `reserved`: what torch takes for them.

    `host`: layers' inputs in host memory. `row_tokens`: of the longest row, which has a pass of its own.
    """

    tokens: int
    held: int
    host: int = 0
    row_tokens: int | None = None

    @property
    def reserved(self) -> int:
        """What torch's allocator takes from the card."""
        return round(self.held * RESERVED)

    @property
    def total(self) -> int:
        """With the CUDA context: this decides."""
        return self.reserved + CONTEXT_BYTES

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return self.row_tokens or self.tokens

    def fits(self, device_bytes: float, host_bytes: float | None = None) -> bool:
        """Whether it fits: the verdict of `hone plan`, and of the trainer on a long row.

        `device_bytes`: what the card has for the trainer beside its CUDA context. `host_bytes`: free memory of the
        machine; None: not known.
        """
        return self.reserved <= device_bytes and (host_bytes is None or self.host <= HOST_SHARE * host_bytes)


@dataclass(frozen=True, slots=True)
class EngineNeed:
    """What the engine needs. `row_cache`: keys and values of one row of the trainer's longest, the least it must hold.

    `context_cache`: of one conversation of the whole context of `context` tokens.
    """

    weights: int
    loras: int
    row_cache: int
    context_cache: int
    context: int

    @property
    def fixed(self) -> int:
        """All but the cache."""
        return self.weights + self.loras + ENGINE_EXTRA_BYTES

    @property
    def least(self) -> int:
        """With the smallest cache."""
        return self.fixed + self.row_cache


class LongRows:
    """What a row longer than `trainer.token_budget` needs in a pass of its own, in each length up to the context.

    The measured lengths are the budget and one token, twice the budget, four times it and so on. A length between two
    is on the line between them, which is never below what is held.
    """

    def __init__(self, profile: ModelProfile, settings: TrainerSettings) -> None:
        self._config = profile.config
        self._longest = profile.context_length
        self._settings = settings
        self._measured: dict[int, StepMemory] = {}

    def need(self, tokens: int) -> TrainerNeed:
        """What a row of `tokens` needs. Raises `UnsupportedModel` for a base without long rows."""
        budget = self._settings.token_budget
        low, high = budget + 1, budget + 1
        while high < tokens:
            low, high = high, max(2 * budget, 2 * (high // budget) * budget)
            high = high if self._longest is None else min(high, max(self._longest, tokens))
        few, more = self._measure(low), self._measure(high)
        host = round(_between(few.host, more.host, few, more, tokens))
        return TrainerNeed(min(budget, tokens), _held(few, more, tokens), host, tokens)

    def _measure(self, tokens: int) -> StepMemory:
        if tokens not in self._measured:
            self._measured[tokens] = measure_row(self._config, self._settings, tokens)
        return self._measured[tokens]


def _held(low: StepMemory, high: StepMemory, tokens: int) -> int:
    """The bytes that a pass of `tokens` holds, between two measured ones."""
    return round(max(_between(few, high.peaks[name], low, high, tokens) for name, few in low.peaks.items()))


def _between(few: float, more: float, low: StepMemory, high: StepMemory, tokens: int) -> float:
    return few if high.tokens == low.tokens else few + (more - few) * (tokens - low.tokens) / (high.tokens - low.tokens)


@dataclass(slots=True)
class MeasuredBase:
    """A base with the measurement of its step at `high.tokens`.

    `row_tokens`: of a row that has to be trained, and is longer than some budgets: it then has a pass of its own.
    """

    profile: ModelProfile
    settings: TrainerSettings
    high: StepMemory
    target: tuple[str, ...] | None  # `trainer.target` where all linear layers cannot be served
    row_tokens: int | None = None
    _low: StepMemory | None = None
    _rows: LongRows | None = None

    @property
    def low(self) -> StepMemory:
        """The measurement at few tokens, made when something between the two is asked for."""
        if self._low is None:
            few = min(LEAST_TOKENS, self.high.tokens)
            self._low = self.high if few == self.high.tokens else measure_step(self.profile.config, self.settings, few)
        return self._low

    @property
    def saved_by_shares(self) -> int:
        """The bytes of the base that a rank does not hold at its peak (`trainer.shard_base`).

        A pass gathers embedding, last norm and head, and two layers: one that is computed, and the next one.
        """
        settings, profile = self.settings, self.profile
        if not settings.shard_base or settings.processes == 1 or not (profile.hidden_size and profile.layers):
            return 0
        vectors = (profile.vocab_size or 0) * (1 if profile.is_head_tied else 2)
        ends = min(self.high.base, vectors * profile.hidden_size * BFLOAT16)
        gathered = ends + (self.high.base - ends) * min(1.0, 2 / len(profile.layers))
        return round((self.high.base - gathered) * (1 - 1 / settings.processes))

    def held(self, tokens: int) -> int:
        """The bytes that a pass of this many tokens holds, up to `high.tokens`."""
        if tokens >= self.high.tokens or self.high.tokens == self.low.tokens:
            return self.high.held
        return _held(self.low, self.high, tokens)

    def flops(self, tokens: int) -> float:
        """The FLOPs of a pass of this many tokens: linear layers by tokens, attention by their square."""
        low, high = self.low, self.high
        if low.tokens == high.tokens:
            return high.flops * tokens / high.tokens
        square = (high.flops / high.tokens - low.flops / low.tokens) / (high.tokens - low.tokens)
        return tokens * (low.flops / low.tokens + square * (tokens - low.tokens))

    def trainer(self, tokens: int) -> TrainerNeed:
        """What the trainer needs for passes of `tokens`, and for the row that has to be trained."""
        held = self.held(tokens) - self.saved_by_shares
        if self.row_tokens is None or self.row_tokens <= tokens:
            return TrainerNeed(tokens, held, self.high.host)
        if self._rows is None:
            budget = {"token_budget": min(self.settings.token_budget, self.high.tokens)}
            self._rows = LongRows(self.profile, self.settings.model_copy(update=budget))
        row = self._rows.need(self.row_tokens)  # of another budget only the tiles would differ, and those hardly
        return replace(row, tokens=tokens, held=max(held, row.held - self.saved_by_shares))

    def engine(self, tokens: int, engine: EngineFacts, rank: int) -> EngineNeed:
        """What the engine needs to sample rows of this many tokens."""
        longest = self.profile.default_context_length
        context = engine.max_model_len or longest or tokens
        return EngineNeed(
            weights=self.high.plain_base,
            # of one rank here, in slots of the highest rank there
            loras=self.high.slot // rank * engine.max_lora_rank * BFLOAT16 * engine.max_loras,
            row_cache=cache_bytes(self.profile, min(tokens, context)),
            context_cache=cache_bytes(self.profile, context),
            context=context,
        )


def cache_bytes(profile: ModelProfile, tokens: int) -> int:
    """Bytes of keys and values of one sequence in an engine. Raises `PlanInvalid` for an unknown family."""
    size = profile.kv_cache_bytes(tokens, element_bytes=BFLOAT16)
    if size is None:
        raise PlanInvalid(
            f"the model {profile.name!r} is of the family {profile.family!r}, which Hone does not know: the size of an "
            "engine's cache for it is not guessed."
        )
    return size


def measure_base(
    profile: ModelProfile, settings: TrainerSettings, tokens: int, row_tokens: int | None = None
) -> MeasuredBase:
    """Measure a base's step of `tokens`. `row_tokens`: of a row that has to be trained.

    Raises `UnsupportedModel` for a base that the trainer refuses.
    """
    if profile.quantization is not None and profile.quantization not in _DEQUANTIZED:
        raise UnsupportedModel(
            f"the base {profile.name!r} is quantised ({profile.quantization}), and its weights cannot be trained on. "
            "Name the model in bfloat16."
        )
    require_plain_weights(profile.name, profile.config, settings.quantize)
    high, target = measure_step(profile.config, settings, tokens), None
    if high.unservable:
        if not high.servable:
            raise UnsupportedModel(f"no module of {profile.name!r} that trainer.target selects can be served.")
        target = high.servable
        settings = settings.model_copy(update={"target": list(target)})
        high = measure_step(profile.config, settings, tokens)
    return MeasuredBase(profile, settings, high, target, row_tokens)


_DEQUANTIZED: Final = frozenset({"mxfp4"})  # transformers loads these in bfloat16
