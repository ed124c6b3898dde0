"""Whether engine and trainer fit on a card, with which settings, and if not, the nearest set-up that does.

Owns: what a card holds beside tensors, the split of a card, and the sentence that `hone plan`, `hone init`,
`hone doctor` and the trainer show. Refuses: measuring a step (`trainer.memory.step_memory`), and reading a base.

Figures without a committed measurement say so beside them. Bytes are bytes; `gib` is 1024³ of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from recorder.models.base_model import ModelProfile, read_base_model
from recorder.models.shipped_configs import SHIPPED, shipped_names
from trainer.errors import PlanInvalid, UnsupportedModel
from trainer.memory.cards import CARDS, Card
from trainer.memory.step_memory import StepMemory, measure_step
from trainer.settings import TrainerSettings

GIB: Final = 1 << 30
# The committed H100 runs reserved 1.17 to 1.55 times of what they held (benchmarks/results/gpu_step.json). They ran
# without expandable segments; a run with them is not committed yet.
RESERVED: Final = 1.55
# No measurement is committed: the context of a process with torch's and cuBLAS's kernels takes 0.5 to 0.7 GiB.
CONTEXT_BYTES: Final = round(0.7 * GIB)
# No measurement is committed: context, CUDA graphs and the activations of vLLM's largest batch, with a margin.
ENGINE_EXTRA_BYTES: Final = 2 * GIB
VLLM_SHARE: Final = 0.92  # vLLM's default share of a GPU's memory
HOST_EXTRA_BYTES: Final = 2 * GIB  # Python with torch and transformers loaded
# Share of a card's bf16 peak: FLOPs counted here / (seconds of the committed H100 runs x 989e12), the least and most.
UTILISATION: Final = (0.09, 0.3)
SPEED_ROW: Final = 8192  # tokens of the pass whose FLOPs the speed uses: its rows are as long as those runs' rows
SPEED_TOKENS: Final = 100_000
LEAST_TOKENS: Final = 2048  # the smallest budget that is offered, and the tokens of the second measurement
_LEAST_OF_OTHERS: Final = 4096  # the smallest budget for which another model is offered
_STEP: Final = 1024  # budgets are offered in multiples of it
_BFLOAT16: Final = 2
_CANDIDATES: Final = 2  # smaller models that are measured


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What of the engine's settings matters here. `elsewhere`: it runs on other cards already (`engine.urls`)."""

    max_loras: int = 4
    max_lora_rank: int = 32
    max_model_len: int | None = None
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class TrainerNeed:
    """What the trainer needs for passes of `tokens` tokens. `held`: tensors; `reserved`: what torch takes for them."""

    tokens: int
    held: int

    @property
    def reserved(self) -> int:
        """What torch's allocator takes from the card."""
        return round(self.held * RESERVED)

    @property
    def total(self) -> int:
        """With the CUDA context: this decides."""
        return self.reserved + CONTEXT_BYTES


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


@dataclass(slots=True)
class MeasuredBase:
    """A base with the measurement of its step at `high.tokens`."""

    profile: ModelProfile
    settings: TrainerSettings
    high: StepMemory
    target: tuple[str, ...] | None  # `trainer.target` where all linear layers cannot be served
    _low: StepMemory | None = None

    @property
    def low(self) -> StepMemory:
        """The measurement at few tokens, made when something between the two is asked for."""
        if self._low is None:
            few = min(LEAST_TOKENS, self.high.tokens)
            self._low = self.high if few == self.high.tokens else measure_step(self.profile.config, self.settings, few)
        return self._low

    def held(self, tokens: int) -> int:
        """The bytes that a pass of this many tokens holds, up to `high.tokens`."""
        if tokens >= self.high.tokens or self.high.tokens == self.low.tokens:
            return self.high.held
        share = (tokens - self.low.tokens) / (self.high.tokens - self.low.tokens)
        return max(round(low + (self.high.peaks[name] - low) * share) for name, low in self.low.peaks.items())

    def flops(self, tokens: int) -> float:
        """The FLOPs of a pass of this many tokens: linear layers by tokens, attention by their square."""
        low, high = self.low, self.high
        if low.tokens == high.tokens:
            return high.flops * tokens / high.tokens
        square = (high.flops / high.tokens - low.flops / low.tokens) / (high.tokens - low.tokens)
        return tokens * (low.flops / low.tokens + square * (tokens - low.tokens))

    def trainer(self, tokens: int) -> TrainerNeed:
        """What the trainer needs."""
        return TrainerNeed(tokens, self.held(tokens))

    def engine(self, tokens: int, engine: EngineFacts, rank: int) -> EngineNeed:
        """What the engine needs to sample rows of this many tokens."""
        longest = self.profile.default_context_length
        context = engine.max_model_len or longest or tokens
        return EngineNeed(
            weights=self.high.base,
            # of one rank here, in slots of the highest rank there
            loras=self.high.slot // rank * engine.max_lora_rank * _BFLOAT16 * engine.max_loras,
            row_cache=_cache(self.profile, min(tokens, context)),
            context_cache=_cache(self.profile, context),
            context=context,
        )


