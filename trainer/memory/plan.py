"""Whether engine and trainer fit on a card, with which settings, and if not, the nearest set-up that does.

Owns: the split of a card, and the sentence that `hone plan`, `hone init`, `hone doctor`, `hone up` and the trainer
show. Refuses: what each of them needs (`trainer.memory.needs`), and reading a base.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from proxy.settings.gpus import split_gpus
from recorder.models.base_model import ModelProfile, read_base_model
from recorder.models.shipped_configs import SHIPPED, shipped_names
from trainer.errors import PlanInvalid, UnsupportedModel
from trainer.memory.cards import CARDS, Card
from trainer.memory.needs import (
    BFLOAT16,
    CONTEXT_BYTES,
    ENGINE_EXTRA_BYTES,
    GIB,
    HOST_EXTRA_BYTES,
    LEAST_TOKENS,
    RESERVED,
    EngineFacts,
    EngineNeed,
    MeasuredBase,
    TrainerNeed,
    cache_bytes,
    measure_base,
)
from trainer.quantization.nf4 import NF4
from trainer.settings import TrainerSettings

VLLM_SHARE: Final = 0.92  # vLLM's default share of a GPU's memory
# Share of a card's bf16 peak: FLOPs counted here / (seconds of the committed H100 runs x 989e12), the least and most.
UTILISATION: Final = (0.09, 0.3)
SPEED_ROW: Final = 8192  # tokens of the pass whose FLOPs the speed uses: its rows are as long as those runs' rows
SPEED_TOKENS: Final = 100_000
_LEAST_OF_OTHERS: Final = 4096  # the smallest budget for which another model is offered
NF4_SHARE: Final = 0.25  # of a base's bytes in bfloat16: a copy in nf4 takes more in any case
_STEP: Final = 1024  # budgets are offered in multiples of it
_CANDIDATES: Final = 2  # smaller models that are measured


@dataclass(frozen=True, slots=True)
class Placement:
    """Where engine and trainer run: on one card, or each on its own. `cache`: bytes of the engine's cache.

    `host`: bytes of the machine's memory that hold copies of what leaves a shared card; 0 where nothing leaves it.
    `trainers`: cards of the trainer, of which each holds a share of the base if they are several.
    """

    card: Card
    is_shared: bool
    trainer: TrainerNeed
    engine: EngineNeed
    fits: bool
    share: float
    cache: int
    host: int = 0
    trainers: int = 1

    @property
    def where(self) -> str:
        """In words: `one H100 (80 GiB)`."""
        count = self.trainers + (0 if self.is_shared else 1)
        return f"{_WORDS.get(count, str(count))} {_cards(self.card, count)}"


_WORDS: Final = {1: "one", 2: "two"}


def _cards(card: Card, count: int) -> str:
    if card.name.endswith("GiB"):
        return f"card{'s' * (count > 1)} of {card.name}"
    return str(card)


def place(
    trainer: TrainerNeed,
    engine: EngineNeed,
    card: Card,
    *,
    is_shared: bool,
    elsewhere: bool,
    host_bytes: float | None = None,
) -> Placement:
    """Place both on a card, or on two such cards. `elsewhere`: the engine needs none of them."""
    room = card.gib * GIB
    if elsewhere:
        return Placement(card, True, trainer, engine, trainer.fits(room - CONTEXT_BYTES, host_bytes), 0.0, 0)
    share = math.floor((room - trainer.total) / room * 100) / 100 if is_shared else VLLM_SHARE
    share = max(0.0, min(VLLM_SHARE, share))
    cache = int(share * room) - engine.fixed
    left = room * (1 - share) if is_shared else room
    fits = cache >= engine.row_cache and trainer.fits(left - CONTEXT_BYTES, host_bytes)
    return Placement(card, is_shared, trainer, engine, fits, share, max(0, cache))


def place_in_turns(
    trainer: TrainerNeed, engine: EngineNeed, card: Card, how: str, host: int, host_bytes: float | None
) -> Placement:
    """Place both on a card that they use in turns. `how`: `engine.share`, "cache" or "sleep".

    `host`: what the machine's memory has to hold of the trainer. An engine that sleeps adds its weights.
    """
    room = card.gib * GIB
    host += engine.weights if how == "sleep" else 0
    left = ENGINE_EXTRA_BYTES if how == "sleep" else engine.fixed
    cache = int(VLLM_SHARE * room) - engine.fixed
    fits = cache >= engine.row_cache and trainer.fits(room - left - CONTEXT_BYTES, host_bytes)
    fits = fits and (host_bytes is None or host <= host_bytes)
    return Placement(card, True, trainer, engine, fits, VLLM_SHARE, max(0, cache), host)


@dataclass(frozen=True, slots=True)
class Machine:
    """What is planned for: `cards` cards of a kind. `host_bytes`: free memory beside them; None: not known."""

    card: Card
    cards: int = 1
    host_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of `hone plan`. `shared` and `apart` are None where they were not asked for (one card or more)."""

    base: MeasuredBase
    settings: TrainerSettings
    engine: EngineFacts
    machine: Machine
    tokens: int
    shared: Placement
    apart: Placement | None
    nearest: tuple[str, ...] = field(default=())

    @property
    def chosen(self) -> Placement:
        """The placement that is proposed: each on a card of its own where there are two, unless they take turns."""
        if self._in_turns:
            return self.shared
        return self.apart if self.apart is not None and (self.apart.fits or not self.shared.fits) else self.shared

    @property
    def _in_turns(self) -> bool:
        return self.engine.share != "split" and not self.engine.elsewhere

    @property
    def fits(self) -> bool:
        """Whether the set-up runs."""
        return self.chosen.fits

    @property
    def sentence(self) -> str:
        """The answer in one sentence; where it does not fit, with the nearest set-up that does."""
        chosen, name = self.chosen, self.base.profile.name
        alone = f" and a row of {self.longest_row:,}" if self.longest_row > self.tokens else ""
        has_host = chosen.trainer.host or chosen.host
        host = f" (and {_gib(self.host_bytes)} of the machine's memory)" if has_host else ""
        if chosen.host and self.machine.host_bytes is not None and chosen.host > self.machine.host_bytes:
            host = f" (and {_gib(chosen.host)} of the machine's memory, which has {_gib(self.machine.host_bytes)})"
        copy = f" on a copy in {self.settings.quantize}" if self.settings.quantize else ""
        passes = f"passes of {self.tokens:,} tokens{alone}{copy}"
        each = " on each of its cards" if chosen.trainers > 1 else ""
        trainer = f"the trainer needs {_gib(chosen.trainer.total)}{host}{each} for {passes}"
        both = trainer if self.engine.elsewhere else f"{trainer} and the engine at least {_gib(chosen.engine.least)}"
        verb = "fits" if chosen.fits else "does not fit"
        nearest = "" if chosen.fits else f" {nearest_words(self.nearest)}"
        return f"{name} {verb} on {chosen.where}: {both}.{nearest}"

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The estimated seconds of training for `SPEED_TOKENS` tokens, from and to; None without the card's peak."""
        peak = self.machine.card.peak_flops
        if peak is None:
            return None
        row = max(SPEED_ROW, self.longest_row if self.longest_row > self.settings.token_budget else 0)
        flops = self.base.flops(row) / row * SPEED_TOKENS
        low, high = (flops / (peak * share) for share in reversed(UTILISATION))
        return low, high

    @property
    def host_bytes(self) -> int:
        """What is needed of the machine's own memory: for loading the base, and later for layers' inputs; for all that
        leaves a card that is used in turns.
        """
        if self.chosen.host:
            return self.chosen.host
        return max(self.base.high.plain_base, self.chosen.trainer.host) + 2 * self.base.high.lora + HOST_EXTRA_BYTES

    @property
    def longest_row(self) -> int:
        """Tokens of the longest row that is planned."""
        return self.chosen.trainer.longest

    def setting_values(self, placement: Placement) -> dict[str, Any]:
        """The settings of hone.toml for a placement, by their dotted name."""
        values: dict[str, Any] = {}
        if not self.engine.elsewhere:
            values["engine.gpu_memory_utilization"] = placement.share
            if placement.host:
                values["engine.share"] = self.engine.share
            else:
                values["engine.kv_cache_bytes"] = placement.cache
            if not placement.is_shared:
                values["engine.gpus"], values["trainer.gpus"] = split_gpus(self.machine.cards)
            if placement.cache < placement.engine.context_cache:
                values["engine.max_model_len"] = _longest(self.base.profile, placement.cache)
        if placement.trainers > 1:
            values |= {"trainer.processes": placement.trainers, "trainer.shard_base": True}
        if self.settings.quantize:
            values["trainer.quantize"] = self.settings.quantize
        values["trainer.token_budget"] = self.tokens
        values["trainer.gradient_checkpointing"] = self.settings.gradient_checkpointing
        values["trainer.offload_inputs"] = self.settings.offload_inputs
        if self.base.target is not None:
            values["trainer.target"] = list(self.base.target)
        return values

    def as_json(self) -> dict[str, Any]:
        """The whole answer as JSON; sizes in bytes."""
        chosen = self.chosen
        return {
            "model": self.base.profile.name,
            "card": {"name": self.machine.card.name, "gib": self.machine.card.gib},
            "gpus": self.machine.cards,
            "fits": self.fits,
            "sentence": self.sentence,
            "nearest": list(self.nearest),
            "trainer": {
                "tokens": self.tokens,
                "row_tokens": self.longest_row,
                "held": chosen.trainer.held,
                "reserved": chosen.trainer.reserved,
                "context": CONTEXT_BYTES,
                "total": chosen.trainer.total,
                "phases": dict(self.base.high.peaks),
                "base": self.base.high.base,
                "plain_base": self.base.high.plain_base,
                "lora": self.base.high.lora,
                "optimizer": self.base.high.optimizer,
                "host": self.host_bytes,
                "offloaded": chosen.trainer.host,
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
    while cache_bytes(profile, length + _STEP) <= cache:
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
    host_bytes: float | None = None,
    search: bool = True,
) -> Plan:
    """Plan engine and trainer on `cards` cards of a kind. `row_tokens`: the longest row that must be trained; above
    `trainer.token_budget` it has a pass of its own. `host_bytes`: free memory of the machine; None: not known.

    `search`: where it does not fit, look for the nearest set-up that does. Raises `PlanInvalid` and `UnsupportedModel`.
    """
    machine, longest = Machine(card, cards, host_bytes), profile.context_length
    tokens = min(settings.token_budget, row_tokens or settings.token_budget, longest or settings.token_budget)
    if row_tokens is not None and longest is not None and row_tokens > longest:
        raise PlanInvalid(f"a row of {row_tokens} tokens is longer than the context of {profile.name} ({longest}).")
    plan = _plan_base(profile, machine, settings, engine, tokens, row_tokens)
    if plan.fits or not search:
        return plan
    if (among := _share_base(plan)) is not None and among.fits:
        return among
    return replace(plan, nearest=tuple(_nearest(plan, row_tokens)))


def _plan_base(
    profile: ModelProfile,
    machine: Machine,
    settings: TrainerSettings,
    engine: EngineFacts,
    tokens: int,
    row_tokens: int | None,
) -> Plan:
    try:
        return _plan(measure_base(profile, settings, tokens, row_tokens), machine, settings, engine, tokens)
    except UnsupportedModel:
        if row_tokens is None or row_tokens <= tokens:
            raise
    # rows of this base cannot be divided: a pass has to hold the whole row
    return _plan(measure_base(profile, settings, row_tokens), machine, settings, engine, row_tokens)


def _plan(base: MeasuredBase, machine: Machine, settings: TrainerSettings, engine: EngineFacts, tokens: int) -> Plan:
    return _plan_for(base.trainer(tokens), base, machine, settings, engine)


def _plan_for(
    trainer: TrainerNeed, base: MeasuredBase, machine: Machine, settings: TrainerSettings, engine: EngineFacts
) -> Plan:
    served, host = base.engine(trainer.longest, engine, settings.rank), machine.host_bytes
    if engine.share != "split" and not engine.elsewhere:
        copies = base.high.base + trainer.host + 2 * base.high.lora + HOST_EXTRA_BYTES
        in_turns = place_in_turns(trainer, served, machine.card, engine.share, copies, host)
        return Plan(base, settings, engine, machine, trainer.tokens, in_turns, None)
    shared = place(trainer, served, machine.card, is_shared=True, elsewhere=engine.elsewhere, host_bytes=host)
    apart = None
    if machine.cards > 1:
        apart = place(trainer, served, machine.card, is_shared=False, elsewhere=False, host_bytes=host)
    return Plan(base, settings, engine, machine, trainer.tokens, shared, apart)


def _share_base(plan: Plan) -> Plan | None:
    """The same with a share of the base on each card but the engine's; None: there are too few cards."""
    elsewhere = plan.engine.elsewhere
    count = plan.machine.cards - (0 if elsewhere else 1)
    if count < 2:
        return None
    settings = plan.settings.model_copy(update={"processes": count, "shard_base": True})
    base = replace(plan.base, settings=settings)
    trainer, host = base.trainer(plan.tokens), plan.machine.host_bytes
    served = base.engine(trainer.longest, plan.engine, settings.rank)
    placed = place(trainer, served, plan.machine.card, is_shared=False, elsewhere=elsewhere, host_bytes=host)
    placed = replace(placed, trainers=count)
    return replace(plan, base=base, settings=settings, shared=placed if elsewhere else plan.shared, apart=placed)


def _on(plan: Plan, machine: Machine, tokens: int) -> Plan:
    """The same base on another machine, or with another budget."""
    return _plan(plan.base, machine, plan.settings, plan.engine, tokens)


def _nearest(plan: Plan, row_tokens: int | None) -> Iterator[str]:
    """The set-ups that fit, each changing one thing, the cheapest change first."""
    card, cards = plan.machine.card, plan.machine.cards
    if plan.settings.gradient_checkpointing is False:
        changed = plan.settings.model_copy(update={"gradient_checkpointing": True})
        if _plan_base(plan.base.profile, plan.machine, changed, plan.engine, plan.tokens, row_tokens).fits:
            yield "trainer.gradient_checkpointing = true"
    if (budget := largest_budget(plan, LEAST_TOKENS)) is not None:
        yield f"trainer.token_budget = {budget} (a longer row has a pass of its own where it fits)"
    if not plan.engine.elsewhere and plan.engine.share == "split":
        yield from _take_turns(plan)
    if _may_fit_quantized(plan):
        changed = plan.settings.model_copy(update={"quantize": NF4})
        if _plan_base(plan.base.profile, plan.machine, changed, plan.engine, plan.tokens, row_tokens).fits:
            yield f'trainer.quantize = "{NF4}" (logprobs differ more from the engine\'s)'
    if cards == 1 and not plan.engine.elsewhere:
        two = _on(plan, replace(plan.machine, cards=2), plan.tokens)
        if two.fits:
            yield f"engine and trainer on {two.chosen.where}, one each"
    if (smaller := _smaller_model(plan, row_tokens)) is not None:
        yield smaller
    bigger = sorted((one for one in CARDS if one.gib > card.gib), key=lambda one: one.gib)
    for count in {1, cards}:
        for one in bigger:
            if (larger := _on(plan, replace(plan.machine, card=one, cards=count), plan.tokens)).fits:
                yield larger.chosen.where
                break


def _take_turns(plan: Plan) -> Iterator[str]:
    """The way to share one card with which it fits and that moves the least, if there is one."""
    for share in ("cache", "sleep"):
        engine = replace(plan.engine, share=share)
        if _plan(plan.base, replace(plan.machine, cards=1), plan.settings, engine, plan.tokens).fits:
            yield f'engine.share = "{share}"'
            return


def _may_fit_quantized(plan: Plan) -> bool:
    """Whether it is worth measuring: the base is not quantised, and the least that its copy takes would fit."""
    if plan.settings.quantize is not None or plan.base.profile.quantization is not None:
        return False
    least = TrainerNeed(plan.tokens, round(plan.base.high.weights * NF4_SHARE))
    return _plan_for(least, plan.base, plan.machine, plan.settings, plan.engine).fits


def plan_without_quantize(plan: Plan, row_tokens: int | None) -> Plan | None:
    """The same plan on the base itself; None: the plan is so already."""
    if plan.settings.quantize is None:
        return None
    changed = plan.settings.model_copy(update={"quantize": None})
    return _plan_base(plan.base.profile, plan.machine, changed, plan.engine, plan.tokens, row_tokens)


def largest_budget(plan: Plan, least: int) -> int | None:
    """The largest budget below the plan's with which it fits, and which is not below `least`; None: none is."""
    low, high = math.ceil(least / _STEP), (plan.tokens - 1) // _STEP
    weights = TrainerNeed(least, plan.base.high.weights - plan.base.saved_by_shares)
    if not _plan_for(weights, plan.base, plan.machine, plan.settings, plan.engine).fits:
        return None  # no pass is short enough; a measurement of few tokens would take a second to say so
    found = None
    while low <= high:
        middle = (low + high) // 2
        tokens = middle * _STEP
        if _on(plan, plan.machine, tokens).fits:
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
    room = plan.machine.card.gib * GIB
    hopeful = [
        (total, one)
        for total, one in smaller
        if _least_bytes(one, total, plan) < room and (row_tokens or 0) <= (one.context_length or math.inf)
    ]
    for _, one in sorted(hopeful, key=lambda pair: pair[0], reverse=True)[:_CANDIDATES]:
        tokens = min(plan.tokens, one.context_length or plan.tokens)
        try:
            other = _plan_base(one, plan.machine, plan.settings, plan.engine, tokens, row_tokens)
        except (PlanInvalid, UnsupportedModel):
            continue
        if other.fits:
            return f"{one.name} on {other.chosen.where}"
        if (budget := largest_budget(other, _LEAST_OF_OTHERS)) is not None:
            return f"{one.name} with trainer.token_budget = {budget} on {other.chosen.where}"
    return None


def _least_bytes(profile: ModelProfile, parameters: int, plan: Plan) -> float:
    """What a model needs in any case, without a measurement: its weights, and three copies of a chunk of logits."""
    weights = parameters * BFLOAT16
    logits = 3 * 4 * plan.settings.logprob_chunk * (profile.vocab_size or 0)
    held = weights * NF4_SHARE if plan.settings.quantize else weights
    trainer = RESERVED * (held + logits) + CONTEXT_BYTES
    return trainer if plan.machine.cards > 1 or plan.engine.elsewhere else trainer + weights + ENGINE_EXTRA_BYTES