def _cache(profile: ModelProfile, tokens: int) -> int:
    size = profile.kv_cache_bytes(tokens, element_bytes=_BFLOAT16)
    if size is None:
        raise PlanInvalid(
            f"the model {profile.name!r} is of the family {profile.family!r}, which Hone does not know: the size of an "
            "engine's cache for it is not guessed."
        )
    return size


@dataclass(frozen=True, slots=True)
class Placement:
    """Where engine and trainer run: on one card, or each on its own. `cache`: bytes of the engine's cache."""

    card: Card
    is_shared: bool
    trainer: TrainerNeed
    engine: EngineNeed
    fits: bool
    share: float
    cache: int

    @property
    def where(self) -> str:
        """In words: `one H100 (80 GiB)`."""
        return f"{'one' if self.is_shared else 'two'} {_cards(self.card, 1 if self.is_shared else 2)}"


def _cards(card: Card, count: int) -> str:
    if card.name.endswith("GiB"):
        return f"card{'s' * (count > 1)} of {card.name}"
    return str(card)


def place(trainer: TrainerNeed, engine: EngineNeed, card: Card, *, is_shared: bool, elsewhere: bool) -> Placement:
    """Place both on a card, or on two such cards. `elsewhere`: the engine needs none of them."""
    room = card.gib * GIB
    if elsewhere:
        return Placement(card, True, trainer, engine, trainer.total <= room, 0.0, 0)
    share = math.floor((room - trainer.total) / room * 100) / 100 if is_shared else VLLM_SHARE
    share = max(0.0, min(VLLM_SHARE, share))
    cache = int(share * room) - engine.fixed
    fits = cache >= engine.row_cache and trainer.total <= room
    return Placement(card, is_shared, trainer, engine, fits, share, max(0, cache))


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of `hone plan`. `shared` and `apart` are None where they were not asked for (one card or more)."""

    base: MeasuredBase
    settings: TrainerSettings
    engine: EngineFacts
    card: Card
    cards: int
    tokens: int
    shared: Placement
    apart: Placement | None
    nearest: tuple[str, ...] = field(default=())

    @property
    def chosen(self) -> Placement:
        """The placement that is proposed: each on a card of its own where there are two."""
        return self.apart if self.apart is not None and (self.apart.fits or not self.shared.fits) else self.shared

    @property
    def fits(self) -> bool:
        """Whether the set-up runs."""
        return self.chosen.fits

    @property
    def sentence(self) -> str:
        """The answer in one sentence; where it does not fit, with the nearest set-up that does."""
        chosen, name = self.chosen, self.base.profile.name
        trainer = f"the trainer needs {_gib(chosen.trainer.total)} for passes of {self.tokens:,} tokens"
        both = trainer if self.engine.elsewhere else f"{trainer} and the engine at least {_gib(chosen.engine.least)}"
        verb = "fits" if chosen.fits else "does not fit"
        nearest = "" if chosen.fits else f" {nearest_words(self.nearest)}"
        return f"{name} {verb} on {chosen.where}: {both}.{nearest}"

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The estimated seconds of training for `SPEED_TOKENS` tokens, from and to; None without the card's peak."""
        if self.card.peak_flops is None:
            return None
        row = max(SPEED_ROW, self.tokens if self.tokens > self.settings.token_budget else 0)
        flops = self.base.flops(row) / row * SPEED_TOKENS
        low, high = (flops / (self.card.peak_flops * share) for share in reversed(UTILISATION))
        return low, high

    @property
    def host_bytes(self) -> int:
        """What the trainer needs of the machine's own memory: it loads the base there first."""
        return self.base.high.base + 2 * self.base.high.lora + HOST_EXTRA_BYTES

    def setting_values(self, placement: Placement) -> dict[str, Any]:
        """The settings of hone.toml for a placement, by their dotted name."""
        values: dict[str, Any] = {}
        if not self.engine.elsewhere:
            if placement.is_shared:
                values["engine.gpu_memory_utilization"] = placement.share
                values["engine.kv_cache_bytes"] = placement.cache
            else:
                values["engine.env.CUDA_VISIBLE_DEVICES"] = "1"
            if placement.cache < placement.engine.context_cache:
                values["engine.max_model_len"] = _longest(self.base.profile, placement.cache)
        values["trainer.token_budget"] = self.tokens
        values["trainer.gradient_checkpointing"] = self.settings.gradient_checkpointing
        if self.base.target is not None:
            values["trainer.target"] = list(self.base.target)
        return values

    def as_json(self) -> dict[str, Any]:
        """The whole answer as JSON; sizes in bytes."""
        chosen = self.chosen
        return {
            "model": self.base.profile.name,
            "card": {"name": self.card.name, "gib": self.card.gib},
            "gpus": self.cards,
            "fits": self.fits,
            "sentence": self.sentence,
            "nearest": list(self.nearest),
            "trainer": {
                "tokens": self.tokens,
                "held": chosen.trainer.held,
                "reserved": chosen.trainer.reserved,
                "context": CONTEXT_BYTES,
                "total": chosen.trainer.total,
                "phases": dict(self.base.high.peaks),
                "base": self.base.high.base,
                "lora": self.base.high.lora,
                "optimizer": self.base.high.optimizer,
                "host": self.host_bytes,
            },
            "engine": {
                "weights": chosen.engine.weights,
                "loras": chosen.engine.loras,
                "extra": ENGINE_EXTRA_BYTES,
                "row_cache": chosen.engine.row_cache,
                "least": chosen.engine.least,
            },
            "placements": {
                name: {"fits": one.fits, "settings": self.setting_values(one) if one.fits else {}}
                for name, one in (("together", self.shared), ("apart", self.apart))
                if one is not None
            },
            "settings": self.setting_values(chosen) if self.fits else {},
            "estimated_seconds": None if self.seconds is None else [round(one, 2) for one in self.seconds],
            "estimated_for_tokens": SPEED_TOKENS,
        }


def nearest_words(nearest: tuple[str, ...]) -> str:
    """The nearest set-ups as the end of a sentence."""
    if not nearest:
        return "No smaller budget, model of the family or card that Hone knows fits."
    return f"Nearest that fits: {'; or '.join(nearest)}."


def _longest(profile: ModelProfile, cache: int) -> int:
    """The longest context whose keys and values fit into a cache, in steps."""
    length = _STEP
    while _cache(profile, length + _STEP) <= cache:
        length += _STEP
    return length


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


# --- making a plan


def make_plan(
    profile: ModelProfile,
    card: Card,
    settings: TrainerSettings,
    engine: EngineFacts,
    *,
    cards: int = 1,
    row_tokens: int | None = None,
    search: bool = True,
) -> Plan:
    """Plan engine and trainer on `cards` cards of a kind. `row_tokens`: the longest row that must be trained.

    `search`: where it does not fit, look for the nearest set-up that does. Raises `PlanInvalid` and `UnsupportedModel`.
    """
    tokens = row_tokens or settings.token_budget
    longest = profile.context_length
    if longest is not None and tokens > longest:
        if row_tokens is not None:
            raise PlanInvalid(f"a row of {row_tokens} tokens is longer than the context of {profile.name} ({longest}).")
        tokens = longest
    base = measure_base(profile, settings, tokens)
    plan = _plan(base, card, settings, engine, cards, tokens)
    if plan.fits or not search:
        return plan
    return replace(plan, nearest=tuple(_nearest(plan, row_tokens)))


def measure_base(profile: ModelProfile, settings: TrainerSettings, tokens: int) -> MeasuredBase:
    """Measure a base's step. Raises `UnsupportedModel` for one that the trainer refuses."""
    if profile.quantization is not None and profile.quantization not in _DEQUANTIZED:
        raise UnsupportedModel(
            f"the base {profile.name!r} is quantised ({profile.quantization}), and its weights cannot be trained on. "
            "Name the model in bfloat16."
        )
    high, target = measure_step(profile.config, settings, tokens), None
    if high.unservable:
        if not high.servable:
            raise UnsupportedModel(f"no module of {profile.name!r} that trainer.target selects can be served.")
        target = high.servable
        settings = settings.model_copy(update={"target": list(target)})
        high = measure_step(profile.config, settings, tokens)
    return MeasuredBase(profile, settings, high, target)


_DEQUANTIZED: Final = frozenset({"mxfp4"})  # transformers loads these in bfloat16


def _plan(
    base: MeasuredBase, card: Card, settings: TrainerSettings, engine: EngineFacts, cards: int, tokens: int
) -> Plan:
    trainer, served = base.trainer(tokens), base.engine(tokens, engine, settings.rank)
    shared = place(trainer, served, card, is_shared=True, elsewhere=engine.elsewhere)
    apart = place(trainer, served, card, is_shared=False, elsewhere=False) if cards > 1 else None
    return Plan(base, settings, engine, card, cards, tokens, shared, apart)


def _nearest(plan: Plan, row_tokens: int | None) -> Iterator[str]:
    """The set-ups that fit, each changing one thing, the cheapest change first."""
    if plan.settings.gradient_checkpointing is False:
        changed = plan.settings.model_copy(update={"gradient_checkpointing": True})
        again = make_plan(plan.base.profile, plan.card, changed, plan.engine, cards=plan.cards, search=False)
        if again.fits:
            yield "trainer.gradient_checkpointing = true"
    if (budget := largest_budget(plan, max(row_tokens or 0, LEAST_TOKENS))) is not None:
        yield f"trainer.token_budget = {budget} (longer rows are excluded)"
    if plan.cards == 1 and not plan.engine.elsewhere:
        two = _plan(plan.base, plan.card, plan.settings, plan.engine, 2, plan.tokens)
        if two.fits:
            yield f"engine and trainer on {two.chosen.where}, one each"
    if (smaller := _smaller_model(plan, row_tokens)) is not None:
        yield smaller
    bigger = sorted((card for card in CARDS if card.gib > plan.card.gib), key=lambda card: card.gib)
    for cards in {1, plan.cards}:
        for card in bigger:
            if (larger := _plan(plan.base, card, plan.settings, plan.engine, cards, plan.tokens)).fits:
                yield larger.chosen.where
                break


def largest_budget(plan: Plan, least: int) -> int | None:
    """The largest budget below the plan's with which it fits, and which is not below `least`; None: none is."""
    low, high = math.ceil(least / _STEP), (plan.tokens - 1) // _STEP
    found = None
    while low <= high:
        middle = (low + high) // 2
        tokens = middle * _STEP
        if _plan(plan.base, plan.card, plan.settings, plan.engine, plan.cards, tokens).fits:
            found, low = tokens, middle + 1
        else:
            high = middle - 1
    return found


def _smaller_model(plan: Plan, row_tokens: int | None) -> str | None:
    """The largest model of the family that fits, with the budget at which it does."""
    profile = plan.base.profile
    family = profile.family.removesuffix("_moe")
    others = [read_base_model(SHIPPED / name, name=name, needs_weights=False) for name in shipped_names()]
    size = profile.parameters.total if profile.parameters is not None else math.inf
    smaller = [
        (one.parameters.total, one)
        for one in others
        if one.family.removesuffix("_moe") == family and one.parameters is not None and one.parameters.total < size
    ]
    hopeful = [(total, one) for total, one in smaller if _least_bytes(one, total, plan) < plan.card.gib * GIB]
    for _, one in sorted(hopeful, key=lambda pair: pair[0], reverse=True)[:_CANDIDATES]:
        try:
            other = make_plan(
                one, plan.card, plan.settings, plan.engine, cards=plan.cards, row_tokens=row_tokens, search=False
            )
        except (PlanInvalid, UnsupportedModel):
            continue
        if other.fits:
            return f"{one.name} on {other.chosen.where}"
        if (budget := largest_budget(other, row_tokens or _LEAST_OF_OTHERS)) is not None:
            return f"{one.name} with trainer.token_budget = {budget} on {other.chosen.where}"
    return None


def _least_bytes(profile: ModelProfile, parameters: int, plan: Plan) -> float:
    """What a model needs in any case, without a measurement: its weights, and three copies of a chunk of logits."""
    weights = parameters * _BFLOAT16
    logits = 3 * 4 * plan.settings.logprob_chunk * (profile.vocab_size or 0)
    trainer = RESERVED * (weights + logits) + CONTEXT_BYTES
    return trainer if plan.cards > 1 or plan.engine.elsewhere else trainer + weights + ENGINE_EXTRA_BYTES
